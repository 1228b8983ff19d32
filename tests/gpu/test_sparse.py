"""Every sparse kernel against a product in float64, at the sizes of a GPU; tiny ones in Triton's interpreter.

The error of an element is relative to the sum of the magnitudes of its addends.
"""

import pytest
import torch
from torch import Tensor

from fullgnn.bench.gpu.products import BASELINE, CONTESTANTS, CSR, FIRST, FLOAT32, PACKED, TILE32, Contestant, error_of
from fullgnn.kernels.dropout.philox import Mask
from fullgnn.kernels.spmm import NO_EPILOGUE, AutoKernel, Epilogue, LocalCSR
from fullgnn.kernels.support.aligned import empty_aligned
from tests.gpu.blocks import ON_GPU, corner, exact, full, many_columns, ragged, seeded, star, thin
from tests.gpu.sparse import CORNER, LARGE, skip_without_memory
from tests.oracle import philox_words
from tests.triton_device import DEVICE, needs_triton

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]  # NumPy warns of padding

KERNELS = CONTESTANTS if ON_GPU else {rival.name: rival for rival in FIRST if rival != BASELINE}
AUTO = Contestant("auto", AutoKernel)
EVERY_KIND = [CSR, TILE32, PACKED]
WIDTHS = (128, 41, 100, 47, 8, 1, 602) if ON_GPU else (10,)
EPILOGUE_WIDTHS = (10, 41, 128) if ON_GPU else (10,)
LONG = (64, 131_072 if ON_GPU else 640)
"""A full matrix of this shape has, on a GPU, panels that are cut into parts."""


@pytest.fixture(autouse=True)
def _triton_on_cpu(triton_on_cpu: None) -> None:
    """Every test runs on a CPU where there is no GPU."""


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, Contestant) else None


def multiply(
    rival: Contestant, block: LocalCSR, x: Tensor, out: Tensor | None = None, epilogue: Epilogue = NO_EPILOGUE
) -> Tensor:
    """The product, added to ``out`` where it is given, else written over NaNs."""
    kernel, accumulate = rival.make(), out is not None
    out = x.new_full((block.num_rows, x.shape[1]), torch.nan) if out is None else out
    kernel.spmm(kernel.prepare(block, x.dtype), x, out, accumulate, epilogue)
    return out


def random_rows(num_rows: int, width: int) -> Tensor:
    """Random rows laid out as in training, with NaNs in the padding."""
    x = empty_aligned(num_rows, width, torch.empty(0, device=DEVICE))
    x.as_strided((num_rows, x.stride(0)), (x.stride(0), 1)).fill_(torch.nan)
    return x.normal_(generator=seeded(width))


def scale_and_bias(block: LocalCSR, width: int) -> tuple[Tensor, Tensor]:
    generator = seeded(width + 1)
    scale = torch.rand(block.num_rows, device=DEVICE, generator=generator)
    return scale, torch.randn(width, device=DEVICE, generator=generator)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rival", [*KERNELS.values(), *([AUTO] if ON_GPU else [])], ids=name_of)
def test_product(rival: Contestant, width: int) -> None:
    blocks = [ragged(), thin(), ragged(weighted=True), *([many_columns()] if ON_GPU and width <= 128 else [])]
    for block in blocks:
        x = random_rows(block.num_cols, width)
        assert error_of(multiply(rival, block, x), *exact(block, x)) <= rival.tolerance, block


@pytest.mark.parametrize("width", EPILOGUE_WIDTHS)
@pytest.mark.parametrize("rival", KERNELS.values(), ids=name_of)
def test_epilogue_in_slices_of_wider_matrices(rival: Contestant, width: int) -> None:
    """The result is relu(diag(scale) (A X + out) + bias)."""
    block = ragged()
    x = random_rows(block.num_cols, width + 8)
    x[:, :8] = torch.nan
    x, out = x[:, 8:], torch.randn(block.num_rows, width + 8, device=DEVICE, generator=seeded(3))[:, 8:]
    scale, bias = scale_and_bias(block, width)
    product, magnitude = exact(block, x)
    expected = (scale.double()[:, None] * (product + out.double()) + bias.double()).relu()
    bound = scale.double()[:, None] * (magnitude + out.double().abs()) + bias.double().abs()
    assert error_of(multiply(rival, block, x, out, Epilogue(scale, bias, True)), expected, bound) <= rival.tolerance


@pytest.mark.parametrize("width", EPILOGUE_WIDTHS)
@pytest.mark.parametrize("rival", KERNELS.values(), ids=name_of)
def test_dropout_in_the_epilogue(rival: Contestant, width: int) -> None:
    """The result is dropout(relu(diag(scale) A X + bias)), with the mask of the definition in NumPy."""
    block = ragged()
    x = random_rows(block.num_cols, width)
    scale, bias = scale_and_bias(block, width)
    node_id = torch.randperm(block.num_rows, generator=torch.Generator().manual_seed(0))
    kept = torch.from_numpy(philox_words(node_id.numpy(), width, 1, 3, 5) >= 2**31).to(DEVICE)
    mask = Mask(node_id.to(DEVICE), 0.5, 5, torch.tensor(3, device=DEVICE), 1)
    product, magnitude = exact(block, x)
    expected = torch.where(kept, 2 * (scale.double()[:, None] * product + bias.double()).relu(), 0)
    bound = torch.where(kept, 2 * (scale.double()[:, None] * magnitude + bias.double().abs()), 0)
    computed = multiply(rival, block, x, None, Epilogue(scale, bias, True, mask))
    assert error_of(computed, expected, bound) <= rival.tolerance


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rival", [rival for rival in KERNELS.values() if rival != BASELINE], ids=name_of)
def test_no_bit_changes_in_100_products(rival: Contestant, width: int) -> None:
    """cuSPARSE promises no order, and had other bits in each of 100 products on an H100. Rows and panels are also cut
    into parts on a GPU."""
    for block in (ragged(), full(*LONG)) if ON_GPU else (ragged(),):
        x, kernel = random_rows(block.num_cols, width), rival.make()
        prepared = kernel.prepare(block, x.dtype)
        first, again = (torch.full((block.num_rows, width), torch.nan, device=DEVICE) for _ in range(2))
        kernel.spmm(prepared, x, first, accumulate=False)
        changed = torch.zeros((), dtype=torch.int32, device=DEVICE)
        for _ in range(100 if ON_GPU else 1):
            again.fill_(torch.nan)
            kernel.spmm(prepared, x, again, accumulate=False)
            changed += (again.view(torch.int32) != first.view(torch.int32)).any()
        assert changed == 0


@pytest.mark.parametrize("width", (8, 128) if ON_GPU else (8,))
@pytest.mark.parametrize("rival", EVERY_KIND, ids=name_of)
def test_equal_addends(rival: Contestant, width: int) -> None:
    """Every element of X is 0.1, the worst case of a running sum in float32: a row of 4 million edges, and panels of
    131,072 columns."""
    block = full(*LONG)
    if rival == CSR:
        block = star(4_194_304 if ON_GPU else 2000)
    x = random_rows(block.num_cols, width).fill_(0.1)
    expected, _ = exact(block, x)
    assert error_of(multiply(rival, block, x), expected, expected) <= FLOAT32


@pytest.mark.gpu
@pytest.mark.parametrize("rival", EVERY_KIND, ids=name_of)
def test_offsets_of_x(rival: Contestant) -> None:
    """Rows of X beyond 2^31 elements are read."""
    skip_without_memory()
    num_rows, width = LARGE
    x = torch.full((num_rows, width), 1e9, device=DEVICE)  # a row that is read by mistake shows
    x[-CORNER:] = random_rows(CORNER, width)
    expected = exact(full(CORNER, CORNER), x[-CORNER:])
    computed = multiply(rival, corner(CORNER, num_rows, CORNER, CORNER), x)
    assert error_of(computed, *expected) <= rival.tolerance


@pytest.mark.gpu
@pytest.mark.parametrize("rival", EVERY_KIND, ids=name_of)
def test_offsets_of_the_output(rival: Contestant) -> None:
    """Rows of the output beyond 2^31 elements are written, also the empty ones."""
    skip_without_memory()
    num_rows, width = LARGE
    x = random_rows(CORNER, width)
    computed = multiply(rival, corner(num_rows, CORNER, CORNER, CORNER), x)
    assert error_of(computed[-CORNER:], *exact(full(CORNER, CORNER), x)) <= rival.tolerance
    assert computed[:-CORNER].max() == 0 == computed[:-CORNER].min(), "an empty row is not 0"
