"""Rates that the device reaches with copies, gathered rows and dense products; times are compared with them."""

from functools import partial
from typing import Any

import numpy as np
import torch

from fullgnn.bench.gpu.timing import l2_bytes, measure
from fullgnn.bench.gpu.worker import Report, Task

ROW_BYTES = (64, 128, 192, 256, 512)
PRECISIONS = {"fp32": ("highest", torch.float32), "tf32": ("high", torch.float32), "bf16": ("highest", torch.bfloat16)}
_TILES = ((2048, 4), (4096, 4), (4096, 8))
"""Elements and warps of a program that are tried; the best counts."""


def copy_rate(device: torch.device, num_bytes: int) -> float:
    """GB/s of a copy on the device, read and written."""
    source, target = (torch.ones(num_bytes // 4, device=device) for _ in range(2))
    return 2 * num_bytes / measure(target.copy_, [source, source], device).median_ms / 1e6


def gather_rate(device: torch.device, row_bytes: int, table_bytes: int, num_indices: int, toy: bool) -> dict[str, Any]:
    """GB/s of whole rows read at random places of a table, by our kernel and by ``index_select``, which writes too."""
    # Here, not above: it imports Triton, without which the other rates are measured.
    from fullgnn.bench.gpu._gather_gpu import STEPS, GatherSum

    num_rows, width = max(1, table_bytes // row_bytes), row_bytes // 4
    table = torch.randn(num_rows, width, device=device)
    index = torch.randint(num_rows, (num_indices,), dtype=torch.int32, device=device)
    out = torch.empty(num_indices, width, device=device)
    rates = []
    for elements, num_warps in _TILES[:1] if toy else _TILES:
        gather = GatherSum(width, elements, num_warps)
        expected = table[index[: gather.rows_at_once * STEPS].long()].double().sum(0)
        if not torch.allclose(gather(table, index)[0].double(), expected, atol=1e-2):
            raise ArithmeticError(f"the gathered rows of {row_bytes} bytes have another sum")
        times = measure(partial(gather, table), [index, index], device)
        rates.append(gather.num_gathered(index) * row_bytes / times.median_ms / 1e6)
    select = measure(lambda at: torch.index_select(table, 0, at, out=out), [index, index], device)
    return {
        "row_bytes": row_bytes,
        "table_bytes": num_rows * row_bytes,
        "gathered_gb_s": max(rates),
        "index_select_gb_s": num_indices * row_bytes / select.median_ms / 1e6,
    }


def gemm_rate(device: torch.device, precision: str, size: int) -> float:
    """TFLOP/s of a square product through torch."""
    level, dtype = PRECISIONS[precision]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(level)
    try:
        a, b, out = (torch.randn(size, size, device=device).to(dtype) for _ in range(3))
        times = measure(lambda left: torch.mm(left, b, out=out), [a, a], device)
    finally:
        torch.set_float32_matmul_precision(before)
    return 2 * size**3 / times.median_ms / 1e9


def rate_at(rates: list[dict[str, Any]], row_bytes: float, resident: bool) -> float | None:
    """GB/s measured for rows of ``row_bytes``, between the measured sizes in proportion; None: not measured.

    Args:
        rates: as ``gather_rate`` returns them, with ``resident``: whether the table lay in the L2.
    """
    points = sorted((rate["row_bytes"], rate["gathered_gb_s"]) for rate in rates if rate["resident"] == resident)
    return float(np.interp(row_bytes, *np.array(points, float).T)) if points else None


def run(task: Task, report: Report) -> None:
    """A case for each rate; a toy measures few of them, on small arrays."""
    device, toy = task.device, task.toy
    l2 = l2_bytes(device)

    def copy() -> None:
        report.put(["rates", "copy_gb_s"], copy_rate(device, 1 << (16 if toy else 31)))

    def gather(row_bytes: int, resident: bool) -> None:
        found = gather_rate(device, row_bytes, l2 // 4 if resident else 16 * l2, 1 << (12 if toy else 22), toy)
        report.add(["rates", "gather"], {**found, "resident": resident})

    def gemm(precision: str) -> None:
        rate = gemm_rate(device, precision, 64 if toy else 4096 if precision == "fp32" else 8192)
        report.put(["rates", "gemm", f"{precision}_tflop_s"], rate)

    report.put(["rates", "l2_bytes"], l2)
    report.item("copy", copy)
    for row_bytes in ROW_BYTES[:2] if toy else ROW_BYTES:
        for resident in (True, False):
            place = "in the L2" if resident else "in memory"
            report.item(f"gather {row_bytes} bytes {place}", partial(gather, row_bytes, resident))
    for precision in PRECISIONS:
        report.item(f"gemm {precision}", partial(gemm, precision))
