"""The dense operations of a training step against float64, at the sizes of a GPU; tiny ones in Triton's interpreter.

The error of an element is relative to the sum of the magnitudes of its addends.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.gpu.products import FLOAT32, error_of
from fullgnn.kernels.dense.dense import activation_gradients, linear_gradients, matmul, matmul_aligned
from fullgnn.kernels.dropout.philox import Mask, drop_
from fullgnn.kernels.epilogue.epilogue import apply_epilogue_
from fullgnn.kernels.loss.cross_entropy import cross_entropy
from fullgnn.kernels.spmm import Epilogue
from fullgnn.kernels.support.aligned import empty_aligned
from tests.gpu.blocks import ON_GPU, seeded
from tests.gpu.sparse import CORNER, LARGE, skip_without_memory
from tests.oracle import philox_words
from tests.triton_device import DEVICE, needs_triton

pytestmark = needs_triton

DOT = 4e-6
"""Error of a dense product over its sum of magnitudes. cuBLAS adds up to 602 columns in float32: on an H100 the error
was at most 4.6e-7, and in TF32 it was at least 1e-4 (docs/results/gpu_h100_2026-11-26.md)."""

EXPONENTIAL = 4e-6
"""Error of a loss over the loss, and of a logit's gradient over 1 / num_rows: exp and log are approximations."""

LAYERS = ((602, 128), (128, 41), (128, 8), (128, 10), (100, 64), (64, 47)) if ON_GPU else ((20, 8), (8, 5))
"""(depth, columns) of the layers of the four models."""
NUM_ROWS, MANY = (20_011, 4_000_037) if ON_GPU else (97, 300)


@pytest.fixture(autouse=True)
def _triton_on_cpu(triton_on_cpu: None) -> None:
    """Every test runs on a CPU where there is no GPU."""


def randoms(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Random tensors, with matrices laid out as in training."""
    generator, like = seeded(0), torch.empty(0, device=DEVICE)
    some = [empty_aligned(*shape, like) if len(shape) == 2 else like.new_empty(shape) for shape in shapes]
    return [x.normal_(generator=generator) for x in some]


def mask_and_kept(num_rows: int, columns: int) -> tuple[Mask, Tensor]:
    """A dropout mask with p = 0.5, and the elements that the definition in NumPy keeps."""
    node_id = torch.randperm(num_rows, generator=torch.Generator().manual_seed(0))
    kept = torch.from_numpy(philox_words(node_id.numpy(), columns, 0, 2, 7) >= 2**31)
    return Mask(node_id.to(DEVICE), 0.5, 7, torch.tensor(2, device=DEVICE), 0), kept.to(DEVICE)


@pytest.mark.parametrize(("depth", "columns"), LAYERS)
def test_products(depth: int, columns: int) -> None:
    """The products are dropout(relu(X W + b)) and diag(scale) X W."""
    x, weight, bias, scale = randoms((NUM_ROWS, depth), (depth, columns), (columns,), (NUM_ROWS,))
    mask, kept = mask_and_kept(NUM_ROWS, columns)
    exact, magnitude = x.double() @ weight.double(), x.double().abs() @ weight.double().abs()
    expected = torch.where(kept, 2 * (exact + bias.double()).relu(), 0)
    bound = torch.where(kept, 2 * (magnitude + bias.double().abs()), 0)
    assert error_of(matmul(x, weight, Epilogue(None, bias, True, mask)), expected, bound) <= DOT
    by_row = scale.double()[:, None]
    assert error_of(matmul_aligned(x, weight, scale), exact * by_row, magnitude * by_row.abs()) <= DOT


def check_gradients(x: Tensor, g: Tensor, output: Tensor) -> None:
    """Check X^T G', the column sums of G', and G', where G' is G masked by a ReLU with dropout."""
    masked = torch.where(output > 0, g.double() * 2, 0)
    gradient, sums, g_masked = linear_gradients(x, g, output, 2.0, keep_masked=True)
    exact, magnitude = x.double().t() @ masked, x.double().abs().t() @ masked.abs()
    assert error_of(gradient, exact, magnitude) <= FLOAT32
    assert error_of(sums, masked.sum(0), masked.abs().sum(0)) <= FLOAT32
    assert g_masked is not None and error_of(g_masked, masked, masked.abs()) <= FLOAT32


def check_loss(logits: Tensor, labels: Tensor) -> None:
    wide = logits.double().requires_grad_()
    expected = F.cross_entropy(wide, labels)
    (gradient,) = torch.autograd.grad(expected, wide)
    loss, computed = cross_entropy(logits, labels, 1 / len(logits))
    assert error_of(loss, expected.detach(), expected.detach()) <= EXPONENTIAL
    assert error_of(computed, gradient, torch.full_like(gradient, 1 / len(logits))) <= EXPONENTIAL


@pytest.mark.parametrize(("depth", "columns"), LAYERS)
def test_gradients(depth: int, columns: int) -> None:
    check_gradients(*randoms((NUM_ROWS, depth), (NUM_ROWS, columns), (NUM_ROWS, columns)))


@pytest.mark.parametrize("num_classes", sorted({columns for _, columns in LAYERS}))
def test_cross_entropy(num_classes: int) -> None:
    labels = torch.randint(num_classes, (NUM_ROWS,), device=DEVICE, generator=seeded(1))
    check_loss(*randoms((NUM_ROWS, num_classes)), labels)


def test_millions_of_equal_addends() -> None:
    """Equal addends are the worst case of a running sum. The columns are few because the test makes float64 copies."""
    x, g, output = randoms((MANY, 32), (MANY, 16), (MANY, 16))
    check_gradients(x.fill_(0.1), g.fill_(0.1), output.fill_(1.0))
    logits = randoms((1, 8))[0].expand(MANY, 8).contiguous()
    check_loss(logits, torch.zeros(MANY, dtype=torch.int64, device=DEVICE))


@pytest.mark.parametrize("columns", sorted({columns for _, columns in LAYERS}))
def test_dropout_and_epilogue(columns: int) -> None:
    """Dropout in place is equal to the bit; an epilogue without a product has every part."""
    (y, scale, bias), (mask, kept) = (
        randoms((NUM_ROWS, columns), (NUM_ROWS,), (columns,)),
        mask_and_kept(NUM_ROWS, columns),
    )
    y = y.contiguous()
    dropped = drop_(y.clone(), mask)
    assert torch.equal(dropped, torch.where(kept, 2 * y, 0))
    scaled = y.double() * scale.double()[:, None]
    expected = torch.where(kept, 2 * (scaled + bias.double()).relu(), 0)
    bound = torch.where(kept, 2 * (scaled.abs() + bias.double().abs()), 0)
    assert error_of(apply_epilogue_(y, Epilogue(scale, bias, True, mask)), expected, bound) <= FLOAT32


@pytest.mark.gpu
def test_offsets() -> None:
    """The last rows of X W and of a ReLU's gradient are right where X has more than 2^31 elements."""
    skip_without_memory()
    num_rows, width = LARGE
    x = torch.randn(num_rows, width, device=DEVICE, generator=seeded(0))
    weight, scale = randoms((width, 8), (num_rows,))
    end, by_row = x[-CORNER:].double(), scale[-CORNER:].double()[:, None]
    bound = end.abs() @ weight.double().abs() * by_row.abs()
    assert error_of(matmul_aligned(x, weight, scale)[-CORNER:], end @ weight.double() * by_row, bound) <= DOT
    masked, _ = activation_gradients(x, x, 1.0, scale)
    expected = end.relu() * by_row
    assert error_of(masked[-CORNER:], expected, expected.abs()) <= FLOAT32
