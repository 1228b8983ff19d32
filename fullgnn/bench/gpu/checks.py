"""Every kernel against a product in float64, and against itself: the same bits every time."""

from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor

from fullgnn.bench.gpu.contestants import CONTESTANTS, Contestant
from fullgnn.bench.gpu.random_graph import hierarchical_sbm
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.kernels import NOTHING, Epilogue, LocalCSR
from fullgnn.lines import empty_lines

WIDTHS = (128, 41, 100, 47, 8, 1, 602)
TOY_WIDTHS = (41,)
REPEATS = 100
_COLUMNS_AT_ONCE = 64
_EPILOGUE_WIDTHS = (41, 128)


@dataclass(frozen=True)
class Check:
    """What one check found."""

    kernel: str
    mode: str
    width: int
    block: str
    what: str  # product, epilogue or repeats
    error: float | None  # largest difference over the largest entry
    error_frobenius: float | None
    tolerance: float
    passed: bool


def ragged(device: torch.device, toy: bool = False) -> LocalCSR:
    """Rows of all lengths: every seventh empty, as is the last; one full; and a corner as dense as a community."""
    num_rows, num_cols = (77, 95) if toy else (1237, 1501)
    generator = torch.Generator(device).manual_seed(0)
    mask = torch.rand(num_rows, num_cols, device=device, generator=generator) < 0.02
    corner = mask[: num_rows // 4, : num_cols // 4]
    corner |= torch.rand(corner.shape, device=device, generator=generator) < 0.6
    mask[3::7] = False
    mask[-1] = False
    mask[num_rows // 2] = True
    return _local_csr(mask)


def thin(device: torch.device, toy: bool = False) -> LocalCSR:
    """Fewer rows than any panel, and one entry in most."""
    mask = torch.zeros(5, 3 if toy else 40, dtype=torch.bool, device=device)
    mask[[0, 2, 4], [0, 1, 2]] = True
    return _local_csr(mask)


def many_columns(device: torch.device) -> LocalCSR:
    """More columns than two bytes name, and communities."""
    graph = hierarchical_sbm(70_001, 1_400_000, 16, 0.15, 0, device)
    csr = graph.csr(graph.perm)
    return LocalCSR(csr.indptr, csr.indices, None, csr.num_nodes, csr.num_nodes)


def reference(block: LocalCSR, x: Tensor) -> Tensor:
    """(num_rows, F) float64 product on the device."""
    row = torch.repeat_interleave(
        torch.arange(block.num_rows, device=x.device), block.indptr.long().diff(), output_size=block.nnz
    )
    column = block.indices.long()
    out = torch.zeros(block.num_rows, x.shape[1], dtype=torch.float64, device=x.device)
    for first in range(0, x.shape[1], _COLUMNS_AT_ONCE):
        part = slice(first, first + _COLUMNS_AT_ONCE)
        out[:, part] = out[:, part].index_add(0, row, x[:, part].double().index_select(0, column))
    return out


def errors(found: Tensor, expected: Tensor) -> tuple[float, float]:
    """Largest difference over the largest entry, and relative in the Frobenius norm; NaN if one is not finite."""
    difference = found.double() - expected
    largest = expected.abs().max().clamp(min=1e-300)
    return float(difference.abs().max() / largest), float(difference.norm() / expected.norm().clamp(min=1e-300))


def check_product(one: Contestant, name: str, block: LocalCSR, width: int) -> Check:
    """``A X`` into an output of NaN."""
    x, _ = _operands(block, width)
    return _compare(one, name, block, x, None, "product", NOTHING, reference(block, x))


def check_epilogue(one: Contestant, name: str, block: LocalCSR, width: int) -> Check:
    """relu(diag(scale) (A X + out) + bias), where X and the output are slices of columns of wider matrices."""
    x, generator = _operands(block, width + 8)
    x[:, :8] = torch.nan
    x = x[:, 8:]
    before = torch.randn(block.num_rows, width + 8, device=x.device, generator=generator)[:, 8:]
    scale = torch.rand(block.num_rows, device=x.device, generator=generator)
    bias = torch.randn(width, device=x.device, generator=generator)
    expected = (scale.double()[:, None] * (reference(block, x) + before.double()) + bias.double()).relu()
    return _compare(one, name, block, x, before, "epilogue", Epilogue(scale, bias, relu=True), expected)


def check_repeats(one: Contestant, name: str, block: LocalCSR, width: int, repeats: int = REPEATS) -> Check:
    """The same product again and again: no bit changes."""
    x, _ = _operands(block, width)
    kernel = one.make()
    prepared = kernel.prepare(block, x.dtype)
    first, again = (torch.full((block.num_rows, width), torch.nan, device=x.device) for _ in range(2))
    kernel.spmm(prepared, x, first, accumulate=False)
    equal = torch.ones((), dtype=torch.bool, device=x.device)
    for _ in range(repeats):
        again.fill_(torch.nan)
        kernel.spmm(prepared, x, again, accumulate=False)
        equal &= (again.view(torch.int32) == first.view(torch.int32)).all()
    return Check(one.kernel, one.mode, width, name, "repeats", None, None, one.tolerance, bool(equal))


def _compare(
    one: Contestant,
    name: str,
    block: LocalCSR,
    x: Tensor,
    before: Tensor | None,
    what: str,
    epilogue: Epilogue,
    expected: Tensor,
) -> Check:
    kernel = one.make()
    prepared = kernel.prepare(block, x.dtype)
    out = torch.full((block.num_rows, x.shape[1]), torch.nan, device=x.device) if before is None else before
    kernel.spmm(prepared, x, out, before is not None, epilogue)
    error, frobenius = errors(out, expected)
    return Check(one.kernel, one.mode, x.shape[1], name, what, error, frobenius, one.tolerance, error <= one.tolerance)


def _operands(block: LocalCSR, width: int) -> tuple[Tensor, torch.Generator]:
    """Random X, laid out as in training, and the generator for more."""
    device = block.indices.device
    generator = torch.Generator(device).manual_seed(width)
    x = empty_lines(block.num_cols, width, torch.empty(0, device=device))
    x.as_strided((len(x), x.stride(0)), (x.stride(0), 1)).fill_(torch.nan)  # what lies between rows must not count
    return x.normal_(generator=generator), generator


def _local_csr(mask: Tensor) -> LocalCSR:
    row, column = mask.nonzero(as_tuple=True)
    indptr = torch.searchsorted(row, torch.arange(len(mask) + 1, device=mask.device))
    return LocalCSR(indptr.int(), column.int(), None, *mask.shape)


def run(task: Task, report: Report) -> None:
    """The checks of ``task.arguments["cases"]``, pairs of a contestant and a width; an item each."""
    device, toy = task.device, task.toy
    blocks = {"ragged": ragged(device, toy), "thin": thin(device, toy)}
    if not toy:
        blocks["many columns"] = many_columns(device)

    def all_of(one: Contestant, width: int) -> None:
        found = [
            check_product(one, name, block, width)
            for name, block in blocks.items()
            if width <= 128 or name != "many columns"
        ]
        if width in _EPILOGUE_WIDTHS:
            found.append(check_epilogue(one, "ragged", blocks["ragged"], width))
        found.append(check_repeats(one, "ragged", blocks["ragged"], width, 2 if toy else REPEATS))
        for check in found:
            report.add(["checks"], asdict(check))

    missing: dict[str, str | None] = {name: CONTESTANTS[name].missing(device) for name, _ in task.arguments["cases"]}
    for name, reason in missing.items():
        if reason is not None:
            report.missing(name, reason)
    for name, width in task.arguments["cases"]:
        if missing[name] is None and not task.ended_by(name):
            report.item(f"{name}, width {width}", partial(all_of, CONTESTANTS[name], width))
