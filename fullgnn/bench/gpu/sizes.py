"""Sums of millions of addends, panels as long as a graph, and offsets beyond 2^31: what small checks cannot see."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import torch

from fullgnn.bench.gpu.blocks import corner, full, magnitudes, reference, star
from fullgnn.bench.gpu.check import Check, compared
from fullgnn.bench.gpu.contestants import CONTESTANTS, CSR, FLOAT32, PACKED, PERSISTENT, TILE32, Contestant
from fullgnn.bench.gpu.operations import DOT
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.kernels.dense.dense import activation_gradients, matmul_lines
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.support.lines import empty_lines

LARGE = (18_000_000, 128)
"""A matrix of 9.2 GB in float32, with more than 2^31 elements."""
_CORNER = 64
_PANELS = [one for one in CONTESTANTS.values() if one.mode == "bf16x3" and one.kind != "AutoKernel"]


def check_equal_addends(one: Contestant, case: str, make_block: Callable[[], LocalCSR], width: int) -> Check:
    """Every element of X is 0.1: a running sum in float32 drifts."""
    block = make_block()
    x = empty_lines(block.num_cols, width, torch.empty(0, device=block.indices.device)).fill_(0.1)
    out = x.new_full((block.num_rows, width), torch.nan)
    kernel = one.make()
    kernel.spmm(kernel.prepare(block, x.dtype), x, out, accumulate=False)
    expected = reference(block, x)
    return compared(one.name, "equal addends", case, out, expected, expected, FLOAT32)


def check_offsets_of_x(one: Contestant, num_rows: int, width: int, device: torch.device) -> Check:
    """Rows of X beyond 2^31 elements are read."""
    block = corner(_CORNER, num_rows, _CORNER, device)
    x = torch.full((num_rows, width), 1e9, device=device)  # what a row adds that should not be read shows
    x[-_CORNER:] = torch.randn(_CORNER, width, device=device, generator=torch.Generator(device).manual_seed(0))
    out = torch.full((_CORNER, width), torch.nan, device=device)
    kernel = one.make()
    kernel.spmm(kernel.prepare(block, x.dtype), x, out, accumulate=False)
    small = corner(_CORNER, _CORNER, _CORNER, device)
    expected, magnitude = reference(small, x[-_CORNER:]), magnitudes(small, x[-_CORNER:])
    return compared(one.name, "offsets", f"X of {num_rows} rows", out, expected, magnitude, one.tolerance)


def check_offsets_of_out(one: Contestant, num_rows: int, width: int, device: torch.device) -> Check:
    """Rows of the output beyond 2^31 elements are written, the empty ones too."""
    block = corner(num_rows, _CORNER, _CORNER, device)
    x = torch.randn(_CORNER, width, device=device, generator=torch.Generator(device).manual_seed(0))
    out = torch.full((num_rows, width), torch.nan, device=device)
    kernel = one.make()
    kernel.spmm(kernel.prepare(block, x.dtype), x, out, accumulate=False)
    small = corner(_CORNER, _CORNER, _CORNER, device)
    expected, magnitude = reference(small, x), magnitudes(small, x)
    found = compared(
        one.name, "offsets", f"output of {num_rows} rows", out[-_CORNER:], expected, magnitude, one.tolerance
    )
    rest = out[:-_CORNER]
    empty = bool(rest.max() == 0) and bool(rest.min() == 0)  # NaN is neither
    return found if empty else Check(**{**asdict(found), "passed": False, "said": "an empty row is not 0"})


def check_offsets_of_dense(num_rows: int, width: int, device: torch.device) -> list[Check]:
    """The last rows of X W and of the gradient of a ReLU of a matrix of more than 2^31 elements."""
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(num_rows, width, device=device, generator=generator)
    weight = torch.randn(width, 8, device=device, generator=generator)
    scale = torch.rand(num_rows, device=device, generator=generator)
    case, last = f"{num_rows} x {width}", slice(-_CORNER, None)
    found = matmul_lines(x, weight, scale)[last]
    end, row_scale = x[last].double(), scale[last].double()[:, None]
    exact, bound = end @ weight.double() * row_scale, end.abs() @ weight.double().abs() * row_scale
    product = compared("matmul_lines", "offsets", case, found, exact, bound, DOT)
    masked, _ = activation_gradients(x, x, 1.0, scale)
    expected = end.relu() * row_scale
    return [product, compared("activation_gradients", "offsets", case, masked[last], expected, expected, FLOAT32)]


def run(task: Task, report: Report) -> None:
    device, toy = task.device, task.toy
    num_addends, panel_cols = (5_000, 640) if toy else (4_194_304, 131_072)
    num_rows, width = (300, 8) if toy else LARGE

    def item(name: str, check: Callable[[], Check | list[Check]], needed_bytes: float = 0) -> None:
        if needed_bytes and not toy and torch.cuda.mem_get_info(device)[0] < needed_bytes:
            report.missing(name, f"{needed_bytes / 1e9:.0f} GB of free memory are needed")
            return

        def once() -> None:
            found = check()
            for one in found if isinstance(found, list) else [found]:
                report.add(["checks"], asdict(one))
            if not toy:
                torch.cuda.empty_cache()

        report.item(name, once, limit_s=40)

    def there(contestants: list[Contestant]) -> list[Contestant]:
        return [one for one in contestants if one.missing(device) is None and not task.ended_by(one.name)]

    for columns in (8,) if toy else (8, 128):
        for one in there([CSR, PERSISTENT]):
            case = f"a row of {num_addends} edges"
            check = partial(check_equal_addends, one, case, partial(star, num_addends, device), columns)
            item(f"{one.name}, {case}, width {columns}", check)
        for one in there([TILE32, PACKED] if toy else _PANELS):
            case = f"panels of {panel_cols} columns"
            check = partial(check_equal_addends, one, case, partial(full, 64, panel_cols, device), columns)
            item(f"{one.name}, {case}, width {columns}", check)
    large = 4.5 * num_rows * width
    for one in there([CSR, PERSISTENT, TILE32, PACKED]):
        item(f"{one.name}, offsets of X", partial(check_offsets_of_x, one, num_rows, width, device), large)
        item(f"{one.name}, offsets of the output", partial(check_offsets_of_out, one, num_rows, width, device), large)
    item("dense, offsets", partial(check_offsets_of_dense, num_rows, width, device), 2.5 * large)
