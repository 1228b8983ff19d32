"""Three ways to start a run give the same run; the files of a run; the Python API. Most tests start real commands."""

import csv
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import fullgnn
from fullgnn.config.overrides import quote
from fullgnn.distributed import World, world_of_one
from fullgnn.engine.summary import closing_table
from fullgnn.errors import ConfigError
from fullgnn.graph.datasets import karate
from fullgnn.storage.record import RunRecord, read_record
from fullgnn.train import run_on
from tests.cases import config
from tests.commands import OWN, Finished, environment, run_command, torchrun

RECORD_KEYS = """
    dataset num_nodes num_edges nnz num_features num_classes model scheme world_size replication reorder reorder_scope
    kernel device backend epochs epoch_time_ms spmm_time_ms comm_time_ms comm_bytes_per_epoch nnz_imbalance
    peak_memory_bytes peak_tensor_bytes reorder_time_s prepare_time_s final_loss train_accuracy val_accuracy
    test_accuracy final_test_accuracy seed versions git_commit
""".split()

EPOCHS = 6
RUN = [
    "scheme=1.5d",
    "scheme.replication=2",
    "reorder=rcm",
    "dataset=karate",
    f"train.epochs={EPOCHS}",
    "runtime.device=cpu",
]
SPLITS = ("train", "val", "test")
RUN_FILES = ("config.yaml", "epochs.jsonl", "record.json")


def files(folder: Path) -> set[str]:
    """Relative paths of all files below ``folder``."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def epochs(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "epochs.jsonl").read_text().splitlines()]


def losses(run_dir: Path) -> list[float]:
    return [line["loss"] for line in epochs(run_dir)]


def predictions(run_dir: Path) -> dict[str, np.ndarray]:
    with np.load(run_dir / "predictions.npz", allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def by_torchrun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """A run of two ranks, each of which is a new process."""
    cwd = tmp_path_factory.mktemp("torchrun")
    return run_command(torchrun(2), "-m", "fullgnn.train", *RUN, cwd=cwd), cwd


@pytest.fixture(scope="module")
def by_own_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    cwd = tmp_path_factory.mktemp("own")
    arguments = ["runtime.nproc=4", *RUN, "run_dir=a/b", "train.save_predictions=true"]
    return run_command(OWN, *arguments, cwd=cwd), cwd


def test_torchrun_leaves_one_run_folder_and_nothing_else(by_torchrun: tuple[Finished, Path]) -> None:
    done, cwd = by_torchrun
    assert done.status == 0, done.output
    (run_dir,) = (cwd / "runs").iterdir()  # one folder, although each rank composes a name of its own
    assert files(cwd) == {f"runs/{run_dir.name}/{name}" for name in RUN_FILES}
    assert str(run_dir) in done.output


def test_own_ranks_put_all_of_it_at_run_dir(by_own_ranks: tuple[Finished, Path]) -> None:
    done, cwd = by_own_ranks
    assert done.status == 0, done.output
    assert files(cwd) == {f"a/b/{name}" for name in (*RUN_FILES, "predictions.npz")}


def test_both_start_the_same_run(by_torchrun: tuple[Finished, Path], tmp_path: Path) -> None:
    (first,), second = (by_torchrun[1] / "runs").iterdir(), tmp_path / "second"
    done = run_command(OWN, "runtime.nproc=2", *RUN, "run_dir=second", cwd=tmp_path)
    assert done.status == 0, done.output
    assert losses(first) == losses(second)
    records = [json.loads((run_dir / "record.json").read_text()) for run_dir in (first, second)]
    measured = {key for key in records[0] if re.search("time|peak|hidden|^ranks$|^run_dir$", key)}
    same = [{key: value for key, value in record.items() if key not in measured} for record in records]
    assert same[0] == same[1]
    configs = [yaml.safe_load((run_dir / "config.yaml").read_text()) for run_dir in (first, second)]
    for cfg in configs:
        del cfg["run_dir"], cfg["runtime"]["nproc"]
    assert configs[0] == configs[1]


def test_the_record_has_every_key_and_agrees_with_the_epochs(by_own_ranks: tuple[Finished, Path]) -> None:
    run_dir = by_own_ranks[1] / "a" / "b"
    content = json.loads((run_dir / "record.json").read_text())
    assert set(RECORD_KEYS) <= set(content)
    assert set(content) == {field.name for field in fields(RunRecord)}
    assert set(content["epoch_time_ms"]) == {"median", "p20", "p80"}
    assert set(content["comm_bytes_per_epoch"]) == {"all_reduce", "exchange", "reduce_scatter"}
    expected = {
        "dataset": "karate",
        "num_nodes": 34,
        "num_edges": 156,
        "nnz": 156 + 34,
        "num_features": 34,
        "num_classes": 2,
        "model": "gcn",
        "scheme": "1.5d",
        "world_size": 4,
        "replication": 2,
        "reorder": "rcm",
        "reorder_scope": "block",
        "reorder_num_blocks": 2,
        "partition": "contiguous",
        "kernel": "blocked",
        "stage_order": "diagonal",
        "exchange": "auto",
        "split_rows": True,
        "device": "cpu",
        "backend": "gloo",
        "cuda_graph": "no: the device is a CPU",
        "epochs": EPOCHS,
        "seed": 0,
    }
    assert {key: content[key] for key in expected} == expected
    assert content["versions"]["torch"] and content["versions"]["numpy"]

    lines = epochs(run_dir)
    assert [line["epoch"] for line in lines] == list(range(1, EPOCHS + 1))
    assert content["final_loss"] == lines[-1]["loss"]
    best = max(lines, key=lambda line: line["val_accuracy"])  # max returns the earliest of equal epochs
    assert content["best_epoch"] == best["epoch"]
    assert {split: content[f"{split}_accuracy"] for split in SPLITS} == {
        split: best[f"{split}_accuracy"] for split in SPLITS
    }
    assert content["final_test_accuracy"] == lines[-1]["test_accuracy"]
    assert content["epoch_time_ms"]["p20"] <= content["epoch_time_ms"]["median"] <= content["epoch_time_ms"]["p80"]
    assert read_record(run_dir) == RunRecord(**content)


def test_the_record_says_what_each_rank_spent(by_own_ranks: tuple[Finished, Path]) -> None:
    run_dir = by_own_ranks[1] / "a" / "b"
    content = json.loads((run_dir / "record.json").read_text())
    ranks = content["ranks"]
    assert len(ranks) == 4 and content["predicted"] is None
    for name, mean in content["comm_bytes_per_epoch"].items():
        assert np.mean([rank["bytes_received"][name] for rank in ranks]) == mean
    assert [rank["peak_memory_bytes"] for rank in ranks] == content["peak_memory_bytes_per_rank"]
    assert max(rank["peak_tensor_bytes"] for rank in ranks) == content["peak_tensor_bytes"]
    assert sum(rank["nnz"] for rank in ranks) == content["nnz"]
    busiest = max(ranks, key=lambda rank: rank["time_ms"]["spmm"])["time_ms"]
    assert busiest.pop("epoch") == content["epoch_time_ms"]["median"]
    assert busiest == {phase: content[f"{phase}_time_ms"] for phase in ("spmm", "comm", "dense", "other")}
    first = [line["time_ms"]["spmm"] for line in epochs(run_dir)[1:]]
    assert ranks[0]["time_ms"]["spmm"] == np.median(first)


def test_statistics_are_counted_where_they_are_asked_for(by_own_ranks: tuple[Finished, Path], tmp_path: Path) -> None:
    without = json.loads((by_own_ranks[1] / "a" / "b" / "record.json").read_text())
    assert without["tile_density"] is None and 0 < without["edge_cut"] < 1
    cfg = config("reorder=rcm", "dataset=karate", "train.epochs=2", "runtime.device=cpu", "train.statistics=true")
    cfg.run_dir = str(tmp_path)
    with world_of_one(cfg.runtime) as world:
        record = run_on(world, cfg)
    assert record.tile_density is not None and sum(record.tile_density.values()) == pytest.approx(1)
    with np.load(tmp_path / "structure.npz", allow_pickle=False) as arrays:
        assert arrays["block_nnz"].sum() == record.nnz and arrays["cell_nnz_after"].sum() == record.num_edges
        assert arrays["cell_nnz_before"].sum() == record.num_edges and arrays["part_bounds"].tolist() == [0, 34]


def test_one_rank_speaks(by_torchrun: tuple[Finished, Path], by_own_ranks: tuple[Finished, Path]) -> None:
    for (done, _), size in ((by_torchrun, 2), (by_own_ranks, 4)):
        for epoch in range(1, EPOCHS + 1):
            assert done.output.count(f"epoch {epoch}/{EPOCHS} ") == 1
        assert done.output.count(f"karate, 34 nodes, 190 non-zeros; gcn, 1.5d, p={size} r=2, rcm (block)") == 1
        assert done.output.count("peak memory, largest rank") == 1 and "edge cut" not in done.output
        # Lines that begin with W are torchrun's; the machine may have fewer cores than the run has ranks.
        assert "arning" not in re.sub(f"(?m)^W.*$|^warning: {size} ranks share .*$", "", done.output)


@pytest.mark.parametrize(
    "command",
    [
        [*OWN, "dataset=karate", "runtime.nproc=2"],
        [sys.executable, "-m", "fullgnn.train_minibatch", "dataset=karate", "loader.num_workers=0"],
    ],
)
def test_balanced_weights_choose_the_epoch_by_macro_f1_and_the_log_says_so(command: list[str], tmp_path: Path) -> None:
    arguments = [
        "runtime.device=cpu",
        "train.epochs=5",
        "train.eval_every=1",
        "run_dir=a",
        "task.class_weight=balanced",
    ]
    done = run_command(command, *arguments, cwd=tmp_path)
    assert done.output.count("the best epoch is chosen by the macro_f1 of val, since task.class_weight") == 1
    scores = [line["val_macro_f1"] for line in epochs(tmp_path / "a")]
    record = read_record(tmp_path / "a")
    assert record.best_epoch == 1 + scores.index(max(scores)) and record.metrics["val_macro_f1"] == max(scores)
    assert record.test_accuracy is not None


def test_the_closing_table_says_whether_the_graph_is_directed(by_own_ranks: tuple[Finished, Path]) -> None:
    record = read_record(by_own_ranks[1] / "a" / "b")
    assert record.symmetric and "directed" not in closing_table(record)
    assert closing_table(replace(record, symmetric=False)).startswith(
        "karate, 34 nodes, 190 non-zeros, directed; gcn, 1.5d, p=4 r=2, rcm (block)\n"
    )


def test_predictions_are_in_original_ids(by_own_ranks: tuple[Finished, Path], tmp_path: Path) -> None:
    """Four ranks with replicas and reordered blocks give the predictions of one rank that keeps the order."""
    alone = config(
        "dataset=karate",
        f"train.epochs={EPOCHS}",
        "train.save_predictions=true",
        f"run_dir={tmp_path}",
        "runtime.device=cpu",
    )
    with world_of_one(alone.runtime) as world:
        run_on(world, alone)
    expected, predicted = predictions(tmp_path), predictions(by_own_ranks[1] / "a" / "b")
    assert predicted["logits"].shape == (34, 2)
    np.testing.assert_allclose(predicted["logits"], expected["logits"], rtol=1e-4, atol=1e-6)
    assert np.array_equal(predicted["prediction"], expected["prediction"])
    assert np.array_equal(predicted["prediction"], predicted["logits"].argmax(axis=1))
    assert len(set(predicted["prediction"])) == 2  # with one class, any order would pass

    # The predictions are those of the best epoch, so that their accuracies are those of the record.
    graph = karate.load(train_per_class=4, num_val=8, seed=0)
    record = read_record(by_own_ranks[1] / "a" / "b")
    right = predicted["prediction"] == graph.labels
    assert right[graph.test_mask].mean() == pytest.approx(record.test_accuracy)
    assert right[graph.val_mask].mean() == pytest.approx(record.val_accuracy)


def trained(world: World, overrides: list[str]) -> RunRecord:
    return run_on(world, config(*overrides))


def untrained(world: World, overrides: list[str]) -> str:
    with pytest.raises(ConfigError) as refused:
        run_on(world, config(*overrides))
    return str(refused.value)


def test_eval_every_zero_and_a_second_run_in_the_same_folder(ranks: Callable, tmp_path: Path) -> None:
    arguments = ["dataset=karate", "train.epochs=4", f"run_dir={tmp_path}"]
    ranks(2)(trained, [*arguments, "train.save_predictions=true"])
    (tmp_path / "predictions_mine.npz").touch()
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    refused = f"run_dir={tmp_path} holds an earlier run (config.yaml, record.json, epochs.jsonl, "
    for message in ranks(2)(untrained, [*arguments, "dataset=npz", "dataset.path=missing.npz"]):  # nothing is loaded
        assert message.startswith(refused) and "overwrite=true to replace it" in message and "\n" not in message
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before
    records = ranks(2)(trained, [*arguments, "train.eval_every=0", "overwrite=true"])
    assert files(tmp_path) == {*RUN_FILES, "predictions_mine.npz"}
    assert ["val_accuracy" in line for line in epochs(tmp_path)] == [False, False, False, True]
    assert records[0].best_epoch == 4
    assert records[0].test_accuracy == records[0].final_test_accuracy == epochs(tmp_path)[-1]["test_accuracy"]


@pytest.mark.parametrize("cached", [True, False])
def test_what_was_done_once_is_recorded(ranks: Callable, tmp_path: Path, cached: bool) -> None:
    arguments = ["dataset=karate", "model.input_dropout=0", "train.epochs=2", "scheme.exchange=broadcast"]
    for record in ranks(2)(trained, [*arguments, f"optimizations.cache_aggregation={cached}", f"run_dir={tmp_path}"]):
        assert record.setup_spmm_columns == (record.num_features if cached else 0)
        moved = {"exchange": record.num_nodes / 2 * record.num_features * 4}  # half of the float32 features
        assert record.setup_bytes == (moved if cached else {})
        assert record.setup_time_s > record.prepare_time_s > 0


def test_patience_ends_the_run_early(ranks: Callable, tmp_path: Path) -> None:
    arguments = ["dataset=karate", "train.epochs=500", "train.patience=3", f"run_dir={tmp_path}"]
    record = ranks(2)(trained, arguments)[0]
    assert record.epochs == record.best_epoch + 3 == len(epochs(tmp_path)) < 500
    assert record.val_accuracy == max(line["val_accuracy"] for line in epochs(tmp_path))


# Sweeps.

SWEEP = ["runtime.nproc=2", "dataset=karate", "train.epochs=3", "runtime.device=cpu"]


def rows(run_dir: Path) -> list[dict[str, str]]:
    with open(run_dir / "sweep.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_runs_one_job_after_another(tmp_path: Path, every_case: bool) -> None:
    orders = ("none", "metis") if every_case else ("metis",)
    swept = ["-m", "scheme=1d,1.5d", f"reorder={','.join(orders)}", "scheme.replication=2", "reorder.cluster_size=5"]
    done = run_command(OWN, *swept, *SWEEP, "run_dir=all", cwd=tmp_path)
    assert done.status == 0, done.output
    run_dir, jobs = tmp_path / "all", [(scheme, order) for scheme in ("1d", "1.5d") for order in orders]
    per_job = {f"{job}/{name}" for job in range(len(jobs)) for name in RUN_FILES}
    assert files(tmp_path) == {f"all/{name}" for name in per_job | {"sweep.csv", "multirun.yaml"}}

    table = rows(run_dir)
    assert [row["status"] for row in table] == ["ok"] * len(jobs)
    assert [(row["scheme"], row["reorder"]) for row in table] == jobs
    assert [row["replication"] for row in table] == ["1"] * len(orders) + ["2"] * len(orders)
    for job, row in enumerate(table):
        record = read_record(run_dir / str(job))
        assert row["run_dir"] == str(run_dir / str(job))
        assert float(row["final_loss"]) == record.final_loss == losses(run_dir / str(job))[-1]
        assert losses(run_dir / str(job)) == pytest.approx(losses(run_dir / "0"), rel=1e-5)  # the same mathematics
    for scheme, order in jobs:
        assert re.search(rf"\| scheme={re.escape(scheme)}( reorder={order})? +\| +ok \|", done.output)
    ignored = "scheme=1d keeps one replica: scheme.replication=2 is not used"
    assert done.output.count(ignored) == len(orders)  # once in each run


def test_a_failed_job_is_reported_and_the_sweep_goes_on(tmp_path: Path) -> None:
    """One job fails in its ranks, one before its ranks start, and one succeeds. ``run_dir`` is the default folder."""
    karate.load(train_per_class=4, num_val=8, seed=0).save(tmp_path / "good.npz")
    (tmp_path / "bad.npz").write_text("no arrays")
    swept = ["-m", "dataset=npz", "dataset.path=bad.npz,good.npz", "train.epochs=0,2"]
    done = run_command(OWN, *swept, "runtime.nproc=2", "runtime.device=cpu", cwd=tmp_path)
    assert done.status == 1
    assert "Traceback" not in done.output
    (run_dir,) = (tmp_path / "runs").iterdir()
    table = rows(run_dir)
    assert [row["status"] for row in table] == ["failed", "failed", "failed", "ok"]
    assert table[0]["error"].startswith("train.epochs=0 is out of range")
    assert re.fullmatch("bad.npz is no npz file.*", table[1]["error"])
    assert read_record(run_dir / "3").epochs == 2
    summary = done.output[done.output.index("| job") :]
    assert len(re.findall(r"\| failed \|", summary)) == 3 and len(re.findall(r"\| +ok \|", summary)) == 1
    assert len(re.findall("(?m)^error: job [012] .* failed: ", summary)) == 3
    assert not (run_dir / "0").exists() or not (run_dir / "0" / "record.json").exists()


@pytest.mark.sample(3)
def test_a_sweep_replaces_an_earlier_one_only_if_told(tmp_path: Path) -> None:
    karate.load(train_per_class=4, num_val=8, seed=0).save(tmp_path / "good.npz")
    sweep = ["-m", "dataset=npz", "dataset.path=good.npz", "runtime.nproc=1", "train.epochs=1", "run_dir=all"]
    first = run_command(OWN, *sweep, "runtime.device=cpu", "seed=0,1,2", cwd=tmp_path)
    assert first.status == 0, first.output
    shutil.rmtree(tmp_path / "all" / "1")  # as if the sweep had been killed
    again = run_command(OWN, *sweep, "runtime.device=cpu", "seed=0,1", "resume=auto", cwd=tmp_path)
    assert again.status == 0 and [row["seed"] for row in rows(tmp_path / "all")] == ["0", "1"], again.output
    assert re.findall("all/(.) holds this run already", again.output) == ["0"]
    assert "folders of an earlier sweep that had more jobs, which are not in the table: 2\n" in again.output
    (tmp_path / "all" / "2" / "notes.txt").touch()
    before = files(tmp_path / "all")
    refused = run_command(OWN, *sweep, "runtime.device=cpu", "seed=3", cwd=tmp_path)
    assert refused.status == 1 and len(refused.output.splitlines()) == 1, refused.output
    cures = "choose another run_dir, overwrite=true to replace it, or resume=auto to continue it"
    line = (
        f"error: run_dir={tmp_path / 'all'} holds an earlier sweep (sweep.csv, means.csv, means.md, 0, 1, 2): {cures}"
    )
    assert refused.output.strip() == line and files(tmp_path / "all") == before
    second = run_command(OWN, *sweep, "runtime.device=cpu", "seed=3", "overwrite=true", cwd=tmp_path)
    assert second.status == 0, second.output
    assert [row["seed"] for row in rows(tmp_path / "all")] == ["3"]
    job = {f"0/{name}" for name in RUN_FILES}
    assert files(tmp_path / "all") == {"sweep.csv", "multirun.yaml", "2/notes.txt", *job}
    assert not (tmp_path / "all" / "1").exists()
    alone = run_command(OWN, "runtime.nproc=2", "run_dir=all/0", cwd=tmp_path)
    assert alone.status == 1 and len(alone.output.splitlines()) == 1 and "holds an earlier run" in alone.output


# Other options of the command, and the Python API.


def test_the_configuration_can_be_printed(tmp_path: Path) -> None:
    done = run_command(OWN, "--cfg", "job", "model.hidden_channels=5", cwd=tmp_path)
    assert done.status == 0
    assert yaml.safe_load(done.output)["model"]["hidden_channels"] == 5
    helped = run_command(OWN, "--help", cwd=tmp_path)
    assert helped.status == 0 and " digits*, " in helped.output
    assert helped.output.count("    python -m fullgnn.train ") + helped.output.count("    torchrun ") == 4
    version = run_command(OWN, "--version", cwd=tmp_path)
    assert version.status == 0 and version.output == f"fullgnn {fullgnn.__version__}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sample(0)
def test_tab_completion_of_bash(tmp_path: Path) -> None:
    """Hydra completes a command of one word, such as the one that pip installs, and not ``python -m``."""
    program = tmp_path / "fullgnn-train"
    program.write_text(f"#!{sys.executable}\nfrom fullgnn.train import main\nmain()\n")
    program.chmod(0o755)
    line = "fullgnn-train dataset=karate scheme=1"
    script = f"""
        eval "$(fullgnn-train -sc install=bash)"
        complete -p fullgnn-train
        COMP_LINE="{line}" COMP_POINT={len(line)} COMP_CWORD=2
        hydra_bash_completion
        echo "${{COMPREPLY[@]}}"
    """
    env = environment()
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    done = run_command(["bash", "-c", script], cwd=tmp_path, env=env)
    assert done.status == 0 and "-F hydra_bash_completion fullgnn-train" in done.output
    assert done.output.splitlines()[-1] == "scheme=1.5d scheme=1d"


def test_a_folder_of_ones_own_adds_choices(tmp_path: Path) -> None:
    """``--config-dir`` and ``--config-name`` reach the ranks, and a value with a comma and a quote survives."""
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "narrow.yaml").write_text("defaults: [gcn]\nname: narrow\nhidden_channels: 3\n")
    (tmp_path / "mine" / "small.yaml").write_text("defaults: [config, _self_]\ntrain: {epochs: 2}\n")
    run_dir = tmp_path / "it's, here"
    flags = ["--config-dir=mine", "--config-name=small"]
    arguments = ["model=narrow", "dataset=karate", "runtime.device=cpu", f"run_dir={quote(str(run_dir))}"]
    done = run_command(OWN, *flags, *arguments, cwd=tmp_path)
    assert done.status == 0, done.output
    record = read_record(run_dir)
    assert (record.model, record.num_parameters, record.epochs) == ("narrow", 34 * 3 + 3 + 3 * 2 + 2, 2)


SCRIPT = """\
import numpy as np
import fullgnn

rng = np.random.default_rng(0)
nodes = np.arange(40)
graph = fullgnn.Graph.from_edge_index(
    np.stack([nodes, (nodes + 1) % 40]),
    features=rng.standard_normal((40, 5)),
    labels=nodes % 2,
    train_mask=nodes < 20,
    name="my 'ring', directed",
)
settings = {"dataset.symmetrize": True, "train": {"epochs": 3}}
record = fullgnn.train_graph(graph, {nproc}settings, runtime={"device": "cpu"}, run_dir="out")
if int(__import__("os").environ.get("RANK", 0)) == 0:
    print("RECORD", record.dataset, record.num_edges, record.world_size, record.final_loss)
"""


@pytest.mark.sample(4)
def test_a_graph_held_in_python(tmp_path: Path, every_case: bool) -> None:
    """A script without a __main__ guard gives the same run with python and with torchrun."""
    outputs = []
    ways = [("plain", [sys.executable], '"runtime.nproc=2", '), ("torchrun", torchrun(2), "")]
    for name, command, nproc in ways if every_case else ways[:1]:
        cwd = tmp_path / name
        cwd.mkdir()
        (cwd / "script.py").write_text(SCRIPT.replace("{nproc}", nproc))
        done = run_command(command, "script.py", cwd=cwd)
        assert done.status == 0, done.output
        outputs.append([line for line in done.output.splitlines() if line.startswith("RECORD")])
        assert files(cwd) == {"script.py", "out/graph.npz", *(f"out/{name}" for name in RUN_FILES)}
        assert yaml.safe_load((cwd / "out/config.yaml").read_text())["dataset"]["symmetrize"] is True
    assert outputs[0] == outputs[-1]
    assert len(outputs[0]) == 1 and outputs[0][0].startswith("RECORD my 'ring', directed 80 2 ")


SEVERAL_CALLS = """\
import os
import time
from pathlib import Path
import fullgnn
from fullgnn.distributed import wait_for_others
from fullgnn.graph.datasets import karate
from tests.distributed.recorded import recorded

graph = karate.load(train_per_class=4, num_val=8, seed=0)
options = ["train.epochs=3", "runtime.device=cpu", "runtime.timeout_s=20"]
mistakes = ["scheme.replicas=2"], ["runtime.backend=nccl"], ["scheme=1.5d", "scheme.replication=3"]
losses, errors = [], []
with recorded() as operations:
    losses.append(fullgnn.train_graph(graph, *options, "run_dir=first").final_loss)
assert operations[0] == ("all_reduce", None)  # makes NCCL's connections
for number, mistake in enumerate(mistakes):
    try:
        fullgnn.train_graph(graph, *options, *mistake, f"run_dir=mistake{number}")
    except fullgnn.ConfigError as error:
        errors.append(str(error))
try:
    fullgnn.train_graph(graph, *options, "run_dir=first")
except fullgnn.ConfigError as error:
    assert "first holds an earlier run" in str(error) and "overwrite=true" in str(error)
    errors.append(str(error))
losses.append(fullgnn.train_graph(graph, *options, "run_dir=first", "overwrite=true").final_loss)
losses.append(fullgnn.train_graph(graph, *options, "run_dir=second").final_loss)
for number in range(2):
    failing = Path(f"failing{number}")
    if os.environ["RANK"] == "1":
        time.sleep(0.3)
        failing.touch()
    wait_for_others()
    assert failing.exists()  # rank 0 has waited, the second time too
assert losses[0] == losses[1] == losses[2] and len(errors) == 4, (losses, errors)
print("RANK", os.environ["RANK"], "ends well")
"""


@pytest.mark.sample(4)
def test_a_torchrun_script_trains_several_times(tmp_path: Path) -> None:
    """Between two calls that train, three calls fail: before the ranks join, while they join, and after that.

    A call with the folder of another one fails too, unless it says that it replaces the run there.
    """
    (tmp_path / "script.py").write_text(SEVERAL_CALLS)
    done = run_command(torchrun(2), "script.py", cwd=tmp_path)
    assert done.status == 0, done.output
    assert all(done.output.count(f"RANK {rank} ends well") == 1 for rank in range(2)), done.output
    for run_dir in ("first", "second"):
        assert read_record(tmp_path / run_dir).world_size == 2
