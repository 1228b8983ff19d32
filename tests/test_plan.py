"""``python -m fullgnn.plan`` and the dry run of ``python -m fullgnn.train``."""

import json
import logging
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fullgnn import plan
from fullgnn.config import RuntimeConfig
from fullgnn.costs import hardware
from fullgnn.costs.hardware import load_hardware, write_hardware
from fullgnn.errors import ConfigError
from fullgnn.plan import load_plan, run
from fullgnn.storage.record import read_record
from tests.cases import config
from tests.commands import OWN, run_command

pytestmark = pytest.mark.sample(2)  # its tests take seconds, or compile kernels

NUMBERS = ["num_nodes=1000000", "num_edges=20000000", "num_features=100", "num_classes=40", "hardware=h200x8"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of today is not read from what another version has kept."""
    monkeypatch.setattr(plan, "DEFAULT_CACHE", str(tmp_path / "cache"))


def planned(tmp_path: Path, *arguments: str) -> tuple[str, list[dict]]:
    run([*arguments, f"out={tmp_path}"])
    return (tmp_path / "plan.md").read_text(), json.loads((tmp_path / "plan.json").read_text())


def test_a_graph_of_numbers(tmp_path: Path) -> None:
    text, options = planned(tmp_path, *NUMBERS, "nproc=1,2,4", "exchanges=auto,broadcast", "model.hidden_channels=64")
    assert "Planned, not measured" in text and f"Command: python -m fullgnn.plan {NUMBERS[0]} " in text
    layouts = [(option["world_size"], option["replication"], option["exchange"]) for option in options]
    larger = [(p, r, exchange) for p, r in ((2, 1), (4, 1), (4, 2)) for exchange in ("auto", "broadcast")]
    assert sorted(layouts) == sorted([(1, 1, "auto"), *larger])
    times = [option["epoch_time_ms"] for option in options]
    (chosen,) = [line for line in text.splitlines() if line.endswith("best |")]
    assert f"{min(times):.2f}" in chosen
    for option in options:
        prediction = option["prediction"]
        assert option["epoch_time_ms"] == pytest.approx(sum(prediction["time_ms"].values()))
        assert set(prediction["time_ms"]) == {"spmm", "comm", "dense", "other"}
        assert prediction["memory_bytes"] == load_hardware("h200x8", config().runtime).memory_bytes


def test_a_value_of_another_type_is_one_line() -> None:
    for argument, takes in (("symmetric=5x", "true or false"), ("num_nodes=5x", "an integer or null")):
        with pytest.raises(ConfigError) as caught:
            load_plan([argument])
        assert str(caught.value) == f"{argument.partition('=')[0]} does not fit: it takes {takes}"


def test_orders_and_kernels_of_a_dataset(tmp_path: Path) -> None:
    varied = ["nproc=2", "orders=none,rcm", "kernels=torch,csr", "exchanges=auto"]
    _text, options = planned(tmp_path, "dataset=karate", "hardware=h200x8", *varied)
    pairs = {(option["order"], option["kernel"]) for option in options}
    assert pairs == {("none", "torch"), ("none", "csr"), ("rcm", "torch"), ("rcm", "csr")}


KARATE = ["dataset=karate", "hardware=h200x8", "nproc=1,2,4"]


def test_a_plan_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = planned(tmp_path, *KARATE)

    def not_again(node: dict) -> None:
        raise AssertionError("the graph is loaded again")

    monkeypatch.setattr(plan, "load_dataset", not_again)
    assert planned(tmp_path, *KARATE) == first
    for changed in ("model.hidden_channels=3", "reorder=rcm", "self_loops=false", "dataset.num_val=4"):
        with pytest.raises(AssertionError, match="loaded again"):
            planned(tmp_path, *KARATE, changed)


@pytest.mark.sample(4)
def test_lines_are_short_and_equal_options_share_one(tmp_path: Path) -> None:
    text, options = planned(tmp_path, *NUMBERS, "nproc=1,2,4,8", "kernels=auto,torch", "scheme.fetch=stages")
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert max(map(len, table)) <= 120 and max(len(line) for line in text.splitlines()[:6]) <= 120
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[2:]]
    shown = {
        (p, int(f"1 {scheme}".split("=")[-1].split()[0]), exchange, kernel)
        for p, scheme, exchanges, kernel, *_ in cells
        for exchange in ("auto,broadcast" if exchanges == "any" else exchanges).split(",")
    }
    keys = "world_size", "replication", "exchange", "kernel"
    assert shown == {(str(option[keys[0]]), *(option[key] for key in keys[1:])) for option in options}
    assert len(cells) < len(options)


def test_the_command_of_the_best_trains(tmp_path: Path) -> None:
    text, _options = planned(
        tmp_path, *KARATE, "orders=rcm", "exchanges=broadcast", "model.hidden_channels=8", "seed=3"
    )
    (line,) = [line for line in text.splitlines() if line.startswith("Best: ")]
    command = line.removeprefix("Best: ")
    assert command.startswith("python -m fullgnn.train dataset=karate model.hidden_channels=8 seed=3 scheme=1")
    assert "reorder=rcm" in command and "scheme.exchange=broadcast" in command and "nproc=1,2" not in command
    done = run_command(
        [sys.executable, *command.split()[1:]], "train.epochs=1", f"run_dir={tmp_path}/run", cwd=tmp_path
    )
    assert done.status == 0, done.output


def test_a_profile_of_a_busy_machine_warns_until_it_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = load_hardware("h200x8", config().runtime)
    busy, measured = replace(quiet, source="measured today, while it was busy", ranks_per_node=1), []

    def launch(arguments: list[str], nproc: int, runtime: RuntimeConfig) -> None:
        measured.append(nproc)
        write_hardware(busy if len(measured) == 1 else replace(busy, source="measured today"), Path(arguments[2]))

    monkeypatch.setattr(hardware, "launch_workers", launch)
    monkeypatch.setattr(logging.getLogger("fullgnn"), "propagate", True)  # a command of another test may have set it
    auto = ["dataset=karate", "nproc=1", f"runtime.cache_dir={tmp_path}/profiles"]
    warnings = []
    for arguments in ([], [], ["hardware.remeasure=true"], []):
        caplog.clear()
        planned(tmp_path, *auto, *arguments)
        warnings.append("hardware.remeasure=true" in caplog.text)
    assert warnings == [True, True, False, False] and measured == [1, 1]


@pytest.mark.sample(4)
def test_nothing_fits_names_the_smallest_that_does(tmp_path: Path) -> None:
    huge = ["num_nodes=111059956", "num_edges=3200000000", "num_features=128", "num_classes=172", "hardware=h200x8"]
    common = [*huge, "model.hidden_channels=256", "exchanges=auto", "replications=1"]
    text, options = planned(tmp_path, *common, "nproc=1")
    assert not fits(options[0]) and "Nothing fits" in text
    smallest = int(text.partition("runtime.nproc=")[2].split()[0])
    _, options = planned(tmp_path, *common, f"nproc={smallest // 2},{smallest}")
    assert [fits(option) for option in options] == [False, True]


def fits(option: dict) -> bool:
    return option["prediction"]["peak_tensor_bytes"] <= option["prediction"]["memory_bytes"]


@pytest.mark.timeout(300)  # it takes 10 seconds of a core
def test_the_scaling_page_has_every_number_of_ranks(tmp_path: Path, every_case: bool) -> None:
    if not every_case:
        pytest.skip("with --all")
    text, options = planned(tmp_path, *NUMBERS, "scaling=true")
    assert {option["world_size"] for option in options} == {1 << k for k in range(11)}
    assert {option["replication"] for option in options} == {1, 2, 4, 8, 16}
    assert all(f"1.5D r={r} is ahead of 1D" in text for r in (2, 4, 8, 16))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["num_nodes=10"], "num_edges is missing"),
        ([*NUMBERS, "dataset=karate"], "leave out one of them"),
        ([*NUMBERS, "orders=rcm"], "orders need a graph"),
        (["nproc=0"], "nproc=0 is out of range"),
        (["nprocs=1"], "nprocs"),
        (["exchanges=fast"], "exchanges=fast is not known"),
        ([*NUMBERS, "num_train=2000000"], "more than the 1000000 nodes"),
        (["model.hidden=3"], "hidden"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=None) as caught:
        load_plan(arguments)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_unknown_hardware_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fullgnn.plan"]
    done = run_command(command, "hardware=abacus", "dataset=karate", f"out={tmp_path}", cwd=tmp_path)
    assert done.status == 1 and len(done.errors) == 1 and "Traceback" not in done.output
    assert "hardware=abacus is not known" in done.errors[0]


def test_a_dry_run_of_a_large_job(tmp_path: Path) -> None:
    dry = ["runtime.dry_run=true", "world_size=12", "rank=7"]
    done = run_command(OWN, "dataset=karate", *dry, f"run_dir={tmp_path}", cwd=tmp_path)
    assert done.status == 0, done.output
    assert [line for line in done.output.splitlines() if "epoch 3/3" in line] == re.findall(
        r"(?m)^rank 7 of 12, simulated: epoch 3/3  [\d.]+ ms/epoch$", done.output
    )
    assert "\nrank 7 of 12, simulated: karate, 34 nodes" in done.output
    assert "loss" not in done.output and "accuracy" not in done.output
    record = read_record(tmp_path)
    assert (record.world_size, record.dry_run_rank, len(record.ranks)) == (12, 7, 1)
    assert record.final_loss is None and record.test_accuracy is None
    assert record.comm_bytes_per_epoch["exchange"] > 0 and record.peak_tensor_bytes > 0


@pytest.mark.sample(4)
def test_auto_says_what_it_chose_and_why(tmp_path: Path) -> None:
    arguments = ["dataset=karate", "scheme=auto", "scheme.hardware=h200x8", "train.epochs=1", f"run_dir={tmp_path}"]
    done = run_command(OWN, *arguments, "runtime.nproc=4", cwd=tmp_path)
    times = r"predicted [\d.]+ ms an epoch; scheme=1(d|\.5d scheme\.replication=2) [\d.]+ ms an epoch"
    assert done.status == 0 and re.search(rf"scheme=auto: scheme=1(d|\.5d scheme\.replication=2), {times}", done.output)


@pytest.mark.sample(4)
def test_auto_is_recorded_with_what_was_expected(tmp_path: Path) -> None:
    arguments = ["dataset=karate", "scheme=auto", "scheme.hardware=h200x8", "runtime.nproc=2", "train.epochs=3"]
    done = run_command(OWN, *arguments, f"run_dir={tmp_path}", cwd=tmp_path)
    assert done.status == 0 and "scheme=auto: scheme=1d, the only choice of 2 ranks" in done.output, done.output
    record = read_record(tmp_path)
    assert record.scheme == "1d" and record.predicted is not None
    assert record.predicted["hardware"] == "h200x8"
    measured = {name: count for name, count in record.comm_bytes_per_epoch.items() if count}
    assert record.predicted["comm_bytes_per_epoch"] == measured
    assert record.predicted["peak_tensor_bytes"] == pytest.approx(record.peak_tensor_bytes, rel=0.5)
    assert "predicted" in done.output
