"""How anything is measured: interleaved rounds, after a warm-up, with a budget.

A round runs every method once, so that what else the machine does meets all of them alike; each round has another
order, so that no method always finds the cache as the same neighbour left it. Before each method there is a pause, in
which the threads of the last one stop spinning.

In a job of several processes rank 0 sends the order of each round to all ranks. Before each method all ranks meet; a
rank that takes no part in the method already waits for the next meeting, asleep in a collective. The time of a method
in a round is that of its slowest rank.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist

from fullgnn.distributed import World, all_gather_objects, broadcast_object, world_of_one
from fullgnn.errors import ConfigError, reason_of
from fullgnn.telemetry.timing import Times, wall_ms

MIN_ROUNDS = 4
"""Timed rounds that a method gets even beyond its budget."""

_PAUSE_S = 0.005

Timed = Callable[[], tuple[float, list[float]]]
"""Run once: milliseconds, and the numbers that the method returns (losses)."""


@dataclass(frozen=True)
class Method:
    """One thing to time. Each rank lists the methods that it takes part in; rank 0 takes part in all of them."""

    name: str
    kind: str  # ours, peer or collective
    run: Any  # a ``Timed``; None in a measurement, which holds no tensors, and where another process runs it
    processes: int = 1
    threads: int = field(default_factory=torch.get_num_threads)  # of each process
    case: dict[str, Any] = field(default_factory=dict)  # what it is run on: {"width": 64}
    details: dict[str, Any] = field(default_factory=dict)  # for the record

    @property
    def label(self) -> str:
        """The name, the processes and the case: unique among the methods of a benchmark."""
        case = "".join(f", {name}={value}" for name, value in self.case.items())
        return f"{self.name} ({self.processes} x {self.threads}){case}"


@dataclass(frozen=True)
class Missing:
    """A method without times, and the reason."""

    method: str
    reason: str
    case: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One test, or the sum of several."""

    subject: str
    what: str
    case: str = ""  # which tests, or how many
    passed: bool = False
    said: str = ""  # why it failed


@dataclass
class Measurement:
    """The times of one method."""

    method: Method
    warmup_ms: list[float]
    times: Times  # of the rounds after the warm-up
    values: list[float]  # what the runs returned, warm-up included; empty if the method returns nothing
    stopped: str | None = None  # why it has fewer rounds than others
    baseline: str | None = None  # label of the method that ``ratio`` refers to
    ratio: float | None = None  # median over the baseline's median: above 1 is slower

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def median_ms(self) -> float:
        return self.times.median_ms

    @property
    def details(self) -> dict[str, Any]:
        """Those of the method."""
        return self.method.details

    def compare_with(self, base: "Measurement | None") -> None:
        if base is not None:
            self.baseline, self.ratio = base.method.label, self.median_ms / base.median_ms

    def record(self) -> dict[str, Any]:
        """The fields of this measurement in ``record.json``."""
        fields = {**vars(self.method), **vars(self), "method": self.name}
        fields |= {"times_ms": self.times.ms, "rounds": self.times.runs}
        fields |= {key: getattr(self.times, key) for key in ("median_ms", "p20_ms", "p80_ms")}
        return {key: value for key, value in fields.items() if key not in ("name", "run", "times")}


@dataclass
class Outcome:
    """The result of an operation, or a part of it, which is added to what there is. It is complete on rank 0 alone."""

    measurements: list[Measurement] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    problem: dict[str, Any] | None = None
    checks: list[Check] = field(default_factory=list)

    def add(self, part: "Outcome") -> None:
        self.measurements += part.measurements
        self.missing += part.missing
        self.checks += part.checks
        self.problem = self.problem if part.problem is None else {**(self.problem or {}), **part.problem}


Results = Iterator[Outcome]
"""What an operation gives: its outcome in parts, each as soon as it is known, so that the record can be written."""


def timed(step: Callable[[], Any], device: torch.device, at_once: int = 1) -> Timed:
    """``step``, ``at_once`` times between two readings of the clock, both with an idle ``device``; the mean counts.

    Args:
        step: launches something. A float that it returns is kept. A function that it returns is called after the last
            step, waits for the result, and gives such a float.
    """

    def run() -> tuple[float, list[float]]:
        values: list[Any] = []

        def work() -> None:
            launched = [step() for _ in range(at_once)]
            values.extend(read() if callable(read) else read for read in launched)

        elapsed_ms = wall_ms(work, device)
        return elapsed_ms / at_once, [value for value in values if isinstance(value, float)]

    return run


def attempt(
    make: Callable[[], Any], expected: type[Exception] | tuple[()] = Exception
) -> tuple[Any, float, str | None]:
    """What ``make`` returns, the seconds it took, and None; or None, 0 and the reason of its failure.

    Args:
        expected: errors that count as a reason; others are raised.
    """
    begin = time.perf_counter()
    try:
        made = make()
    except expected as error:
        return None, 0.0, reason_of(error)
    return made, time.perf_counter() - begin, None


def measure(
    methods: list[Method], world: World, rounds: int, warmup: int, budget_s: float
) -> tuple[list[Measurement], list[Missing]]:
    """Time ``methods`` in rounds. Called on every rank, each with the methods that it takes part in.

    Args:
        warmup: rounds before the timed ones.
        budget_s: a method whose timed rounds took longer stops, though not before ``MIN_ROUNDS``.

    Returns:
        the measurements, and the peers that failed. An error of another kind of method is raised.
    """
    mine = {method.label: method for method in methods}
    assert len(mine) == len(methods), "two methods of one name"
    rounds_of: dict[str, list[tuple[float, list[float]]]] = {label: [] for label in mine}
    failed: dict[str, str] = {}

    def due(label: str) -> bool:
        spent_ms = sum(ms for ms, _ in rounds_of[label][warmup:])
        return label not in failed and (len(rounds_of[label]) < warmup + MIN_ROUNDS or spent_ms < budget_s * 1e3)

    shuffled = random.Random(0)
    for _ in range(warmup + rounds):
        todo = [label for label in mine if due(label)]
        shuffled.shuffle(todo)
        for label in broadcast_object(todo):
            time.sleep(_PAUSE_S)
            if world.size > 1:
                dist.all_reduce(torch.zeros(1))  # all ranks meet on the host, over gloo: a barrier of NCCL would spin
            if label in mine:
                one_round, _, reason = attempt(mine[label].run, Exception if mine[label].kind == "peer" else ())
                if reason:
                    failed[label] = f"failed in round {len(rounds_of[label])}: {reason}"
                else:
                    rounds_of[label].append(one_round)

    ranks = all_gather_objects({label: [ms for ms, _ in rounds_of[label]] for label in mine})
    measurements = []
    for label, method in mine.items():
        if label not in failed:
            ms = [max(one_round) for one_round in zip(*(rank[label] for rank in ranks if label in rank))]
            values = [value for _, returned in rounds_of[label] for value in returned]
            stopped = f"budget_s={budget_s:g} was spent" if len(ms) < warmup + rounds else None
            without_run = replace(method, run=None)
            measurements.append(Measurement(without_run, ms[:warmup], Times(ms[warmup:]), values, stopped))
    return measurements, [Missing(mine[label].name, reason, mine[label].case) for label, reason in failed.items()]


def interleaved(
    steps: Mapping[str, Callable[[], Any]], device: torch.device, rounds: int, warmup: int = 1
) -> dict[str, Measurement]:
    """The times of each step in this process, which is in no job; see :func:`measure`."""
    methods = [Method(name, "ours", timed(step, device)) for name, step in steps.items()]
    with world_of_one(device) as world:
        measurements, _ = measure(methods, world, rounds, warmup, budget_s=60)
    return {measured.name: measured for measured in measurements}


def check_baseline(methods: list[Method], name: str | None) -> None:
    """Refuse a ``baseline`` that is the name of no method, before anything is timed.

    Raises:
        ConfigError: one line with the names to choose from.
    """
    names = dict.fromkeys(method.name for method in methods)
    if name is not None and name not in names:
        raise ConfigError(f"baseline={name} is not among the methods: choose one of {', '.join(names)}")


def compare(measurements: list[Measurement], name: str | None) -> Measurement | None:
    """Set the ratio of each measurement to the fastest one of the method ``name``, or of ours if that is None.

    Returns:
        that measurement; None if there is none.
    """
    ours = name is None
    candidates = [m for m in measurements if (m.method.kind == "ours" if ours else m.name == name)]
    base = min(candidates, key=lambda measured: measured.median_ms, default=None)
    for measured in measurements:
        measured.compare_with(base)
    return base


def loss_error(measured: Measurement, base: Measurement) -> float:
    """Largest difference of the losses over the epochs that both ran."""
    return max(abs(a - b) for a, b in zip(measured.values, base.values))
