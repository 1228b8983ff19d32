"""The dense operations of a training step against float64: products, gradients, cross-entropy, dropout, epilogues."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.gpu.check import Check, compared, equal
from fullgnn.bench.gpu.checks import kept_elements
from fullgnn.bench.gpu.contestants import FLOAT32
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.kernels.dense.dense import linear_gradients, matmul, matmul_lines
from fullgnn.kernels.dropout.mask import Mask
from fullgnn.kernels.dropout.philox import dropout_
from fullgnn.kernels.epilogue.apply import apply_epilogue_
from fullgnn.kernels.loss.cross_entropy import cross_entropy
from fullgnn.kernels.spmm import Epilogue
from fullgnn.kernels.support.lines import empty_lines

DOT = 4e-6
"""Error of a dense product over its sum of magnitudes: of a number split into two of TF32's precision 2^-22 is lost,
of each operand, and the tensor cores add up to 602 columns in float32."""

LAYERS = ((602, 128), (128, 41), (128, 8), (128, 10), (100, 64), (64, 47))
"""(depth, columns) of the layers of the four models."""
TOY_LAYERS = ((20, 8), (8, 5))

EXPONENTIAL = 4e-6
"""Error of a loss, and of the gradient of a logit, over the largest it may be: exp and log are approximations."""


def check_matmul(num_rows: int, depth: int, columns: int, device: torch.device) -> list[Check]:
    """dropout(relu(X W + b)) and diag(scale) X W."""
    x, generator = _random(num_rows, depth, device)
    weight = torch.randn(depth, columns, device=device, generator=generator)
    bias = torch.randn(columns, device=device, generator=generator)
    scale = torch.rand(num_rows, device=device, generator=generator)
    mask = _mask_of(num_rows, device, generator)
    exact, magnitude = x.double() @ weight.double(), x.double().abs() @ weight.double().abs()
    kept = kept_elements(mask, columns)
    case = f"{num_rows} x {depth} x {columns}"
    found = matmul(x, weight, Epilogue(None, bias, relu=True, dropout=mask))
    expected = torch.where(kept, (exact + bias.double()).relu() * mask.scale, 0.0)
    bound = torch.where(kept, (magnitude + bias.double().abs()) * mask.scale, 0.0)
    scaled = matmul_lines(x, weight, scale)
    row_scale = scale.double()[:, None]
    return [
        compared("matmul", "bias, ReLU, dropout", case, found, expected, bound, DOT),
        compared("matmul_lines", "scaled rows", case, scaled, exact * row_scale, magnitude * row_scale, DOT),
    ]


def check_gradients(num_rows: int, depth: int, columns: int, device: torch.device, level: bool = False) -> list[Check]:
    """X^T G', the column sums of G', and G', of a ReLU with dropout.

    Args:
        level: all of X and G are equal, the worst case for a running sum.
    """
    x, generator = _random(num_rows, depth, device)
    g = torch.randn(num_rows, columns, device=device, generator=generator)
    if level:
        x.fill_(0.1)
        g.fill_(0.1)
    output = torch.randn(num_rows, columns, device=device, generator=generator).relu_()
    if level:
        output.fill_(1.0)
    case = f"{num_rows} x {depth} x {columns}" + (", equal addends" if level else "")
    masked = torch.where(output > 0, g.double() * 2.0, 0.0)
    exact, magnitude = (a.double().t() @ b for a, b in ((x, masked), (x.abs(), masked.abs())))
    sums, most = masked.sum(0), masked.abs().sum(0)
    gradient, found_sums, found = linear_gradients(x, g, output, 2.0, keep_masked=True)
    assert found is not None
    return [
        compared("linear_gradients", "X^T G'", case, gradient, exact, magnitude, FLOAT32),
        compared("linear_gradients", "column sums", case, found_sums, sums, most, FLOAT32),
        compared("linear_gradients", "G'", case, found, masked, masked.abs(), FLOAT32),
    ]


def check_cross_entropy(num_rows: int, num_classes: int, device: torch.device, level: bool = False) -> list[Check]:
    """The loss and its gradient; ``level``: all rows are equal."""
    logits, generator = _random(num_rows, num_classes, device)
    labels = torch.randint(num_classes, (num_rows,), device=device, generator=generator)
    if level:
        logits.copy_(logits[:1].clone().expand_as(logits))
        labels.zero_()
    wide = logits.double().requires_grad_()
    expected = F.cross_entropy(wide, labels, reduction="sum") / num_rows
    (gradient,) = torch.autograd.grad(expected, wide)
    loss, found = cross_entropy(logits, labels, 1 / num_rows)
    case = f"{num_rows} x {num_classes}" + (", equal rows" if level else "")
    bound = torch.full_like(gradient, 1 / num_rows)
    return [
        compared("cross_entropy", "loss", case, loss, expected.detach(), expected.detach(), EXPONENTIAL),
        compared("cross_entropy", "gradient", case, found, gradient, bound, EXPONENTIAL),
    ]


def check_dropout(num_rows: int, columns: int, device: torch.device) -> list[Check]:
    """Dropout in place, against the mask of the reference in numpy: to the bit."""
    x, generator = _random(num_rows, columns, device)
    x = x.contiguous()
    mask = _mask_of(num_rows, device, generator)
    expected = torch.where(kept_elements(mask, columns), x * mask.scale, 0.0)
    dropout_(x, mask.node_id, mask.p, mask.seed, mask.epoch, mask.layer)
    return [equal("dropout", "mask and values", f"{num_rows} x {columns}", x, expected)]


def check_epilogue(num_rows: int, columns: int, device: torch.device) -> list[Check]:
    """An epilogue alone, in one pass."""
    y, generator = _random(num_rows, columns, device)
    y = y.contiguous()
    scale = torch.rand(num_rows, device=device, generator=generator)
    bias = torch.randn(columns, device=device, generator=generator)
    mask = _mask_of(num_rows, device, generator)
    kept = kept_elements(mask, columns)
    scaled = y.double() * scale.double()[:, None]
    expected = torch.where(kept, (scaled + bias.double()).relu() * mask.scale, 0.0)
    bound = torch.where(kept, (scaled.abs() + bias.double().abs()) * mask.scale, 0.0)
    found = apply_epilogue_(y, Epilogue(scale, bias, relu=True, dropout=mask))
    return [compared("epilogue", "every part", f"{num_rows} x {columns}", found, expected, bound, FLOAT32)]


def _random(num_rows: int, columns: int, device: torch.device) -> tuple[Tensor, torch.Generator]:
    """Numbers in rows laid out as in training, and the generator for more."""
    generator = torch.Generator(device).manual_seed(columns)
    like = torch.empty(0, device=device)
    return empty_lines(num_rows, columns, like).normal_(generator=generator), generator


def _mask_of(num_rows: int, device: torch.device, generator: torch.Generator) -> Mask:
    node_id = torch.randperm(num_rows, device=device, generator=generator)
    return Mask(node_id, 0.5, 7, torch.full((), 2, device=device), 0)


def run(task: Task, report: Report) -> None:
    """An item for each operation and size."""
    device, toy = task.device, task.toy
    num_rows, many = (97, 300) if toy else (20_011, 4_000_037)

    def item(name: str, *checks: Callable[[], list[Check]]) -> None:
        def all_of() -> None:
            for check in checks:
                for found in check():
                    report.add(["checks"], asdict(found))

        report.item(name, all_of)

    for depth, columns in TOY_LAYERS if toy else LAYERS:
        sizes = (num_rows, depth, columns, device)
        item(f"matmul {depth} x {columns}", partial(check_matmul, *sizes))
        item(f"gradients {depth} x {columns}", partial(check_gradients, *sizes))
        item(f"cross_entropy {columns}", partial(check_cross_entropy, num_rows, columns, device))
        item(f"dropout {columns}", partial(check_dropout, num_rows, columns, device))
        item(f"epilogue {columns}", partial(check_epilogue, num_rows, columns, device))
    # Few columns: float64 copies of millions of rows are made beside them.
    item("gradients, equal addends", partial(check_gradients, many, 32, 16, device, level=True))
    item("cross_entropy, equal rows", partial(check_cross_entropy, many, 8, device, level=True))
