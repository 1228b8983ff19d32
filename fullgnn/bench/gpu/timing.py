"""Times of operations on the device whose inputs take turns, so that no cache holds an input from its last run.

A CPU runs toys alone, in Triton's interpreter: there are two runs on a CPU and no warm-up.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from fullgnn.bench.harness import Measurement, Method, attempt, measure, timed
from fullgnn.distributed import World
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import empty_aligned
from fullgnn.kernels.support.rehearsal import rehearsal
from fullgnn.telemetry.timing import num_repeats, wall_ms

T = TypeVar("T")

L2_MULTIPLE = 4
"""Rotated inputs take at least this many times the L2 cache."""

_MAX_INPUTS = 64
_ROUNDS, _MOST_RUNS_OF_ROUND, _CPU_ROUNDS = 5, 8, 2
_CPU_L2_BYTES = 1 << 16  # small, so that a toy run on a CPU rotates as well


def is_toy(device: torch.device) -> bool:
    """Whether this is a run on a CPU; Triton's kernels are then interpreted, if TRITON_INTERPRET=1 asks for it."""
    gpu.INTERPRETED = device.type == "cpu" and gpu.interpreting()
    return device.type == "cpu"


def l2_bytes(device: torch.device) -> int:
    """Bytes of the L2 cache of a GPU."""
    return torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else _CPU_L2_BYTES


def num_inputs(bytes_of_one: int, l2: int) -> int:
    """How many inputs take turns: by the time that one is read again, the L2 has seen several times its size."""
    return min(_MAX_INPUTS, max(2, -(-L2_MULTIPLE * l2 // bytes_of_one) + 1))


def rotated(num_rows: int, width: int, device: torch.device, seed: int = 0) -> list[Tensor]:
    """Random (num_rows, width) float32 inputs, ``num_inputs`` of them, laid out as in training."""
    generator, like = torch.Generator(device).manual_seed(seed + width), torch.empty(0, device=device)
    row_bytes = empty_aligned(1, width, like).stride(0) * like.itemsize
    count = num_inputs(num_rows * row_bytes, l2_bytes(device))
    return [empty_aligned(num_rows, width, like).normal_(generator=generator) for _ in range(count)]


def time_on_device(
    name: str,
    run: Callable[[T], object],
    inputs: Sequence[T],
    world: World,
    seconds: float = 0.5,
    case: dict[str, Any] | None = None,
    work: Mapping[str, float] | None = None,
) -> Measurement:
    """The times of ``run`` on one input after the other.

    Args:
        seconds: duration of the timed runs; there are 5 rounds, each of 1 run to 8.
        case, work: of the method.
    """
    device, turns = world.device, itertools.cycle(inputs)
    at_once, rounds = 1, _CPU_ROUNDS
    if device.type == "cuda":
        for x in inputs[:2]:  # the first call compiles
            run(x)
        once_s = wall_ms(lambda: run(inputs[-1]), device) / 1e3
        at_once, rounds = num_repeats(seconds / _ROUNDS, once_s, 1, _MOST_RUNS_OF_ROUND), _ROUNDS

    def step() -> None:
        run(next(turns))

    method = Method(name, "kernel", timed(step, device, at_once), case=case or {}, work=work or {})
    ((measured,), _) = measure([method], world, rounds, 0, 10 * seconds)
    return measured


def compile_ahead(launches: Iterable[Callable[[], object]], device: torch.device) -> None:
    """Compile on all cores what will be launched; what the compiler refuses is refused again where it is launched."""

    def launch() -> None:
        with rehearsal(len(os.sched_getaffinity(0))):
            for once in launches:
                once()

    if device.type == "cuda":
        attempt(launch)
