"""The command ``./launch/gpu_bench`` in Triton's interpreter: whole runs, stopped runs and refused options."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict
from importlib.util import find_spec

import pytest
import torch

from fullgnn.bench.gpu.__main__ import check_options, parse
from fullgnn.bench.gpu.contestants import CONTESTANTS, FIRST
from fullgnn.bench.gpu.items import Runner
from fullgnn.bench.gpu.kernel_tests import NAMED
from fullgnn.bench.gpu.parts import MINUTES, PARTS, Part
from fullgnn.bench.gpu.ranks import WAYS
from fullgnn.bench.gpu.record import NOT_MEASURED, Record
from fullgnn.bench.gpu.training import LATER, OURS
from fullgnn.bench.gpu.tunables import TUNING_FILE
from fullgnn.bench.gpu.whole import plan_command, planned, reproduce_command
from fullgnn.bench.gpu.worker import Budget
from fullgnn.costs.config import load_plan
from fullgnn.errors import FullGNNError
from fullgnn.graph.lookalikes import LOOKALIKES
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.tuning import Tuning, read_tuning
from tests.commands import ROOT

ABSENT = ("hydra", "omegaconf", "pymetis", "tqdm", "networkx", "sklearn", "pytest")
TRAINING = {"drill", "epoch", "training"}
"""Modules that need Hydra."""
COMMAND = [str(ROOT / "launch" / "gpu_bench")]


def bare_environment(tmp_path, absent=ABSENT, name="bare"):
    """Environment variables with which Python behaves as if the modules ``absent`` were not installed."""
    folder = tmp_path / name
    folder.mkdir()
    lines = ["import sys", "import importlib.util", f"absent = {absent!r}", "sys.modules.update(dict.fromkeys(absent))"]
    lines += ["find_spec = importlib.util.find_spec"]
    lines += ["importlib.util.find_spec = lambda name, *rest: None if name in absent else find_spec(name, *rest)"]
    (folder / "sitecustomize.py").write_text("\n".join(lines) + "\n")
    return {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(folder)}


@pytest.fixture
def bare(tmp_path):
    return bare_environment(tmp_path)


def read(folder, part):
    return json.loads((folder / f"{part}.json").read_text())


@pytest.fixture(scope="module")
def parts(request):
    """The parts of the toy run: with --all every one, otherwise that which measures the kernels."""
    return PARTS if request.config.getoption("--all") else ("products",)


@pytest.fixture(scope="module")
def toy(tmp_path_factory, parts):
    """The folder of a toy run of ``parts``, and its output. The part products runs without the modules ``ABSENT``."""
    tmp_path = tmp_path_factory.mktemp("toy")
    full = bare_environment(tmp_path, (), "full")
    tuned = ["epochs", "--tuning", str(tmp_path / "found" / TUNING_FILE)]
    # Two commands at the same time take half as long; the part epochs reads the constants that products found.
    first = [(["checks"], full), (["products"], bare_environment(tmp_path))]
    outputs = []
    for every in (first, [(tuned, full), (["models", "ranks"], full)]):
        runs = [(own, env) for own, env in every if own[0] in parts]
        running = [
            subprocess.Popen(
                [*COMMAND, "--toy", "--out", "found", "--part", *own],
                env={**env, "TRITON_INTERPRET": "1"},
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for own, env in runs
        ]
        outputs += [process.communicate(timeout=400)[0] for process in running]
        assert not any(process.returncode for process in running), "\n".join(outputs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare", "found", "full"]
    return tmp_path / "found", "\n".join(outputs)


@pytest.mark.sample(4)
def test_a_toy_run_leaves_a_few_small_files(toy, parts):
    folder, _ = toy
    names = [f"{part}.{kind}" for part in parts for kind in ("json", "md")]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, "tuning.yaml"])
    for part in parts:
        record = read(folder, part)
        assert record["finished"] and record["run"]["times"] == NOT_MEASURED and record["run"]["part"] == part
        assert NOT_MEASURED in (folder / f"{part}.md").read_text()
        failed = [entry for entry in record["items"] if entry["state"] in ("failed", "left out")]
        assert all("PyG" in entry["item"] for entry in failed), failed
    assert max(path.stat().st_size for path in folder.iterdir()) < 300_000
    assert read_tuning(folder / "tuning.yaml") == Tuning()  # nothing was measured, so every constant keeps its default


@pytest.mark.sample(0)
def test_a_toy_run_checks_ranks_and_says_what_is_missing(toy):
    """The record and the page list every module of ``NAMED``, as passed or as missing."""
    record = read(toy[0], "checks")
    assert all(check["passed"] for check in record["checks"])
    missing = [entry["item"] for entry in record["items"] if entry["state"] == "missing"]
    passed = [check["subject"] for check in record["checks"]]
    assert passed[0] == "pytest" and any(name.startswith("tests.gpu.test_ranks") for name in passed)
    page = (toy[0] / "checks.md").read_text()
    assert all(any(name.startswith(module) for name in passed + missing) for module in NAMED)
    assert all(name in page for name in passed + missing)


@pytest.mark.sample(4)
def test_a_toy_run_multiplies_and_sweeps(toy, monkeypatch):
    monkeypatch.setattr(gpu, "INTERPRETED", True)
    record = read(toy[0], "products")
    assert record["rates"]["copy_gb_s"] == NOT_MEASURED and len(record["rates"]["gather"]) == 4
    graph = record["graphs"]["toy"]
    assert graph["num_nodes"] == 96 and graph["nnz"] == 768
    assert graph["order"] == "the generator's communities" and "not installed" in graph["order_reason"]
    assert sum(graph["tile_density"]) == pytest.approx(1)
    found = {(one["kernel"], one["width"]): one for one in graph["spmm"]}
    assert set(found) == {(one.name, 8) for one in FIRST if one.missing(torch.device("cpu")) is None}
    for (name, _), one in found.items():
        assert one["correct"] and one["error"] <= CONTESTANTS[name].tolerance
        assert one["median_ms"] == one["share_of_gather_rate"] == NOT_MEASURED and one["num_inputs"] >= 2
    assert len(graph["spmm_shuffled"]) == 1
    assert {row["section"] for row in record["sweep"]} >= {"csr", "dense"}
    assert all(row["correct"] and row["median_ms"] == NOT_MEASURED for row in record["sweep"])
    assert {} in [row["changed"] for row in record["sweep"]] and any(row["changed"] for row in record["sweep"])


@pytest.mark.sample(0)
def test_a_toy_run_trains(toy):
    record = read(toy[0], "epochs")
    assert "No GPU has measured" in record["run"]["tuning"]  # epochs used the file that products wrote
    graph = record["graphs"]["toy"]
    epochs = {(one["preset"], one["dropout"]): one for one in graph["epoch"]}
    assert set(epochs) >= {(preset, p) for preset in ("naive", *OURS) for p in (0.0, 0.5)} - {
        (one, 0.5) for one in LATER
    }
    assert all(epochs[preset, 0.0]["loss_error"] < 1e-4 for preset in ("naive", *OURS))
    assert epochs["hetu", 0.5]["loss_error"] < 1e-4 and epochs["naive", 0.5]["loss_error"] is None
    assert epochs["full", 0.5]["losses"] != epochs["full", 0.0]["losses"]
    assert epochs["full, A H0 on the host", 0.0]["settings"]["offload"] == "always"
    assert epochs["naive", 0.0]["losses"][-1] < epochs["naive", 0.0]["losses"][0]
    caches = [epochs[preset, 0.0]["settings"]["cache_aggregation"] for preset in ("full", "hetu")]
    assert caches == [True, False]
    (table, with_dropout) = graph["launches"]
    assert table["preset"] == "full" and table["busy_ms"] == NOT_MEASURED and with_dropout["dropout"] == 0.5
    assert all(one["launches"] > 0 for one in table["kernels"])
    assert [option["world_size"] for option in record["plan"]["toy"]] == [1, 2, 4, 8]


@pytest.mark.sample(0)
def test_a_toy_run_measures_models_and_ranks(toy):
    """Every method has a row; a job ends whose rank raises or is killed, and its losses do not depend on its ranks."""
    models, ranks = read(toy[0], "models")["models"], read(toy[0], "ranks")
    assert {name: [row["method"] for row in rows] for name, rows in models.items()} == {
        "GAT": ["default"],
        "sampled GraphSAGE": ["ours"],
    }
    assert [(check["what"], check["passed"]) for check in ranks["checks"]] == [(f"one {way}", True) for way in WAYS]
    losses = [row["last_loss"] for row in ranks["ranks"]["tiny"]]
    assert [row["ranks"] for row in ranks["ranks"]["tiny"]] == [1, 1, 2, 2] and max(losses) < 1.001 * min(losses)
    assert "## Epochs by number of ranks: tiny" in (toy[0] / "ranks.md").read_text()


@pytest.mark.sample(0)
def test_without_hydra_the_epochs_say_so(bare, tmp_path):
    """The record and the page give the reason in one line."""
    env = {**bare, "TRITON_INTERPRET": "1"}
    command = [*COMMAND, "--toy", "--part", "epochs", "--out", "found"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    record = read(tmp_path / "found", "epochs")
    reasons = {entry["item"]: entry["reason"] for entry in record["items"] if entry["state"] == "missing"}
    why = "hydra-core is not installed: pip install hydra-core"
    assert reasons == {"epoch": why, "reproduce and plan": why} and record["finished"]
    assert f"- missing: {why} (2: epoch; reproduce and plan)" in (tmp_path / "found/epochs.md").read_text()


@pytest.mark.parametrize("name", PARTS)
def test_every_item_of_a_part_has_a_job_and_time(tmp_path, name):
    """The items are those of a machine with a GPU, in order; groups run one after another in the time of their part."""
    record, budget = Record(tmp_path, name, measured=True), Budget(60 * MINUTES[name])
    part = Part(Runner(record, budget, print), tmp_path, False, list(LOOKALIKES), None)
    found = list(PARTS[name](part))
    items = [item for group in found for item in group]
    assert all(0 < item.seconds <= budget.seconds and find_spec(item.module) for item in items)
    assert all(json.dumps(asdict(item)) for item in items)
    graphs = [item.name for item in items if item.name in LOOKALIKES]
    if name == "checks":
        assert [item.name for item in found[0]] == ["kernel_tests"]
    elif name == "products":
        assert graphs == list(LOOKALIKES) and [found[0][0].name, found[-1][0].name] == ["rates", "hits"]
        assert len(found[1]) == min(part.parallel, len(found[1])) and found[1][0].name == "compile"
    elif name in ("models", "ranks"):
        assert [item.name for item in items] == [name]
    else:
        assert graphs == [graph for graph in LOOKALIKES for _ in range(2)] and found[-1][0].name == "whole"


@pytest.mark.sample(4)
@pytest.mark.parametrize("stop", ["kill", "terminate"])
def test_what_was_found_outlives_the_run(tmp_path, stop):
    """The test stops the process after the first rate, while the process measures others."""
    env = {**bare_environment(tmp_path), "TRITON_INTERPRET": "1"}
    command = [*COMMAND, "--toy", "--part", "products", "--out", "found"]
    process = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL)
    found, page = tmp_path / "found", tmp_path / "found/products.md"
    begin = time.monotonic()
    while not (page.exists() and "## Rates" in page.read_text() and read(found, "products")["items"]):
        assert process.poll() is None and time.monotonic() - begin < 150
        time.sleep(0.05)
    getattr(process, stop)()
    process.wait(timeout=20)
    record = read(found, "products")
    assert not record["finished"] and record["rates"] and record["items"]
    assert "## Rates" in page.read_text() and not (found / "checks.json").exists()


def test_the_plan_is_asked_and_read(tmp_path):
    """Each world size has its fastest option that fits the memory, and the configuration accepts the plan's command."""
    options = [
        {"world_size": size, "epoch_time_ms": ms, "prediction": {"peak_tensor_bytes": peak, "memory_bytes": 10}}
        for size, ms, peak in ((1, 8.0, 5), (2, 4.0, 5), (2, 3.0, 50), (2, 5.0, 5))
    ]
    (tmp_path / "plan.json").write_text(json.dumps(options))
    assert planned(tmp_path / "plan.json") == [
        {"world_size": 1, "predicted_epoch": "8 ms"},
        {"world_size": 2, "predicted_epoch": "4 ms"},
    ]
    words = plan_command(LOOKALIKES["reddit-like"], 1.0, tmp_path)
    assert {"num_nodes=232965", "num_edges=114615892", "hardware=h200x8", "experiment=full"} <= set(words)
    assert "target=fig8" in reproduce_command("fig8", tmp_path) and "device=cuda" in reproduce_command("fig8", tmp_path)
    plan, runs, graph = load_plan(words[3:])  # every key is known
    assert plan.nproc == [1, 2, 4, 8] and graph.num_nodes == 232_965 and runs


@pytest.mark.parametrize(
    ("arguments", "interpret", "message"),
    [
        (["--toy"], "0", "--toy runs Triton's kernels on the CPU: set TRITON_INTERPRET=1"),
        ([], "1", "TRITON_INTERPRET=1 measures nothing: unset it, or give --toy"),
        (
            ["--toy", "--tuning", "no.yaml"],
            "1",
            "no.yaml cannot be read: [Errno 2] No such file or directory: 'no.yaml'",
        ),
    ],
)
def test_it_refuses_before_anything_begins(monkeypatch, arguments, interpret, message):
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    with pytest.raises(FullGNNError, match=re.escape(message)):
        check_options(parse(arguments))


def test_it_refuses_with_one_line(bare, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    env = {**bare, "TRITON_INTERPRET": "0"}
    done = subprocess.run(COMMAND, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    message = "error: no GPU is visible here, and there is nothing to measure without one"
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", message)
    assert [path.name for path in tmp_path.iterdir()] == ["bare"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["checks", "products", "epochs", "models", "ranks"]),
        (["--part", "ranks", "--part", "checks"], ["checks", "ranks"]),
        (["--part", "all", "products"], ["checks", "products", "epochs", "models", "ranks"]),
    ],
)
def test_parts_come_in_their_order(arguments, parts):
    assert parse(arguments).part == parts
    assert max(MINUTES.values()) < 10


def test_nothing_that_may_be_absent_is_imported():
    """The list includes numba, which only kernels for CPUs need."""
    rooms = {path.stem for path in (ROOT / "fullgnn" / "bench" / "gpu").glob("*.py")} - {"__init__", *TRAINING}
    program = "\n".join(
        [
            "import sys",
            f"absent = {(*ABSENT, 'numba', 'torch_geometric')!r}",
            "sys.modules.update(dict.fromkeys(absent))",
            *(f"import fullgnn.bench.gpu.{room}" for room in sorted(rooms)),
        ]
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
