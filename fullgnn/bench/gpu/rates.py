"""The rates of copies, of gathered rows and of dense products on the device, with which times are compared."""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.gpu.timing import is_toy, l2_bytes, time_on_device
from fullgnn.bench.harness import Cases, Measurement, Results
from fullgnn.distributed import World

ROW_BYTES, TABLES = (64, 128, 192, 256, 512), ("L2", "memory")
PRECISIONS = {"fp32": ("highest", torch.float32), "tf32": ("high", torch.float32), "bf16": ("highest", torch.bfloat16)}
_TILES = ((2048, 4), (4096, 4), (4096, 8))
"""Elements and warps of a program that are tried; the best counts."""

Case = dict[str, Any]
Rate = tuple[bool, float, float]
"""Whether the table lay in the L2, the bytes of a row, and the GB/s."""


def run(cfg: BenchConfig, world: World) -> Results:
    """A case for each rate; a toy measures few of them, on small arrays."""
    cases, toy = Cases(cfg.limit_s, world.device), is_toy(world.device)
    every: list[tuple[Any, Case]] = [(copy, {})]
    every += [(gather, {"row_bytes": row, "table": at}) for row in ROW_BYTES[: 2 if toy else None] for at in TABLES]
    every += [(gemm, {"precision": precision}) for precision in PRECISIONS]
    for measure, case in every:
        yield cases.run(measure.__name__, partial(measure, world, case, toy), case)


def copy(world: World, case: Case, toy: bool) -> Measurement:
    """GB/s of a copy, read and written."""
    source, target = (torch.ones(1 << (14 if toy else 29), device=world.device) for _ in range(2))
    return time_on_device("copy", target.copy_, [source], world, work={"gb_per_s": 2 * source.nbytes})


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
        work = {"gb_per_s": len(sums) * rows_of_sum * row_bytes}
        tried.append(time_on_device("gather", run, [index], world, case=case, work=work))
    best = max(tried, key=lambda measured: measured.details["gb_per_s"])
    work = {"index_select_gb_per_s": num_indices * row_bytes}
    select = partial(torch.index_select, table, 0, out=out)
    best.details.update(time_on_device("index_select", select, [index], world, work=work).details)
    return best


def gemm(world: World, case: Case, toy: bool) -> Measurement:
    """TFLOP/s of a square product through torch."""
    (level, dtype), size = PRECISIONS[case["precision"]], 64 if toy else 4096 if case["precision"] == "fp32" else 8192
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(level)
    try:
        a, b, out = (torch.randn(size, size, device=world.device).to(dtype) for _ in range(3))
        work = {"tflop_per_s": 2 * size**3 / 1e3}
        return time_on_device("gemm", lambda a: torch.mm(a, b, out=out), [a], world, case=case, work=work)
    finally:
        torch.set_float32_matmul_precision(before)


def gather_rates(record: str | None) -> Iterator[Rate]:
    """The rates of gathered rows in a ``record.json`` of op=rates."""
    for row in json.loads(Path(record).read_text())["measurements"] if record else []:
        if row["method"] == "gather":
            yield row["case"]["table"] == "L2", row["case"]["row_bytes"], row["details"]["gb_per_s"]


def rate_at(rates: Iterable[Rate], row_bytes: float, in_l2: bool) -> float | None:
    """GB/s measured for rows of ``row_bytes``, between the measured sizes in proportion; None: not measured."""
    points = sorted((size, rate) for place, size, rate in rates if place == in_l2)
    return float(np.interp(row_bytes, *np.array(points, float).T)) if points else None
