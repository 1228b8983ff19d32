"""Rounds, budgets, failures and ratios, on methods that cost nothing."""

import time
from typing import Any

import pytest
import torch

from fullgnn.bench import harness
from fullgnn.bench.harness import Measurement, Method, Missing
from fullgnn.distributed import World
from fullgnn.telemetry.timing import Times

pytestmark = pytest.mark.parametrize("ranks", ["gloo"], indirect=True)


def method(name: str, elapsed_ms: float, kind: str = "ours", processes: int = 1, calls: list | None = None) -> Method:
    def run() -> tuple[float, list[float]]:
        if calls is not None:
            calls.append(name)
        return elapsed_ms, [0.5]

    return Method(name, kind, run, processes, 1)


def measure_fakes(world: World, *arguments: Any) -> tuple[list[Measurement], list[Missing], list[str]]:
    """Measure slow, quick and failing methods on rank 0, and one on all ranks that takes rank r 10 (r + 1) ms."""
    calls: list[str] = []
    methods = [method("all", 10.0 * (world.rank + 1), processes=world.size, calls=calls)]
    if world.rank == 0:
        num_runs = 0

        def fails_later() -> tuple[float, list[float]]:
            nonlocal num_runs
            num_runs += 1
            if num_runs > 2:
                raise ValueError("enough\nof it")
            return 1.0, []

        methods += [method("slow", 6000, "peer", calls=calls), method("quick", 1, "peer", calls=calls)]
        methods += [Method("failing", "peer", fails_later, 1, 1)]
    return *harness.measure(methods, world, *arguments), calls


def test_rounds_budget_and_failure(ranks) -> None:
    results = ranks(2)(measure_fakes, 9, 1, 10.0)
    measurements, missing, calls = results[0]
    by_name = {measured.name: measured for measured in measurements}
    assert set(by_name) == {"all", "slow", "quick"}
    assert by_name["all"].times.ms == [20.0] * 9  # the time of the slowest rank
    assert by_name["all"].warmup_ms == [20.0] and by_name["all"].values == [0.5] * 10
    assert len(by_name["slow"].times.ms) == harness.MIN_ROUNDS
    assert by_name["slow"].stopped == "budget_s=10 was spent"
    assert len(by_name["quick"].times.ms) == 9 and by_name["quick"].stopped is None
    assert missing == [Missing("failing", "failed in round 2: ValueError: enough of it")]
    assert results[1][2] == ["all"] * 10  # rank 1 only runs the method of all ranks
    rounds = [calls[start : start + 3] for start in range(0, 3 * (1 + harness.MIN_ROUNDS), 3)]
    assert all(sorted(names) == ["all", "quick", "slow"] for names in rounds)  # each once, interleaved
    assert len(set(map(tuple, rounds))) > 1  # not always in the same order


def fail(world: World) -> None:
    def broken() -> tuple[float, list[float]]:
        raise ValueError("ours")

    harness.measure([Method("broken", "ours", broken, 1, 1)], world, 1, 0, 1)


def test_ours_may_not_fail(ranks) -> None:
    with pytest.raises(AssertionError, match="ValueError: ours"):
        ranks(1)(fail)


def test_ratios(ranks) -> None:
    def measured(name: str, kind: str, median_ms: float) -> Measurement:
        return Measurement(method(name, median_ms, kind), [], Times([median_ms]), [])

    every = [measured("a", "ours", 4.0), measured("b", "ours", 2.0), measured("c", "peer", 1.0)]
    assert harness.compare(every[2:], None) is None and every[2].ratio is None
    for name, base, ratios in ((None, 1, [2.0, 1.0, 0.5]), ("c", 2, [4.0, 2.0, 1.0])):
        assert harness.compare(every, name) is every[base]
        assert [other.ratio for other in every] == ratios
        assert {other.baseline for other in every} == {every[base].method.label}


def test_steps_of_a_process_without_a_job(ranks) -> None:
    calls: list[str] = []
    steps = {name: lambda name=name: calls.append(name) for name in "ab"}
    times = harness.interleaved(steps, torch.device("cpu"), 5, warmup=2)
    assert sorted(calls) == ["a"] * 7 + ["b"] * 7
    assert [len(times[name].times.ms) for name in "ab"] == [5, 5]


def test_a_step_is_timed_and_its_loss_kept(ranks) -> None:
    elapsed_ms, values = harness.timed(lambda: time.sleep(0.01) or 0.5, torch.device("cpu"))()
    assert elapsed_ms >= 10 and values == [0.5]
    assert harness.timed(lambda: "no number", torch.device("cpu"))()[1] == []


def test_losses_are_read_after_the_last_launch(ranks) -> None:
    calls: list[str] = []

    def step() -> Any:
        calls.append("launch")
        return lambda: calls.append("read") or 0.5

    _, values = harness.timed(step, torch.device("cpu"), at_once=3)()
    assert calls == ["launch"] * 3 + ["read"] * 3 and values == [0.5] * 3
    assert harness.timed(lambda: time.sleep(0.01), torch.device("cpu"), at_once=2)()[0] == pytest.approx(10, abs=9)


def test_a_maker_that_fails_has_a_reason(ranks) -> None:
    def make() -> None:
        raise OSError("lib.so: cannot open\n  shared object")

    assert harness.attempt(make) == (None, 0.0, "OSError: lib.so: cannot open shared object")
    assert harness.attempt(lambda: 3)[::2] == (3, None)
