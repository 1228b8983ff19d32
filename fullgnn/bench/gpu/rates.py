"""Times of operations on the device, and its rates, to compare with: of copies, gathered rows and dense products.

The inputs of an operation take turns, so that no cache holds an input from its last run. A CPU runs toys alone, in
Triton's interpreter: there are two runs on a CPU and no warm-up.
"""

import itertools
import json
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.harness import Cases, Measurement, Method, Results, attempt, measure, rate, timed
from fullgnn.distributed import World
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import empty_aligned
from fullgnn.kernels.support.rehearsal import rehearsal
from fullgnn.telemetry.timing import num_repeats, wall_ms

ROW_BYTES, TABLES = (64, 128, 192, 256, 512), ("L2", "memory")
PRECISIONS = {"fp32": ("highest", torch.float32), "tf32": ("high", torch.float32), "bf16": ("highest", torch.bfloat16)}
_TILES = ((2048, 4), (4096, 4), (4096, 8))
"""Elements and warps of a program that are tried; the best counts."""

L2_MULTIPLE = 4
"""Rotated inputs take at least this many times the L2 cache."""

_MAX_INPUTS = 64
_ROUNDS, _MOST_RUNS_OF_ROUND, _CPU_ROUNDS = 5, 8, 2
_CPU_L2_BYTES = 1 << 16  # small, so that a toy run on a CPU rotates as well

T = TypeVar("T")
Case = dict[str, Any]


def run(cfg: BenchConfig, world: World) -> Results:
    """A case for each rate; a toy measures few of them, on small arrays."""
    cases, toy = Cases(cfg.limit_s, world.device), is_toy(world.device)
    every: list[tuple[Any, Case]] = [(copy, {})]
    every += [(gather, {"row_bytes": row, "table": at}) for row in ROW_BYTES[: 2 if toy else None] for at in TABLES]
    every += [(gemm, {"precision": precision}) for precision in PRECISIONS]
    for measured, case in every:
        yield cases.run(measured.__name__, partial(measured, world, case, toy), case)


def copy(world: World, case: Case, toy: bool) -> Measurement:
    """GB/s of a copy, read and written."""
    source, target = (torch.ones(1 << (14 if toy else 29), device=world.device) for _ in range(2))
    return time_on_device("copy", target.copy_, [source], world, about=rate("gb_per_s", 2 * source.nbytes))


def gather(world: World, case: Case, toy: bool) -> Measurement:
    """GB/s of whole rows read at random places of a table, by our kernel and by ``index_select``, which writes too."""
    # Here, not above: it imports Triton, without which the other rates are measured.
    from fullgnn.bench.gpu._gather_gpu import gather_sum

    device, row_bytes, l2 = world.device, case["row_bytes"], l2_bytes(world.device)
    num_rows, width = max(1, (l2 // 4 if case["table"] == "L2" else 16 * l2) // row_bytes), row_bytes // 4
    table, num_indices = torch.randn(num_rows, width, device=device), 1 << (12 if toy else 22)
    index = torch.randint(num_rows, (num_indices,), dtype=torch.int32, device=device)
    out = torch.empty(num_indices, width, device=device)
    tried = []
    for elements, num_warps in _TILES[: 1 if toy else None]:
        sums, rows_of_sum = gather_sum(table, index, elements, num_warps)
        if not torch.allclose(sums[0].double(), table[index[:rows_of_sum].long()].double().sum(0), atol=1e-2):
            raise ArithmeticError(f"the gathered rows of {row_bytes} bytes have another sum")
        run = partial(gather_sum, table, elements=elements, num_warps=num_warps)
        about = rate("gb_per_s", len(sums) * rows_of_sum * row_bytes)
        tried.append(time_on_device("gather", run, [index], world, case=case, about=about))
    best = max(tried, key=lambda measured: measured.details["gb_per_s"])
    select, about = partial(torch.index_select, table, 0, out=out), rate("index_select_gb_per_s", 4 * out.numel())
    best.details.update(time_on_device("index_select", select, [index], world, about=about).details)
    return best


def gemm(world: World, case: Case, toy: bool) -> Measurement:
    """TFLOP/s of a square product through torch."""
    (level, dtype), size = PRECISIONS[case["precision"]], 64 if toy else 4096 if case["precision"] == "fp32" else 8192
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(level)
    try:
        a, b, out = (torch.randn(size, size, device=world.device).to(dtype) for _ in range(3))
        run, about = partial(torch.mm, mat2=b, out=out), rate("tflop_per_s", 2 * size**3 / 1e3)
        return time_on_device("gemm", run, [a], world, case=case, about=about)
    finally:
        torch.set_float32_matmul_precision(before)


def gather_rate(record: str | None, row_bytes: float, in_l2: bool) -> float | None:
    """GB/s of gathered rows of ``row_bytes``, between those of a ``record.json`` of op=rates in proportion; None: not
    measured."""
    rows = json.loads(Path(record).read_text())["measurements"] if record else []
    of_place = [row for row in rows if row["method"] == "gather" and (row["case"]["table"] == "L2") == in_l2]
    points = sorted((row["case"]["row_bytes"], row["details"]["gb_per_s"]) for row in of_place)
    return float(np.interp(row_bytes, *np.array(points, float).T)) if points else None


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
    case: Case | None = None,
    about: Callable[[Measurement], dict[str, Any]] | None = None,
) -> Measurement:
    """The times of ``run`` on one input after the other.

    Args:
        seconds: duration of the timed runs; there are 5 rounds, each of 1 run to 8.
        case, about: of the method.
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

    method = Method(name, "kernel", timed(step, device, at_once), case=case or {}, about=about)
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
