"""Times of operations on the device, with inputs that no cache holds from the last run."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from fullgnn.kernels.support.lines import empty_lines

T = TypeVar("T")

L2_MULTIPLE = 4
"""Rotated inputs take at least this many times the L2 cache."""

_MAX_INPUTS = 64
_CPU_L2_BYTES = 1 << 16  # so that a toy run on a CPU rotates as well


@dataclass(frozen=True)
class Times:
    median_ms: float
    p20_ms: float
    p80_ms: float
    runs: int


def l2_bytes(device: torch.device) -> int:
    """The L2 cache of a GPU."""
    return torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else _CPU_L2_BYTES


def num_inputs(bytes_of_one: int, l2: int) -> int:
    """How many inputs are rotated: by the time that one is read again, the L2 has seen several times its size."""
    return min(_MAX_INPUTS, max(2, -(-L2_MULTIPLE * l2 // max(1, bytes_of_one)) + 1))


def rotated(num_rows: int, width: int, device: torch.device, seed: int = 0) -> list[Tensor]:
    """Random (num_rows, width) float32 inputs, as many as ``num_inputs`` says, laid out as in training."""
    generator = torch.Generator(device).manual_seed(seed + width)
    like = torch.empty(0, device=device)
    first = empty_lines(num_rows, width, like)
    count = num_inputs(num_rows * first.stride(0) * first.itemsize, l2_bytes(device))
    return [
        x.normal_(generator=generator) for x in [first, *(empty_lines(num_rows, width, like) for _ in range(count - 1))]
    ]


def measure(
    run: Callable[[T], object], inputs: list[T], device: torch.device, seconds: float = 0.5, most: int = 40
) -> Times:
    """``run`` on one input after the other, each run timed by a pair of events; warmed up before.

    On a CPU, where nothing but toys is run, two runs are all.

    Args:
        seconds: that the timed runs may take, beyond the least of 5.
    """
    if device.type == "cpu":
        times = _by_clock(run, inputs, count=2)
    else:
        for x in inputs[:2]:  # the first call compiles
            run(x)
        torch.cuda.synchronize(device)
        begin = time.perf_counter()
        run(inputs[-1])
        torch.cuda.synchronize(device)
        once = max(time.perf_counter() - begin, 1e-6)
        times = _by_events(run, inputs, count=int(max(5, min(most, seconds / once))))
    times.sort()
    return Times(statistics.median(times), times[len(times) // 5], times[-1 - len(times) // 5], len(times))


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _by_events(run: Callable[[T], object], inputs: list[T], count: int) -> list[float]:
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    for turn, (begin, end) in enumerate(events):
        begin.record()
        run(inputs[turn % len(inputs)])
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in events]


def _by_clock(run: Callable[[T], object], inputs: list[T], count: int) -> list[float]:
    times = []
    for turn in range(count):
        begin = time.perf_counter()
        run(inputs[turn % len(inputs)])
        times.append((time.perf_counter() - begin) * 1e3)
    return times
