"""Measure the rates of copies, of gathered rows and of dense products on the device, with which times are compared."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from fullgnn.bench.gpu.timing import l2_bytes, measure
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.telemetry.timing import copy_rate

ROW_BYTES = (64, 128, 192, 256, 512)
PRECISIONS = {"fp32": ("highest", torch.float32), "tf32": ("high", torch.float32), "bf16": ("highest", torch.bfloat16)}
_TILES = ((2048, 4), (4096, 4), (4096, 8))
"""Elements and warps of a program that are tried; the best counts."""


def gather_rate(device: torch.device, row_bytes: int, table_bytes: int, num_indices: int, toy: bool) -> dict[str, Any]:
    """GB/s of whole rows read at random places of a table, by our kernel and by ``index_select``, which writes too."""
    # Here, not above: it imports Triton, without which the other rates are measured.
    from fullgnn.bench.gpu._gather_gpu import gather_sum

    num_rows, width = max(1, table_bytes // row_bytes), row_bytes // 4
    table = torch.randn(num_rows, width, device=device)
    index = torch.randint(num_rows, (num_indices,), dtype=torch.int32, device=device)
    out = torch.empty(num_indices, width, device=device)
    rates = []
    for elements, num_warps in _TILES[:1] if toy else _TILES:
        sums, rows_of_sum = gather_sum(table, index, elements, num_warps)
        if not torch.allclose(sums[0].double(), table[index[:rows_of_sum].long()].double().sum(0), atol=1e-2):
            raise ArithmeticError(f"the gathered rows of {row_bytes} bytes have another sum")
        seconds = _seconds(partial(gather_sum, table, index, elements, num_warps), device)
        rates.append(len(sums) * rows_of_sum * row_bytes / seconds / 1e9)
    select_s = _seconds(partial(torch.index_select, table, 0, index, out=out), device)
    return {
        "row_bytes": row_bytes,
        "table_bytes": num_rows * row_bytes,
        "gathered_gb_s": max(rates),
        "index_select_gb_s": num_indices * row_bytes / select_s / 1e9,
    }


def gemm_rate(device: torch.device, precision: str, size: int) -> float:
    """TFLOP/s of a square product through torch."""
    level, dtype = PRECISIONS[precision]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(level)
    try:
        a, b, out = (torch.randn(size, size, device=device).to(dtype) for _ in range(3))
        return 2 * size**3 / _seconds(partial(torch.mm, a, b, out=out), device) / 1e12
    finally:
        torch.set_float32_matmul_precision(before)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Median seconds of one call."""
    return measure(lambda _: work(), [None, None], device).median_ms / 1e3


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
        rate = copy_rate(device, 1 << (16 if toy else 31), partial(_seconds, device=device))
        report.put(["rates", "copy_gb_s"], rate / 1e9)

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
