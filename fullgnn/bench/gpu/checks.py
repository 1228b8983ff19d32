"""Every sparse kernel against a product in float64, and against itself: the same bits every time."""

from dataclasses import asdict
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fullgnn.bench.gpu.blocks import magnitudes, many_columns, ragged, reference, thin, weighted
from fullgnn.bench.gpu.check import Check, compared, equal
from fullgnn.bench.gpu.contestants import CONTESTANTS, CSR, FIRST, PERSISTENT, Contestant
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.kernels.dropout.mask import Mask
from fullgnn.kernels.dropout.philox import philox_4x32
from fullgnn.kernels.spmm import NOTHING, Epilogue, LocalCSR
from fullgnn.kernels.support.lines import empty_lines

WIDTHS = (128, 41, 100, 47, 8, 1, 602)
TOY_WIDTHS = (10,)
REPEATS = 100
_EPILOGUE_WIDTHS = (10, 41, 128)
_SEED, _EPOCH, _LAYER = 5, 3, 1  # of the dropout of an epilogue


def check_product(one: Contestant, name: str, block: LocalCSR, width: int) -> Check:
    """``A X`` into an output of NaN."""
    x, _ = operands(block, width)
    out = torch.full((block.num_rows, width), torch.nan, device=x.device)
    _multiply(one, block, x, out, False, NOTHING)
    return compared(one.name, "product", name, out, reference(block, x), magnitudes(block, x), one.tolerance)


def check_epilogue(one: Contestant, name: str, block: LocalCSR, width: int) -> Check:
    """relu(diag(scale) (A X + out) + bias), where X and the output are slices of columns of wider matrices."""
    x, generator = operands(block, width + 8)
    x[:, :8] = torch.nan
    x = x[:, 8:]
    out = torch.randn(block.num_rows, width + 8, device=x.device, generator=generator)[:, 8:]
    scale, bias = _scale_and_bias(block, width, generator)
    expected, magnitude = _after_epilogue(block, x, out, scale, bias)
    _multiply(one, block, x, out, True, Epilogue(scale, bias, relu=True))
    return compared(one.name, "epilogue", name, out, expected.relu(), magnitude, one.tolerance)


def check_dropout(one: Contestant, name: str, block: LocalCSR, width: int) -> Check:
    """dropout(relu(diag(scale) A X + bias)), with the mask of the reference in numpy."""
    x, generator = operands(block, width)
    scale, bias = _scale_and_bias(block, width, generator)
    node_id = torch.randperm(block.num_rows, device=x.device, generator=generator)
    mask = Mask(node_id, 0.5, _SEED, torch.full((), _EPOCH, device=x.device), _LAYER)
    out = torch.full((block.num_rows, width), torch.nan, device=x.device)
    expected, magnitude = _after_epilogue(block, x, None, scale, bias)
    kept = kept_elements(mask, width)
    _multiply(one, block, x, out, False, Epilogue(scale, bias, relu=True, dropout=mask))
    expected = torch.where(kept, expected.relu() * mask.scale, 0.0)
    magnitude = torch.where(kept, magnitude * mask.scale, 0.0)
    return compared(one.name, "epilogue with dropout", name, out, expected, magnitude, one.tolerance)


def check_repeats(one: Contestant, name: str, block: LocalCSR, width: int, repeats: int = REPEATS) -> Check:
    """The same product again and again: no bit changes."""
    x, _ = operands(block, width)
    kernel = one.make()
    prepared = kernel.prepare(block, x.dtype)
    first, again = (torch.full((block.num_rows, width), torch.nan, device=x.device) for _ in range(2))
    kernel.spmm(prepared, x, first, accumulate=False)
    changed = torch.zeros((), dtype=torch.int32, device=x.device)
    for _ in range(repeats):
        again.fill_(torch.nan)
        kernel.spmm(prepared, x, again, accumulate=False)
        changed += (again.view(torch.int32) != first.view(torch.int32)).any()
    return equal(one.name, "repeats", name, changed, torch.zeros_like(changed), f"{repeats} products")


def kept_elements(mask: Mask, width: int) -> Tensor:
    """(num_rows, width) bool: what the dropout keeps, by the reference in numpy."""
    node_id, group = mask.node_id.cpu().numpy(), np.arange(-(-width // 4))
    counter = np.empty((len(node_id), len(group), 4), np.uint32)
    counter[..., 0], counter[..., 1] = node_id[:, None], group
    counter[..., 2], counter[..., 3] = mask.layer, int(mask.epoch)
    words = philox_4x32(counter, np.array([mask.seed & 0xFFFFFFFF, mask.seed >> 32], np.uint32))
    kept = words.reshape(len(node_id), -1)[:, :width] >= mask.threshold
    return torch.from_numpy(kept).to(mask.node_id.device)


def operands(block: LocalCSR, width: int) -> tuple[Tensor, torch.Generator]:
    """Random X, laid out as in training, and the generator for more."""
    device = block.indices.device
    generator = torch.Generator(device).manual_seed(width)
    x = empty_lines(block.num_cols, width, torch.empty(0, device=device))
    x.as_strided((len(x), x.stride(0)), (x.stride(0), 1)).fill_(torch.nan)  # what lies between rows must not count
    return x.normal_(generator=generator), generator


def _multiply(one: Contestant, block: LocalCSR, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue) -> None:
    kernel = one.make()
    kernel.spmm(kernel.prepare(block, x.dtype), x, out, accumulate, epilogue)


def _scale_and_bias(block: LocalCSR, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    device = block.indices.device
    return (
        torch.rand(block.num_rows, device=device, generator=generator),
        torch.randn(width, device=device, generator=generator),
    )


def _after_epilogue(
    block: LocalCSR, x: Tensor, before: Tensor | None, scale: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """diag(scale) (A X + before) + bias in float64, and the magnitude of its addends."""
    expected, magnitude = reference(block, x), magnitudes(block, x)
    if before is not None:
        expected, magnitude = expected + before.double(), magnitude + before.double().abs()
    scales, biases = scale.double()[:, None], bias.double()
    return scales * expected + biases, scales * magnitude + biases.abs()


def run(task: Task, report: Report) -> None:
    """The checks of ``task.arguments["cases"]``, pairs of a contestant and a width; an item each."""
    device, toy = task.device, task.toy
    blocks = {"ragged": ragged(device, toy), "thin": thin(device, toy), "weighted": weighted(device, toy)}
    if not toy:
        blocks["many columns"] = many_columns(device)
    thorough = {one.name for one in FIRST}  # a toy leaves it at one product of the others

    def all_of(one: Contestant, width: int) -> None:
        for name, block in blocks.items():
            if toy and name == "weighted" and one not in (CSR, PERSISTENT):
                continue  # the others leave weighted edges to the first of these
            if width <= 128 or name != "many columns":
                report.add(["checks"], asdict(check_product(one, name, block, width)))
            if toy and one.name not in thorough:
                return
        if width in _EPILOGUE_WIDTHS:
            for check in (check_epilogue, check_dropout):
                report.add(["checks"], asdict(check(one, "ragged", blocks["ragged"], width)))
        repeats = check_repeats(one, "ragged", blocks["ragged"], width, 1 if toy else REPEATS)
        report.add(["checks"], asdict(repeats))

    missing = {name: CONTESTANTS[name].missing(device) for name, _ in task.arguments["cases"]}
    for name, reason in missing.items():
        if reason is not None:
            report.missing(name, reason)
    for name, width in task.arguments["cases"]:
        if missing[name] is None and not task.ended_by(name):
            report.item(f"{name}, width {width}", partial(all_of, CONTESTANTS[name], width))
