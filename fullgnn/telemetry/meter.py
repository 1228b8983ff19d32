"""Measure the cost of an epoch: time by phase, bytes by collective, and counts of work.

The schemes, collectives and the training loop share one ``Meter``. On a CPU a phase is timed with the wall clock;
on a GPU with events on the current stream, which are read only after the epoch, so that
measuring never makes the host wait inside an epoch. With ``lap`` they are read even later.

    interval   a whole: an epoch, a set-up. Phases are parts of it.
    phase      disjoint parts: a phase that begins within another one pauses it
    span       may overlap with everything: the flight of a tensor that travels
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """Cost of one interval on one rank: ``time_ms`` by phase, ``bytes_received`` by collective, ``counts`` by name."""

    time_ms: dict[str, float] = field(default_factory=dict)
    bytes_received: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochRecord:
    """One epoch on this rank. ``metrics`` is None without an evaluation; ``cost`` does not include evaluation."""

    epoch: int  # from 1
    loss: float  # training loss before the update, global mean
    cost: Cost  # of the training step
    metrics: dict[str, float | None] | None  # by split and name, as ``val_accuracy``; see ``Task.measure``
    replayed: bool = False  # as a CUDA graph: the time of ``cost`` then has no phases but ``epoch``


class PendingCost:
    """The cost of one interval, which a GPU may still be computing."""

    def __init__(self, cost: Cost, events: "list[tuple[str, torch.cuda.Event, torch.cuda.Event]]"):
        self._cost, self._events = cost, events

    def read(self) -> Cost:
        """Wait for the end of the interval and return its cost. Call it once."""
        milliseconds = defaultdict(float, self._cost.time_ms)
        for name, start, end in self._events:
            end.synchronize()
            milliseconds[name] += start.elapsed_time(end)
        return Cost(dict(milliseconds), self._cost.bytes_received, self._cost.counts)


class Meter:
    """Accumulates times, received bytes and counts until ``take`` empties it."""

    def __init__(self, device: torch.device):
        self._seconds: dict[str, float] = defaultdict(float)
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self._bytes: dict[str, int] = defaultdict(int)
        self._counts: dict[str, int] = defaultdict(int)
        self._timed = True
        self._host = _Switch(time.perf_counter, self._add_seconds)
        self._device = _Switch(_event, self._add_events) if device.type == "cuda" else self._host

    def start(self, name: str) -> "Span":
        """Begin a span called ``name``; its ``stop`` may be called anywhere else in the program."""
        return Span(self._device if self._timed else None, name)

    @contextmanager
    def interval(self, name: str) -> Iterator[None]:
        """Add the time spent inside the ``with`` block, with all of its phases, to ``name``."""
        span = self.start(name)
        try:
            yield
        finally:
            span.stop()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Add the time spent inside the ``with`` block, but in no phase within it, to phase ``name``.

        So phases are disjoint, and their sum is at most the interval around them.
        """
        return self._device.running(name) if self._timed else nullcontext()

    def clock(self, name: str) -> AbstractContextManager[None]:
        """``phase`` for work of the host: its time is that of the wall clock on a GPU too. Such phases are disjoint
        among each other; on a GPU they may overlap with the phases of the device."""
        return self._host.running(name) if self._timed else nullcontext()

    def spent(self, name: str, seconds: float) -> None:
        """Add time that another process has spent to phase ``name``."""
        if self._timed:
            self._seconds[name] += seconds

    def received(self, collective: str, num_bytes: int) -> None:
        """Count ``num_bytes`` that this rank receives through ``collective``."""
        self._bytes[collective] += num_bytes

    def count(self, name: str, amount: int) -> None:
        self._counts[name] += amount

    def add(self, cost: Cost) -> None:
        """Add the bytes and counts of ``cost``, but not its times; a replayed CUDA graph reports its cost this way."""
        for name, num_bytes in cost.bytes_received.items():
            self._bytes[name] += num_bytes
        for name, amount in cost.counts.items():
            self._counts[name] += amount

    @contextmanager
    def untimed(self) -> Iterator[Cost]:
        """Disable timing in the ``with`` block; its bytes and counts go to the yielded ``Cost``, not to this meter."""
        before = self._timed, self._bytes, self._counts
        self._timed, self._bytes, self._counts = False, defaultdict(int), defaultdict(int)
        try:
            yield Cost({}, self._bytes, self._counts)
        finally:
            self._timed, self._bytes, self._counts = before

    def take(self) -> Cost:
        """Return the cost since the last ``take`` or ``lap``, and reset the meter to zero."""
        return self.lap().read()

    def lap(self) -> PendingCost:
        """Like ``take``, but return a ``PendingCost`` to be read later, so that the host does not wait for the GPU."""
        cost = Cost({k: v * 1e3 for k, v in self._seconds.items()}, dict(self._bytes), dict(self._counts))
        spent = PendingCost(cost, list(self._events))
        self._seconds.clear()
        self._events.clear()
        self._bytes.clear()
        self._counts.clear()
        return spent

    def _add_seconds(self, name: str, begin: float, end: float) -> None:
        self._seconds[name] += end - begin

    def _add_events(self, name: str, begin: torch.cuda.Event, end: torch.cuda.Event) -> None:
        self._events.append((name, begin, end))


class _Switch(Generic[T]):
    """Assigns time to one phase at a time. Where one phase follows another at once, they share a moment.

    Args:
        now: the present moment.
        add: takes the name of a phase, and the moments between which it ran without a break.
    """

    def __init__(self, now: Callable[[], T], add: Callable[[str, T, T], None]):
        self.now, self.add = now, add
        self._current: tuple[str, T] | None = None  # the phase that runs, and since when

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Let ``name`` run in the ``with`` block, then the phase that ran before it."""
        outer = None if self._current is None else self._current[0]
        self._switch(name)
        try:
            yield
        finally:
            self._switch(outer)

    def _switch(self, name: str | None) -> None:
        now = self.now()
        if self._current is not None:
            self.add(*self._current, now)
        self._current = None if name is None else (name, now)


def _event() -> torch.cuda.Event:
    """An event at this place of the current stream."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class Span:
    """The time from construction to ``stop``, whatever the phases are meanwhile.

    Args:
        switch: has the clock, and takes the time; None: nothing is timed.
    """

    def __init__(self, switch: _Switch[Any] | None, name: str):
        self._switch, self._name = switch, name
        self._begin = None if switch is None else switch.now()

    def stop(self) -> None:
        if self._switch is not None:
            self._switch.add(self._name, self._begin, self._switch.now())
