"""Measure the time of work on a device; the benchmarks, the planner and autotuning share these clocks."""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist


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
    """Wait until ``device`` has completed all launched work; on a CPU return at once."""
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
    """Milliseconds of each call on ``device``.

    On a GPU, two events time each call, and the host waits only after the last call. On a CPU, :func:`wall_ms` does.
    """
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


class JobClock:
    """Times work that all ranks of a job do at once; the slowest rank counts.

    ``spread`` is the largest ratio, over all work so far, of the median time of a round to the shortest one.

    Args:
        num_ranks: ranks of the job; one rank needs no process group.
        round_s: shortest time of a round, in which the work is repeated.
    """

    def __init__(self, device: torch.device, num_ranks: int, round_s: float, num_rounds: int = 9):
        self._device, self._num_ranks, self._round_s, self._num_rounds = device, num_ranks, round_s, num_rounds
        self.spread = 1.0

    def seconds(self, work: Callable[[], object]) -> float:
        """Seconds of one call of ``work``, the median over the rounds; the same on every rank."""
        self._round_ms(work, 1)  # warm-up: compiles, autotunes, touches its memory
        repeats = num_repeats(self._round_s, self._round_ms(work, 1) / 1e3)
        times = Times([self._round_ms(work, repeats) for _ in range(self._num_rounds)])
        self.spread = max(self.spread, times.median_ms / min(times.ms))
        return times.median_ms / 1e3

    def _round_ms(self, work: Callable[[], object], repeats: int) -> float:
        """Milliseconds of one call on the slowest rank, the mean over ``repeats`` calls."""

        def repeated() -> None:
            for _ in range(repeats):
                work()

        self._largest(0.0)  # a barrier
        return self._largest(wall_ms(repeated, self._device)) / repeats

    def _largest(self, number: float) -> float:
        if self._num_ranks == 1:
            return number
        largest = torch.tensor(number, dtype=torch.float64)  # on the host: over NCCL the waiting ranks would spin
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return float(largest)


def copy_rate(device: torch.device, num_bytes: int, seconds: Callable[[Callable[[], object]], float]) -> float:
    """Bytes per second that a copy of a tensor of ``num_bytes`` reads and writes on ``device``.

    Args:
        seconds: the clock, which returns the seconds of one call of its argument.
    """
    source, copy = (torch.ones(num_bytes // 4, device=device) for _ in range(2))
    return 2 * source.nbytes / seconds(lambda: copy.copy_(source))


def num_repeats(seconds: float, once_s: float, least: int = 1, most: int = 1 << 20) -> int:
    """Number of runs, of ``once_s`` seconds each, that fill ``seconds``; between ``least`` and ``most``."""
    return int(max(least, min(most, seconds / max(once_s, 1e-6))))
