"""Measure the cost of an epoch: time by phase, bytes by collective, and counts of work.

The schemes, collectives and the training loop share one ``Meter``. On a CPU a phase is timed with the wall clock;
on a GPU with a pair of events on the current stream, which are read only after the epoch, so that
measuring never makes the host wait inside an epoch. With ``lap`` they are read even later.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Cost:
    """Cost of one interval on one rank: ``time_ms`` by phase, ``bytes_received`` by collective, ``counts`` by name."""

    time_ms: dict[str, float] = field(default_factory=dict)
    bytes_received: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


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
    """Accumulates phase times, received bytes and counts until ``take`` empties it.

    Phases may nest or overlap: an inner phase is also part of the outer one.
    """

    def __init__(self, device: torch.device):
        self._cuda = device.type == "cuda"
        self._seconds: dict[str, float] = defaultdict(float)
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self._bytes: dict[str, int] = defaultdict(int)
        self._counts: dict[str, int] = defaultdict(int)
        self._timed = True

    def start(self, name: str) -> "Span":
        """Begin a span of phase ``name``; its ``stop`` may be called anywhere else in the program."""
        return Span(self, name)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside the ``with`` block to phase ``name``."""
        span = self.start(name)
        try:
            yield
        finally:
            span.stop()

    @contextmanager
    def clock(self, name: str) -> Iterator[None]:
        """``phase`` for work of the host: its time is that of the wall clock on a GPU too."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            if self._timed:
                self._seconds[name] += time.perf_counter() - begin

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


class Span:
    """One timed span of a phase, from construction to ``stop``."""

    def __init__(self, meter: Meter, name: str):
        self._meter, self._name, self._timed = meter, name, meter._timed
        if not self._timed:
            return
        if meter._cuda:
            self._start = torch.cuda.Event(enable_timing=True)
            self._start.record()
        else:
            self._begin = time.perf_counter()

    def stop(self) -> None:
        if not self._timed:
            return
        if self._meter._cuda:
            end = torch.cuda.Event(enable_timing=True)
            end.record()
            self._meter._events.append((self._name, self._start, end))
        else:
            self._meter._seconds[self._name] += time.perf_counter() - self._begin
