"""The report's page: every section has its plots and their numbers, also where files are missing or damaged."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.distributed import World
from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.report.__main__ import parse, report
from fullgnn.report.runs import read_runs
from fullgnn.storage.record import RunRecord, read_record
from fullgnn.train import run_on
from tests.cases import config
from tests.commands import run_command
from tests.report.folders import COMMAND, EPOCHS, PREDICTED, Page, numbers, page_of, record, structure, sweep, write_run

pytest.importorskip("matplotlib")

SECTIONS = [
    "Summary",
    "Loss and accuracy",
    "Epoch time",
    "Time by phase",
    "Bytes by collective",
    "Adjacency",
    "Non-zeros per block",
    "Tile density",
    "Memory",
    "Predicted and measured",
    "Configuration",
]


def trained(world: World, overrides: list[str]) -> RunRecord:
    return run_on(world, config(*overrides))


@pytest.fixture(scope="module")
def two_runs(ranks, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Page, Path]:
    """Two real runs that differ in their order and seed, on one page."""
    folder = tmp_path_factory.mktemp("report")
    runs = [folder / "plain", folder / "ordered"]
    common = ["dataset=karate", "train.epochs=20", "train.eval_every=5", "scheme=1d", "train.statistics=true"]
    ranks(2)(trained, [*common, f"run_dir={runs[0]}"])
    ranks(2)(trained, [*common, "reorder=rcm", "seed=1", f"run_dir={runs[1]}"])
    return runs, page_of(*runs, out=folder / "page"), folder / "page"


def test_where_a_run_writes_is_no_difference(undrawn, tmp_path: Path) -> None:
    for name, said in (("a", "true"), ("b", "false")):
        write_run(tmp_path / name, record(), f"run_dir: {name}\noverwrite: {said}\n")
    page = page_of(tmp_path)
    assert "differ in nothing but run_dir" in page.sections["Summary"].text


def test_every_section_is_filled(two_runs) -> None:
    _, page, _ = two_runs
    assert list(page.sections) == ["", *SECTIONS]
    counts = {name: len(page.sections[name].images) // 2 for name in SECTIONS}
    assert counts == dict(zip(SECTIONS, (0, 4, 1, 2, 2, 3, 2, 1, 2, 0, 0)))
    for name in set(SECTIONS) - {"Predicted and measured", "Configuration"}:
        assert page.sections[name].tables, name
    assert "Not recorded" not in "".join(section.text for section in page.sections.values())
    predicted = page.sections["Predicted and measured"].text
    assert "No prediction was made for plain and ordered: scheme=auto asks the planner for one." in predicted


def test_nothing_is_fetched_and_every_picture_is_a_file_too(two_runs) -> None:
    _, page, folder = two_runs
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "iframe", "object", "embed", "source"}
    targets = [value for _, attributes in page.elements for key, value in attributes.items() if key in ("src", "href")]
    assert all(target.startswith(("data:image/png;base64,", "#")) for target in targets)
    text = (folder / "report.html").read_text()
    assert "url(" not in text and "@import" not in text
    images = [image for section in page.sections.values() for image in section.images]
    assert [image["class"] for image in images] == ["light", "dark"] * (len(images) // 2)
    assert all(len(image["alt"]) > 30 for image in images)
    inlined = sorted(base64.b64decode(image["src"].partition(",")[2]) for image in images)
    assert inlined == sorted(path.read_bytes() for path in (folder / "report_figures").iterdir())
    assert len(set(inlined)) == len(inlined)
    links = [attributes["href"][1:] for tag, attributes in page.elements if tag == "a"]
    assert links == [attributes["id"] for tag, attributes in page.elements if tag == "section"]


def test_the_tables_have_the_numbers_of_the_files(two_runs) -> None:
    runs, page, _ = two_runs
    records = [read_record(run) for run in runs]

    by_epoch = page.sections["Loss and accuracy"].tables["Loss and accuracy by epoch"]
    losses = [by_epoch[0].index(f"{run.name}: training loss") for run in runs]
    accuracies = [by_epoch[0].index(f"{run.name}: test accuracy") for run in runs]
    for run, loss, accuracy in zip(runs, losses, accuracies):
        lines = [json.loads(line) for line in (run / "epochs.jsonl").read_text().splitlines()]
        assert [float(row[loss]) for row in by_epoch[1:]] == pytest.approx([line["loss"] for line in lines], rel=1e-5)
        shown = [f"{100 * line['test_accuracy']:.2f} %" if "test_accuracy" in line else "–" for line in lines]
        assert [row[accuracy] for row in by_epoch[1:]] == shown and shown.count("–") == 16

    times = numbers(page.sections["Time by phase"], "Milliseconds of an epoch by rank")
    received = numbers(page.sections["Bytes by collective"], "Bytes received in an epoch by rank")
    order = page.sections["Bytes by collective"].tables["Bytes received in an epoch by rank"][0][2:]
    for run, told in zip(runs, records):
        for k, rank in enumerate(told.ranks):
            phases = ("epoch", "spmm", "comm", "dense", "other")
            assert times[f"{run.name}: rank {k}"] == [f"{rank['time_ms'][phase]:.3f}" for phase in phases]
            bytes_received = [int(cell.replace(",", "")) for cell in received[f"{run.name}: rank {k}"]]
            assert bytes_received[1:] == [rank["bytes_received"][name] for name in order]
            assert bytes_received[0] == sum(rank["bytes_received"].values())

    for kind, key in (("the process", "peak_memory_bytes"), ("tensors", "peak_tensor_bytes")):
        peaks = numbers(page.sections["Memory"], f"Bytes, peak of {kind}")
        assert peaks == {f"rank {k}": [f"{told.ranks[k][key]:,}" for told in records] for k in range(2)}
    tiles = page.sections["Tile density"].tables["Share of the non-zeros by the density of their tile, in per cent"]
    assert tiles[1] == ["plain", *(f"{100 * share:.2f} %" for share in records[0].tile_density.values())]

    for run in runs:
        with np.load(run / "structure.npz") as arrays:
            for when, prefix in (("before", ""), ("after", f"{run.name}: ")):  # runs share the map of their dataset
                cells = numbers(page.sections["Adjacency"], f"{prefix}Non-zeros by cell {when} ordering")
                shown = np.array([[int(cell) for cell in row] for row in cells.values()])
                assert shown.shape == (34, 34) and np.array_equal(shown, arrays[f"cell_nnz_{when}"])
            blocks = numbers(page.sections["Non-zeros per block"], "Non-zeros by block")  # RCM orders inside the parts
            assert [[int(cell) for cell in row] for row in blocks.values()] == arrays["block_nnz"].tolist()


def test_what_differs_comes_first(two_runs) -> None:
    _, page, _ = two_runs
    rows = page.sections["Summary"].tables["The runs side by side"]
    assert rows[0] == ["", "plain", "ordered"]
    assert rows[1] == ["What differs in the configuration"]
    until = rows.index(["Set-up"])
    assert rows[2:until] == [["seed", "0", "1"], ["reorder.name", "none", "rcm"]]
    assert ["epochs", "20", "20"] in rows[rows.index(["Result"]) :]
    configuration = page.sections["Configuration"].text
    assert configuration.count("hidden_channels:") == 2 and "name: rcm" in configuration


def test_the_best_is_bold_only_among_runs_of_one_dataset(undrawn, tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", record())
    second = write_run(tmp_path / "b", record(final_loss=0.125, test_accuracy=0.5, epoch_time_ms={"median": 11.5}))
    page = page_of(first, second, out=tmp_path / "page")
    assert page.bold == ["0.125", "75.00 %"]  # equal epoch times: neither is bold
    assert "differ in nothing but run_dir" in page.sections["Summary"].text
    other = write_run(tmp_path / "c", record(dataset="digits", final_loss=0.0))
    assert page_of(first, other, out=tmp_path / "page").bold == []


def test_one_run_has_its_page_in_its_folder(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", record(), arrays=structure())
    (run / "report_figures").mkdir()
    (run / "report_figures" / "of_an_earlier_report.png").touch()
    page = page_of(run)
    assert (run / "report.html").exists()
    images = [image for section in page.sections.values() for image in section.images]
    assert len(list((run / "report_figures").iterdir())) == len(images) == 2 * 12  # validation has no nodes
    header, *rows = page.sections["Loss and accuracy"].tables["Loss and accuracy by epoch"]
    assert header == ["epoch", "training loss", "train accuracy", "test accuracy"]
    assert rows[1] == ["2", "0.5", "50.00 %", "25.00 %"] and len(rows) == EPOCHS
    peaks = numbers(page.sections["Memory"], "Bytes, peak of tensors")
    assert peaks == {"rank 0": ["1,000,000"], "rank 1": ["2,000,000"]}
    assert page.sections["Configuration"].text.strip().startswith("seed: 0")


def scored(metric: str, *values: float | None) -> dict[str, Any]:
    """A record whose metrics are ``values`` on training, validation and test nodes, and on test nodes at the end."""
    accuracies = dict.fromkeys(f"{name}_accuracy" for name in ("train", "val", "test", "final_test"))
    names = (f"{name}_{metric}" for name in ("train", "val", "test", "final_test"))
    return record(**accuracies, metrics=dict(zip(names, values)))


def test_other_metrics_take_the_place_of_the_accuracy(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", scored("micro_f1", 0.5, None, 0.81234567, 0.75), metric="micro_f1")
    page = page_of(first)
    assert "Loss and accuracy" not in page.sections and "Metrics are those" in page.sections["Loss and metrics"].text
    header, *rows = page.sections["Loss and metrics"].tables["Loss and metrics by epoch"]
    assert header == ["epoch", "training loss", "train micro_f1", "test micro_f1"]
    assert rows[1] == ["2", "0.5", "0.5", "0.25"] and rows[0] == ["1", "1", "–", "–"]
    figures = {path.name for path in (first / "report_figures").glob("*_micro_f1.png")}
    assert figures == {"train_micro_f1.png", "test_micro_f1.png"}
    results = numbers(page.sections["Summary"], "Result")
    assert list(results.items())[-4:] == [
        ("train micro_f1, best epoch", ["0.5"]),
        ("validation micro_f1, best epoch", ["–"]),
        ("test micro_f1, best epoch", ["0.812346"]),
        ("test micro_f1, last epoch", ["0.75"]),
    ]
    assert not any("accuracy" in name for name in results)
    assert page.sections["Loss and metrics"].images[-1]["alt"] == "Test micro_f1 by epoch: a from 0.25 to 0.5."


def test_accuracies_among_the_metrics_change_nothing(undrawn, tmp_path: Path) -> None:
    """The record of a classification has its accuracies twice: as fields, and in ``metrics``."""
    told = record(train_accuracy=0.5, val_accuracy=None, final_test_accuracy=0.25)
    run = write_run(tmp_path / "run", told)
    before = report([str(run)]).read_text()
    told["metrics"] = {name: told[name] for name in told if name.endswith("_accuracy")}
    (run / "record.json").write_text(json.dumps(told))
    assert report([str(run)]).read_text() == before


def test_runs_of_several_tasks_share_a_page(undrawn, tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", record(), metric="accuracy")
    second = write_run(tmp_path / "b", scored("roc_auc", 0.5, 0.5, 0.25), metric="roc_auc")
    third = write_run(tmp_path / "c", scored("roc_auc", 0.5, 0.75, 0.25), metric="roc_auc")
    page = page_of(first, second, third, out=tmp_path / "page")
    header, *rows = page.sections["Loss and metrics"].tables["Loss and metrics by epoch"]
    scores = [
        f"{names}: {split} {score}"
        for names, score in (("a", "accuracy"), ("b and c", "roc_auc"))
        for split in ("train", "test")
    ]
    assert header == ["epoch", "all runs: training loss", *scores]
    assert rows[1] == ["2", "0.5", "50.00 %", "25.00 %", "0.5", "0.25"]
    results = numbers(page.sections["Summary"], "The runs side by side")
    assert results["test accuracy, best epoch"] == ["75.00 %", "–", "–"]
    assert results["validation roc_auc, best epoch"] == ["–", "0.5", "0.75"]
    assert page.bold == ["0.75"]  # a higher area is better


def test_a_lower_error_is_better_and_a_name_may_be_anything(undrawn, tmp_path: Path) -> None:
    for name, value in (("a", 2.5), ("b", 12.0)):
        write_run(tmp_path / name, scored("rmse") | {"metrics": {"val_rmse": value, "a/<b>": value}})
    page = page_of(tmp_path)
    assert page.bold == ["2.5"]
    results = numbers(page.sections["Summary"], "The runs side by side")
    assert results["a/<b>"] == results["validation rmse, best epoch"] == ["2.5", "12"]


def test_a_plot_of_any_metric_is_a_file_of_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", record(), metric="../hits@10")
    page_of(run)
    assert (run / "report_figures" / "test_.._hits@10.png").exists()


def test_one_rank_receives_nothing(undrawn, tmp_path: Path) -> None:
    rank = record()["ranks"][0] | {"bytes_received": {}}
    section = page_of(write_run(tmp_path / "run", record(ranks=[rank]))).sections["Bytes by collective"]
    assert "Nothing arrived: there is one rank." in section.text and section.images == []
    assert section.tables["Bytes received in an epoch by rank"] == [["", "all"], ["rank 0", "0"]]


def test_predicted_stands_beside_measured(undrawn, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", record(predicted=PREDICTED))
    section = page_of(run).sections["Predicted and measured"]
    assert len(section.images) == 2
    assert numbers(section, "Predicted for a profile, and measured") == {
        "epoch, ms": ["10.000", "11.500", "1.150"],
        "SpMM, ms": ["4.000", "5.000", "1.250"],
        "communication, ms": ["3.000", "3.000", "1.000"],
        "dense, ms": ["2.000", "2.250", "1.125"],
        "other, ms": ["1.000", "1.250", "1.250"],
        "all_reduce, bytes": ["0", "80", "–"],
        "broadcast, bytes": ["7", "0", "0.000"],
        "exchange, bytes": ["1,800", "1,800", "1.000"],
        "peak of tensors, bytes": ["2,500,000", "2,000,000", "0.800"],
    }
    untimed = PREDICTED | {"epoch_time_ms": None, "time_ms": None}
    section = page_of(write_run(tmp_path / "untimed", record(predicted=untimed))).sections["Predicted and measured"]
    assert section.images == []
    assert numbers(section, "Predicted for a profile, and measured")["SpMM, ms"] == ["–", "5.000", "–"]


@pytest.mark.filterwarnings("error")
def test_whatever_the_files_say_is_text(tmp_path: Path) -> None:
    evil = '<script>alert(1)</script> & "quoted" $x_1$'
    text = f"dataset:\n  name: '{evil}'\nmodel: {{name: gcn}}\n"
    told = record(dataset=evil, tile_density={evil: 1.0})
    run = write_run(tmp_path / "a <b>bold<b> & $name$ 软件", told, text, structure())
    page = page_of(run, write_run(tmp_path / "other", record()), out=tmp_path / "page")
    assert not {tag for tag, _ in page.elements} & {"script", "b"}
    told = "".join(section.text for section in page.sections.values())
    assert told.count(evil) >= 4 and "a <b>bold<b> & $name$ 软件" in told
    assert any(evil in image["alt"] for image in page.sections["Tile density"].images)


def test_a_run_that_has_not_finished_is_shown_as_far_as_it_came(tmp_path: Path) -> None:
    unfinished = write_run(tmp_path / "killed", None, arrays=structure())
    with open(unfinished / "epochs.jsonl", "a") as file:
        file.write('{"epoch": 5, "lo')
    page = page_of(unfinished, write_run(tmp_path / "whole", record()), out=tmp_path / "page")
    assert "It has not finished: there is no record.json, and the curves end with epoch 4." in page.sections[""].text
    assert "A line of epochs.jsonl is damaged: what follows epoch 4 is left out." in page.sections[""].text
    header, *_ = page.sections["Loss and accuracy"].tables["Loss and accuracy by epoch"]
    assert "killed and whole: training loss" in header
    missing = {
        "Summary": "record.json",
        "Time by phase": "what each rank spent",
        "Bytes by collective": "what each rank received",
        "Memory": "the memory of each rank",
        "Tile density": "tile densities",
    }
    for name, what in missing.items():
        assert f"Not recorded: {what} of killed." in page.sections[name].text
    assert "Not recorded: structure.npz of whole." in page.sections["Adjacency"].text
    assert "killed: Not recorded: the run has not finished." in page.sections["Predicted and measured"].text


def test_the_curves_of_a_run_alone_end_where_it_was_killed(undrawn, tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "killed", None))
    assert "the curves end with epoch 4" in page.sections[""].text


def test_a_record_of_an_earlier_version_is_shown(tmp_path: Path) -> None:
    old = {key: value for key, value in record().items() if key in ("dataset", "epoch_time_ms", "final_loss")}
    page = page_of(write_run(tmp_path / "old", old))
    results = numbers(page.sections["Summary"], "Result")
    assert (results["epoch, median"], results["SpMM"]) == (["11.500 ms"], ["–"])
    for name in ("Time by phase", "Bytes by collective", "Adjacency", "Non-zeros per block", "Tile density", "Memory"):
        assert "Not recorded: " in page.sections[name].text and page.sections[name].images == []
    assert "No prediction was made for this run" in page.sections["Predicted and measured"].text


def test_a_sweep_stands_for_its_finished_jobs(undrawn, tmp_path: Path) -> None:
    folder = sweep(tmp_path / "sweep", ["ok"] * 11 + ["failed", "ok"])
    page = page_of(folder)
    assert (folder / "report.html").exists()
    names = [f"seed={job}" for job in range(13) if job != 11]
    assert page.sections["Summary"].tables["The runs side by side"][0] == ["", *names]
    assert "job 11 (seed=11) failed." in page.sections["Failed jobs"].text
    runs, search = read_runs([folder, folder / "3"])  # folder/3 is given twice
    assert [run.name for run in runs] == names and len(search.failures) == 1


def test_runs_have_names_that_tell_them_apart(tmp_path: Path) -> None:
    folders = ("a/x/run", "b/x/run", "b/y/run", "c")
    runs, _ = read_runs([write_run(tmp_path / folder, record()) for folder in folders])
    assert [run.name for run in runs] == [str(tmp_path / "a/x/run"), str(tmp_path / "b/x/run"), "y/run", "c"]


def damaged(folder: Path, name: str, content: str) -> Path:
    write_run(folder, record())
    (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda at: at / "nowhere", "nowhere is no folder: give the run_dir of a run or of a sweep"),
        (lambda at: at, r"holds no run \(no record.json, epochs.jsonl or sweep.csv in or below it\): give the"),
        (lambda at: write_run(at / "some" / "run", {"op": "spmm"}).parent, "no run in .*/some can be read: give the"),
        (lambda at: write_run(at / "run", {"op": "spmm"}), "record.json is not of a training run: give the run_dir"),
        (lambda at: damaged(at / "run", "record.json", '{"da'), "record.json cannot be read: leave this run out"),
        (lambda at: damaged(at / "run", "config.yaml", "a: [1"), "config.yaml cannot be read as YAML"),
        (lambda at: damaged(at / "run", "structure.npz", "PK"), "structure.npz cannot be read: remove it"),
        (
            lambda at: sweep(at / "sweep", ["failed"]),
            "no job of the sweep .* has finished .job 0 failed: out of memory.: give the",
        ),
        (lambda at: damaged(at / "run", "sweep.csv", "nonsense\n1"), "sweep.csv cannot be read: the finished"),
    ],
)
def test_a_wrong_folder_is_named(tmp_path: Path, make, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        report([str(make(tmp_path))])
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("report*"))


def test_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=0.1").mkdir()
    assert parse(["runs/a", "out=there", "lr=0.1"]) == (["runs/a", "lr=0.1"], "there")
    for arguments, message in (
        ([], "no run is named"),
        (["out=x"], "no run is named"),
        (["a", "out="], "out= has no value"),
        (["a", "title=x"], "title=x is not known: give folders of runs and out=FOLDER"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse(arguments)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", record())
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="out=.*file cannot be written .*: choose another folder"):
        report([str(run), f"out={tmp_path / 'file'}"])


def test_without_matplotlib_the_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = write_run(tmp_path / "run", record())
    with pytest.raises(UnsupportedError, match="a report needs the package matplotlib: pip install matplotlib"):
        report([str(run)])
    assert not (run / "report.html").exists()


def test_the_command(tmp_path: Path) -> None:
    """The page of several runs is written under runs/; a user error prints one line."""
    write_run(tmp_path / "a", record())
    write_run(tmp_path / "b", record())
    done = run_command(COMMAND, "a", "b", cwd=tmp_path)
    assert done.status == 0, done.output
    (page,) = (tmp_path / "runs").glob("report_*/report.html")
    assert done.output.strip() == str(page)
    wrong = run_command(COMMAND, "missing", cwd=tmp_path)
    line = "error: missing is no folder: give the run_dir of a run or of a sweep, or a folder that holds some"
    assert (wrong.status, wrong.output.strip()) == (1, line)
    unknown = run_command(COMMAND, "a", "--out", cwd=tmp_path)
    assert unknown.status == 1 and unknown.output.startswith("error: --out is not known")
    helped = run_command(COMMAND, "--help", cwd=tmp_path)
    assert helped.status == 0 and "out=FOLDER" in helped.output


def test_steps_of_sampled_training(tmp_path: Path, undrawn: None) -> None:
    steps = {"sample": 4.0, "gather": 2.0, "pack": 1.0, "wait": 0.5, "forward": 3.0, "backward": 5.0, "update": 1.5}
    counts = {"num_batches": 7, "sampled_edges": 12345.0, "sampled_edges_per_s": None, "input_rows": 999.0}
    counts |= {"fetched_bytes": 3996.0, "hit_rate": 0.75}
    for name, times in (("alone", steps | {"wait": 0.0}), ("ahead", steps)):
        write_run(tmp_path / name, record(sampling={"time_ms": times, **counts}))
    write_run(tmp_path / "full", record())
    folders = (tmp_path / name for name in ("alone", "ahead", "full"))
    section = page_of(*folders, out=tmp_path).sections["Sampled training"]
    cells = numbers(section, "An epoch of sampled training")
    assert cells["sample, ms"] == ["4.000", "4.000"] and cells["load, ms"] == ["–", "–"]
    assert cells["share of these rows that are on the device"] == ["0.750"] * 2
    assert cells["drawn edges of an epoch"] == ["12,345"] * 2 and cells["drawn edges per second"] == ["–"] * 2
    (alt,) = {image["alt"] for image in section.images}
    assert "alone 16.50 ms; ahead 10.00 ms" in alt  # what workers do is not a part of their rank's time
    assert "Not recorded: the steps of sampled training of full." in section.text
