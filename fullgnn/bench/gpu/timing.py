"""Times of operations on the device whose inputs take turns, so that no cache holds an input from its last run."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from fullgnn.kernels.support.aligned import empty_aligned
from fullgnn.telemetry.timing import Times, device_ms, num_repeats, wall_ms

T = TypeVar("T")

L2_MULTIPLE = 4
"""Rotated inputs take at least this many times the L2 cache."""

_MAX_INPUTS = 64
_LEAST_RUNS, _MOST_RUNS, _CPU_RUNS = 5, 40, 2
_CPU_L2_BYTES = 1 << 16  # small, so that a toy run on a CPU rotates as well


def l2_bytes(device: torch.device) -> int:
    """Bytes of the L2 cache of a GPU."""
    return torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else _CPU_L2_BYTES


def num_inputs(bytes_of_one: int, l2: int) -> int:
    """How many inputs take turns: by the time that one is read again, the L2 has seen several times its size."""
    return min(_MAX_INPUTS, max(2, -(-L2_MULTIPLE * l2 // bytes_of_one) + 1))


def rotated(num_rows: int, width: int, device: torch.device, seed: int = 0) -> list[Tensor]:
    """Random (num_rows, width) float32 inputs, ``num_inputs`` of them, laid out as in training."""
    generator = torch.Generator(device).manual_seed(seed + width)
    like = torch.empty(0, device=device)
    first = empty_aligned(num_rows, width, like)
    count = num_inputs(num_rows * first.stride(0) * first.itemsize, l2_bytes(device))
    inputs = [first, *(empty_aligned(num_rows, width, like) for _ in range(count - 1))]
    return [x.normal_(generator=generator) for x in inputs]


def measure(run: Callable[[T], object], inputs: list[T], device: torch.device, seconds: float = 0.5) -> Times:
    """Times of ``run`` on one input after the other, after a warm-up; see ``fullgnn.telemetry.timing.device_ms``.

    A CPU serves toys alone, so there are two runs on a CPU and no warm-up.

    Args:
        seconds: duration of the timed runs; they are 5 at least and 40 at most.
    """
    count = _CPU_RUNS
    if device.type == "cuda":
        for x in inputs[:2]:  # the first call compiles
            run(x)
        once_s = wall_ms(partial(run, inputs[-1]), device) / 1e3
        count = num_repeats(seconds, once_s, _LEAST_RUNS, _MOST_RUNS)
    return Times(device_ms((partial(run, inputs[turn % len(inputs)]) for turn in range(count)), device))
