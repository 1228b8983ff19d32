"""What an epoch costs: time by phase, bytes by collective and work by count, collected where they are spent.

The schemes, collectives and the training loop share one ``Meter``. On a CPU a phase is timed with the wall clock;
on a GPU with a pair of events on the current stream, read only when the epoch is over, so that
measuring never makes the host wait inside an epoch.
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

    def start(self, name: str) -> "Span":
        """Begin a stretch of phase ``name`` that ends with ``stop``, anywhere else in the program."""
        return Span(self, name)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside the ``with`` block to phase ``name``."""
        span = self.start(name)
        try:
            yield
        finally:
            span.stop()

    def received(self, collective: str, num_bytes: int) -> None:
        """Count ``num_bytes`` that this rank receives through ``collective``."""
        self._bytes[collective] += num_bytes

    def count(self, name: str, amount: int) -> None:
        self._counts[name] += amount

    def take(self) -> Cost:
        """Return what was spent since the last call, and start again from zero."""
        if self._events:
            self._events[-1][2].synchronize()
            for name, start, end in self._events:
                end.synchronize()
                self._seconds[name] += start.elapsed_time(end) / 1e3
        cost = Cost({k: v * 1e3 for k, v in self._seconds.items()}, dict(self._bytes), dict(self._counts))
        self._seconds.clear()
        self._events.clear()
        self._bytes.clear()
        self._counts.clear()
        return cost


class Span:
    """One stretch of a phase, from its construction to ``stop``."""

    def __init__(self, meter: Meter, name: str):
        self._meter, self._name = meter, name
        if meter._cuda:
            self._start = torch.cuda.Event(enable_timing=True)
            self._start.record()
        else:
            self._begin = time.perf_counter()

    def stop(self) -> None:
        if self._meter._cuda:
            end = torch.cuda.Event(enable_timing=True)
            end.record()
            self._meter._events.append((self._name, self._start, end))
        else:
            self._meter._seconds[self._name] += time.perf_counter() - self._begin
