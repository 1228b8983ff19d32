"""The epilogue in one kernel against one operation after the other. Small integers make all results exact."""

from itertools import product

import pytest
import torch

from fullgnn.kernels.dropout.philox import Mask
from fullgnn.kernels.epilogue.epilogue import apply_epilogue_
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue
from tests.oracle import philox_words
from tests.triton_device import DEVICE, needs_triton

pytestmark = needs_triton


@pytest.fixture(autouse=True)
def _triton_on_cpu(triton_on_cpu) -> None:
    """Every test runs on a CPU where there is no GPU."""


WIDTHS = [1, 3, 8, 16, 41, 47, 64, 100, 128, 129, 602]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("num_columns", "dtype"), [*((width, torch.float32) for width in WIDTHS), (41, torch.float64), (64, torch.float64)]
)
def test_every_combination_of_parts(num_columns: int, dtype: torch.dtype) -> None:
    n = 23
    generator = torch.Generator().manual_seed(0)
    node_id = torch.randint(0, 2**32, (n,), generator=generator)
    y, scale, bias = (
        torch.randint(-3, 4, shape, generator=generator).to(dtype) for shape in ((n, num_columns), (n,), (num_columns,))
    )
    mask = Mask(node_id.to(DEVICE), 0.5, 2**40 + 3, torch.tensor(5, device=DEVICE), 2)
    kept = torch.from_numpy(philox_words(node_id.numpy(), num_columns, 2, 5, 2**40 + 3) >= 2**31)
    for scaled, biased, relu, drops in product([False, True], repeat=4):
        epilogue = Epilogue(
            scale.to(DEVICE) if scaled else None, bias.to(DEVICE) if biased else None, relu, mask if drops else None
        )
        exact = y.double()
        exact = scale.double()[:, None] * exact if scaled else exact
        exact = exact + bias.double() if biased else exact
        exact = exact.relu() if relu else exact
        exact = torch.where(kept, 2 * exact, 0) if drops else exact
        margin = 0 if scaled else 8 if biased else 1
        frame = torch.full((n, num_columns + 2 * margin), torch.nan, dtype=dtype, device=DEVICE)
        inner = frame[:, margin : margin + num_columns].copy_(y)
        assert apply_epilogue_(inner, epilogue) is inner
        assert torch.equal(inner.cpu().double(), exact), (epilogue, margin)
        assert frame.isnan().sum() == 2 * margin * n
    rows = slice(5, 19)
    assert torch.equal(apply_epilogue_(y[rows].to(DEVICE), epilogue.of(rows)).cpu().double(), exact[rows]), (
        "some rows of the last epilogue, which has every part"
    )


def test_nothing_and_no_rows() -> None:
    y = torch.randn(3, 5, device=DEVICE)
    assert torch.equal(apply_epilogue_(y.clone(), NO_EPILOGUE), y)
    for shape in ((0, 5), (5, 0)):
        empty = torch.empty(shape, device=DEVICE)
        assert apply_epilogue_(empty, Epilogue(None, torch.empty(shape[1], device=DEVICE), relu=True)).shape == shape


def test_a_nan_shows() -> None:
    y = torch.tensor([[torch.nan, -1, 1]], device=DEVICE)
    y = apply_epilogue_(y, Epilogue(None, None, relu=True))
    assert y[0, 0].isnan() and y[0, 1:].tolist() == [0, 1]
