"""Times of work on a device: the clocks that the benchmarks, the planner and autotuning share."""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Times:
    """Milliseconds of each run, in the order of the runs."""

    ms: list[float]

    @property
    def runs(self) -> int:
        return len(self.ms)

    @property
    def median_ms(self) -> float:
        return statistics.median(self.ms)

    @property
    def p20_ms(self) -> float:
        return float(np.percentile(self.ms, 20))

    @property
    def p80_ms(self) -> float:
        return float(np.percentile(self.ms, 80))


def synchronize(device: torch.device) -> None:
    """Wait until ``device`` has done what was launched on it; returns at once on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def wall_ms(work: Callable[[], object], device: torch.device) -> float:
    """Milliseconds of one call by the host's clock, from an idle ``device`` to an idle device."""
    synchronize(device)
    begin = time.perf_counter()
    work()
    synchronize(device)
    return (time.perf_counter() - begin) * 1e3


def device_ms(calls: Iterable[Callable[[], object]], device: torch.device) -> list[float]:
    """Milliseconds of each call on ``device``: on a GPU between two events, and the host waits only after the last
    call; on a CPU as :func:`wall_ms`."""
    if device.type != "cuda":
        return [wall_ms(call, device) for call in calls]
    events = []
    for call in calls:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        events.append((begin, end))
    synchronize(device)
    return [begin.elapsed_time(end) for begin, end in events]


def copy_rate(device: torch.device, num_bytes: int, seconds: Callable[[Callable[[], object]], float]) -> float:
    """Bytes that a copy of a tensor of ``num_bytes`` reads and writes on ``device`` in a second.

    Args:
        seconds: the clock, which returns the seconds of one call of its argument.
    """
    source, copy = (torch.ones(num_bytes // 4, device=device) for _ in range(2))
    return 2 * source.nbytes / seconds(lambda: copy.copy_(source))


def num_repeats(seconds: float, once_s: float, least: int = 1, most: int = 1 << 20) -> int:
    """Runs of ``once_s`` seconds that fill ``seconds``, between ``least`` and ``most``."""
    return int(max(least, min(most, seconds / max(once_s, 1e-6))))
