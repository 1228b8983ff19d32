"""How anything is measured: interleaved rounds, after a warm-up, with a budget.

A round runs every method once, so that what else the machine does meets all of them alike; each round has another
order, so that none always finds the cache as the same neighbour left it. Before each method there is a pause, in which
the threads of the last one stop spinning.

In a job of several processes a round is one list of names from rank 0; before each name all ranks meet, and those that
have no part in the method already wait for the next meeting, asleep in a collective. A method's time in a round is its
slowest rank's.
"""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from fullgnn.distributed import World, all_gather_objects, broadcast_object
from fullgnn.errors import ConfigError

MIN_ROUNDS = 4
"""Timed rounds that a method gets even beyond its budget."""

_PAUSE_S = 0.005

Timed = Callable[[], tuple[float, float | None]]
"""Run once: milliseconds, and a number that the method returns (a loss) or None."""


@dataclass(frozen=True)
class Method:
    """One thing to time, on the ranks that take part in it; the others do not have it in their list."""

    name: str
    kind: str  # ours, peer or collective
    run: Timed
    processes: int
    threads: int  # of each process
    case: dict[str, Any] = field(default_factory=dict)  # what it is run on: {"width": 64}
    details: dict[str, Any] = field(default_factory=dict)  # for the record

    @property
    def key(self) -> str:
        case = " ".join(f"{name}={value}" for name, value in self.case.items())
        return f"{self.name} [{self.processes} x {self.threads}] {case}"


@dataclass(frozen=True)
class Missing:
    """A method without times, and why."""

    method: str
    reason: str
    case: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """The times of one method, in ms; the median and percentiles are of ``times_ms``, without the warm-up."""

    method: str
    kind: str
    case: dict[str, Any]
    processes: int
    threads: int
    warmup_ms: list[float]
    times_ms: list[float]
    median_ms: float
    p20_ms: float
    p80_ms: float
    stopped: str | None  # why it has fewer rounds than others
    values: list[float]  # what each run returned, warm-up included; empty where nothing is
    details: dict[str, Any]
    baseline: str | None = None
    ratio: float | None = None  # median over the baseline's median: above 1 is slower


@dataclass(frozen=True)
class Outcome:
    """What an operation found, on rank 0; others return theirs, which nobody reads."""

    measurements: list[Measurement]
    missing: list[Missing]
    columns: dict[str, str]  # key of ``details`` -> its head in the table
    problem: dict[str, Any] | None = None


def timed(step: Callable[[], Any], device: torch.device) -> Timed:
    """``step`` with a clock around it that waits for the device; a number it returns is kept."""

    def run() -> tuple[float, float | None]:
        _synchronize(device)
        begin = time.perf_counter()
        value = step()
        _synchronize(device)
        return (time.perf_counter() - begin) * 1e3, value if isinstance(value, float) else None

    return run


def attempt(make: Callable[[], Any]) -> tuple[Any, float, str | None]:
    """What ``make`` returns, the seconds it took, and None; or None and the reason why it could not."""
    begin = time.perf_counter()
    try:
        made = make()
    except Exception as error:  # another library's, of any kind: the method is named as missing, the others go on
        return None, 0.0, reason_of(error)
    return made, time.perf_counter() - begin, None


def reason_of(error: BaseException) -> str:
    """One line: the kind of ``error`` and what it says."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


def measure(
    methods: list[Method], world: World, rounds: int, warmup: int, budget_s: float
) -> tuple[list[Measurement], list[Missing]]:
    """Time ``methods`` in rounds; called on every rank, each with the methods that it has a part in.

    Args:
        budget_s: a method whose timed rounds took longer stops, though not before ``MIN_ROUNDS``.
    """
    mine = {method.key: method for method in methods}
    assert len(mine) == len(methods), "two methods of one name"
    times: dict[str, list[float]] = {key: [] for key in mine}
    values: dict[str, list[float]] = {key: [] for key in mine}
    failed: dict[str, str] = {}

    def spent_ms(key: str) -> float:
        return sum(times[key][warmup:])

    def due(key: str) -> bool:
        return key not in failed and (len(times[key]) < warmup + MIN_ROUNDS or spent_ms(key) < budget_s * 1e3)

    shuffled = random.Random(0)
    for _ in range(warmup + rounds):
        todo = [key for key in mine if due(key)]
        shuffled.shuffle(todo)
        for key in broadcast_object(todo):  # rank 0's list: it has a part in all of them
            time.sleep(_PAUSE_S)
            _meet()
            if key not in mine:
                continue
            try:
                elapsed_ms, value = mine[key].run()
            except Exception as error:
                if mine[key].kind != "peer":
                    raise
                failed[key] = f"failed in round {len(times[key])}: {reason_of(error)}"
                continue
            times[key].append(elapsed_ms)
            if value is not None:
                values[key].append(value)

    of_ranks = all_gather_objects(times)
    measurements = []
    for key, method in mine.items():
        if key in failed:
            continue
        slowest = [max(ranks) for ranks in zip(*(of_rank[key] for of_rank in of_ranks if key in of_rank))]
        counted = slowest[warmup:]
        p20, median, p80 = (float(value) for value in np.percentile(counted, (20, 50, 80)))
        stopped = f"budget_s={budget_s:g} was spent" if len(counted) < rounds else None
        measurements.append(
            Measurement(
                method.name,
                method.kind,
                method.case,
                method.processes,
                method.threads,
                slowest[:warmup],
                counted,
                median,
                p20,
                p80,
                stopped,
                values[key],
                method.details,
            )
        )
    return measurements, [Missing(mine[key].name, reason, mine[key].case) for key, reason in failed.items()]


def check_baseline(methods: list[Method], name: str | None) -> None:
    """Refuse a ``baseline`` that no method bears, before it has cost any time."""
    names = dict.fromkeys(method.name for method in methods)
    if name is not None and name not in names:
        raise ConfigError(f"baseline={name} is not among the methods: choose one of {', '.join(names)}")


def compare(
    measurements: Iterable[Measurement], baseline_of: Callable[[Measurement], Measurement | None]
) -> list[Measurement]:
    """``measurements`` with the ratio of each to its baseline."""
    compared = []
    for one in measurements:
        base = baseline_of(one)
        if base is not None:
            one = replace(one, baseline=describe(base), ratio=one.median_ms / base.median_ms)
        compared.append(one)
    return compared


def baseline(measurements: list[Measurement], name: str | None) -> Measurement | None:
    """The measurement named ``name``, or the fastest of ours; None where there is none. Among equals, the fastest."""
    ours = [one for one in measurements if (one.method == name if name else one.kind == "ours")]
    return min(ours, key=lambda one: one.median_ms, default=None)


def describe(one: Measurement) -> str:
    case = "".join(f", {name}={value}" for name, value in one.case.items())
    return f"{one.method} ({one.processes} x {one.threads}){case}"


def _meet() -> None:
    """Wait for all ranks on the host, over gloo: on a GPU a barrier of NCCL would spin."""
    if dist.get_world_size() > 1:
        dist.all_reduce(torch.zeros(1))


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
