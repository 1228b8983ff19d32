"""How anything is measured: interleaved rounds, after a warm-up, with a budget.

A round runs every method once, so that what else the machine does meets all of them alike; each round has another
order, so that no method always finds the cache as the same neighbour left it. Before each method there is a pause, in
which the threads of the last one stop spinning.

In a job of several processes rank 0 sends the order of each round to all ranks. Before each method all ranks meet; a
rank that takes no part in the method already waits for the next meeting, asleep in a collective. The time of a method
in a round is that of its slowest rank.

Where methods cannot take turns, as where each needs the whole memory of a device, ``Cases`` runs one after the other.
"""

import math
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist

from fullgnn.bench.config import BenchConfig
from fullgnn.distributed import World, all_gather_objects, broadcast_object, from_rank0, world_of_one
from fullgnn.errors import ConfigError, reason_of
from fullgnn.telemetry.timing import Times, wall_ms

MIN_ROUNDS = 4
"""Timed rounds that a method gets even beyond its budget."""

_PAUSE_S = 0.005

Errors = type[Exception] | tuple[()]
"""A kind of errors, or none."""

TimedRun = Callable[[], tuple[float, list[float]]]
"""Run once: milliseconds, and the numbers that the method returns (losses)."""


@dataclass(frozen=True)
class Method:
    """One thing to time. Each rank lists the methods that it takes part in; rank 0 takes part in all of them."""

    name: str
    kind: str  # ours, peer or collective
    run: Any  # a ``TimedRun``; before ``set_up``, its maker; None in a measurement, and where another process runs it
    processes: int = 1
    threads: int = field(default_factory=torch.get_num_threads)  # of each process
    case: dict[str, Any] = field(default_factory=dict)  # what it is run on: {"width": 64}
    details: dict[str, Any] = field(default_factory=dict)  # for the record
    about: "Callable[[Measurement], dict[str, Any]] | None" = None  # gives the details that are known after the rounds

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
        """The details of the method."""
        return self.method.details

    def compare_with(self, base: "Measurement | None") -> None:
        if base is not None:
            self.baseline, self.ratio = base.method.label, self.median_ms / base.median_ms

    def record(self) -> dict[str, Any]:
        """The fields of this measurement in ``record.json``."""
        fields = {**vars(self.method), **vars(self), "method": self.name}
        fields |= {"times_ms": self.times.ms, "rounds": self.times.runs}
        fields |= {key: getattr(self.times, key) for key in ("median_ms", "p20_ms", "p80_ms")}
        return {key: value for key, value in fields.items() if key not in ("name", "run", "about", "times")}


@dataclass
class Outcome:
    """The result of an operation, or a part of it, which is added to what there is. It is complete on rank 0 alone."""

    measurements: list[Measurement] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    problem: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def add(self, part: "Outcome") -> None:
        self.measurements += part.measurements
        self.missing += part.missing
        self.checks += part.checks
        self.problem = {**self.problem, **part.problem}


Results = Iterator[Outcome]
"""What an operation gives: its outcome in parts, each as soon as it is known, so that the record can be written."""


def timed(step: Callable[[], Any], device: torch.device, at_once: int = 1) -> TimedRun:
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


def rate(name: str, work: float) -> Callable[[Measurement], dict[str, float]]:
    """``Method.about`` of runs that do so much ``work``, such as bytes: thousand millions of it in a second."""
    return lambda measured: {name: work / measured.median_ms / 1e6}


def training(step: Any) -> Callable[[Measurement], dict[str, Any]]:
    """``Method.about`` of a training: its last loss, and the ``details()`` of ``step``, where it has any."""
    return lambda measured: {"last_loss": measured.values[-1], **getattr(step, "details", dict)()}


def attempt(make: Callable[[], Any], expected: Errors = Exception) -> tuple[Any, float, str | None]:
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


def set_up(candidates: Iterable[Method], of_ours: Errors = Exception) -> tuple[list[Method], list[Missing]]:
    """Call the maker that is the ``run`` of each candidate.

    Args:
        of_ours: errors of our own makers that count as a reason; others are raised.

    Returns:
        the candidates with what was made as their ``run``, and those that failed.
    """
    made, missing = list[Method](), list[Missing]()
    for candidate in candidates:
        run, setup_s, reason = attempt(candidate.run, of_ours if candidate.kind == "ours" else Exception)
        if reason:
            processes = {"processes": candidate.processes} if candidate.processes > 1 else {}
            missing.append(Missing(candidate.name, reason, candidate.case | processes))
        else:
            made.append(replace(candidate, run=run, details={"setup_s": setup_s}))
    return made, missing


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
            own = replace(method, run=None, about=None, details={**method.details})
            measurements.append(Measurement(own, ms[:warmup], Times(ms[warmup:]), values, stopped))
            own.details.update(method.about(measurements[-1]) if method.about else {})
    return measurements, [Missing(mine[label].name, reason, mine[label].case) for label, reason in failed.items()]


def interleaved(
    steps: Mapping[str, Callable[[], Any]], device: torch.device, rounds: int, warmup: int = 1
) -> dict[str, Measurement]:
    """The times of each step in this process, which is in no job; see :func:`measure`."""
    methods = [Method(name, "ours", timed(step, device)) for name, step in steps.items()]
    with world_of_one(device) as world:
        measurements, _ = measure(methods, world, rounds, warmup, budget_s=60)
    return {measured.name: measured for measured in measurements}


def compared(cfg: BenchConfig, world: World, methods: list[Method], rounds: int | None = None) -> Outcome:
    """Time ``methods`` as ``cfg`` asks, and compare them with its baseline. Called on every rank; see :func:`measure`.

    Args:
        rounds: None: those of ``cfg``.

    Raises:
        ConfigError: the baseline is the name of no method; one line with the names to choose from.
    """
    names = dict.fromkeys(method.name for method in methods)
    from_rank0(lambda: check_baseline(cfg.baseline, list(names), "methods"))
    measurements, failed = measure(methods, world, rounds or cfg.rounds, cfg.warmup, cfg.budget_s)
    compare(measurements, cfg.baseline)
    return Outcome(measurements, failed)


def check_baseline(name: str | None, known: list[str], of_what: str) -> None:
    """Refuse a ``baseline`` that is not known, before anything is timed."""
    if name is not None and name not in known:
        raise ConfigError(f"baseline={name} is not among the {of_what}: choose one of {', '.join(known)}")


def compare(measurements: list[Measurement], name: str | None) -> Measurement | None:
    """Set the ratio of each measurement to the fastest one of the method ``name``, or of ours if that is None.

    Returns:
        that measurement; None if there is none.
    """
    candidates = [m for m in measurements if (m.method.kind == "ours" if name is None else m.name == name)]
    base = min(candidates, key=lambda measured: measured.median_ms, default=None)
    for measured in measurements:
        measured.compare_with(base)
    return base


def loss_error(measured: Measurement, base: Measurement) -> float:
    """Largest difference of the losses over the epochs that both ran."""
    return max(abs(a - b) for a, b in zip(measured.values, base.values))


class Budget:
    """Seconds that something may take, from now on: what does not fit is left out, so that a run ends on time."""

    def __init__(self, seconds: float):
        self.seconds, self._begin = seconds, time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.elapsed)

    def part(self, share: float, reserved_s: float = 0.0) -> float:
        """Seconds of a step: a share of what is left beyond ``reserved_s``."""
        return share * max(0.0, self.left - reserved_s)


class Cases:
    """Runs cases; one that raises an error costs itself alone, one that hangs or faults this process.

    Args:
        limit_s: seconds for all of them.
    """

    def __init__(self, limit_s: float, device: torch.device):
        self.budget, self.device = Budget(limit_s), device

    def run(
        self, name: str, make: Callable[[], Any], case: dict[str, Any], predicted_s: float = 1.0, limit_s: float = 60.0
    ) -> Outcome:
        """What ``make`` returns, an outcome or one of its measurements; or the reason why there is none: it raised an
        error, or the time that is left is too short.

        Args:
            predicted_s: what it will take at least.
            limit_s: time after which SIGALRM ends this process.
        """
        if predicted_s > self.budget.left:
            return Outcome(missing=[Missing(name, f"left out: {self.budget.left:.0f} s are left", case)])
        signal.alarm(math.ceil(limit_s))
        try:
            made, _, reason = attempt(make)
            if reason and self.device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.synchronize()  # raises, and so ends this process, if the GPU can no longer be used
        finally:
            signal.alarm(0)
        if reason:
            return Outcome(missing=[Missing(name, reason, case)])
        return made if isinstance(made, Outcome) else Outcome([made])
