"""The benchmarks that ``gpu_bench`` starts, and its judgement of how a job with a failing rank has ended."""

from pathlib import Path

import pytest

from fullgnn.bench.config import load_bench
from fullgnn.bench.gpu.command import bench_command, rows
from fullgnn.bench.gpu.models import CASES
from fullgnn.bench.gpu.ranks import COUNTS, ENDS_WITHIN_S, GRAPHS, WAYS, drill_command, epoch_keys, over_one, verdict
from tests.cases import config

FAILED = "epoch 2\nthe drill fails at 1000.5\nRuntimeError: the drill has raised this error on the last rank\n"


def test_the_benchmarks_know_every_key(tmp_path: Path) -> None:
    every = [*CASES.values(), *(epoch_keys(graph, count, False) for graph in GRAPHS for count in COUNTS)]
    for keys in every:
        command = bench_command(keys, "cuda", tmp_path / "out")
        cfg = load_bench(*command[3:])
        assert (cfg.device, cfg.out) == ("cuda", str(tmp_path / "out")) and cfg.warmup > 5
    assert load_bench(*epoch_keys("products-mini", 8, False)).nproc == 8


@pytest.mark.parametrize("way", WAYS)
def test_the_model_of_the_drill_is_known(way: str, tmp_path: Path) -> None:
    name, _ = WAYS[way]
    cfg = config(*drill_command(name, 2, "cuda", "gloo", tmp_path)[3:])
    assert cfg.model["_target_"].endswith(name) and cfg.runtime.nproc == 2


@pytest.mark.parametrize(
    ("output", "status", "after_s", "said"),
    [
        (FAILED, 1, 2.0, ""),
        (FAILED, 0, 2.0, "its status is 0"),
        (FAILED, 1, ENDS_WITHIN_S + 1, "it ended after 31 s"),
        (FAILED.replace("this error", "it"), 1, 2.0, "the reason is not in its output"),
        ("", 1, 2.0, "the drill did not take place; the reason is not in its output"),
    ],
)
def test_a_job_has_ended_well_or_not(output: str, status: int, after_s: float, said: str) -> None:
    found = verdict("raises an error", 4, WAYS["raises an error"][1], output, status, 1000.5 + after_s)
    assert found.passed == (not said) and found.said.startswith(said) and found.case.startswith("4 ranks")
    if output:
        assert found.case == f"4 ranks, ended after {after_s:.1f} s with status {status}"


def test_rows_of_a_record_and_their_speed_ups() -> None:
    def one(processes: int, median_ms: float) -> dict:
        times = {"median_ms": median_ms, "p20_ms": 1.0, "p80_ms": 9.0, "times_ms": [1.0, 9.0]}
        return {"method": "full", "processes": processes, "ratio": 1.0, "details": {"last_loss": 0.5, "x": 1}} | times

    missing = [{"method": "PyG", "reason": "it is not installed", "case": {}}]
    found = over_one(rows({"measurements": [one(1, 6.0)], "missing": missing}))
    found = over_one([*found, *rows({"measurements": [one(2, 4.0)], "missing": []})])
    assert [row.get("speed_up") for row in found] == [1.0, None, 1.5]
    assert found[1] == {"method": "PyG", "reason": "it is not installed"} and found[2]["last_loss"] == 0.5
