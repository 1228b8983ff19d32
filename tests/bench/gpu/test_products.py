"""The kernels that are timed, the errors that they may have, and the exact products that they are compared with."""

import pytest
import torch

from fullgnn.bench.gpu.products import CONTESTANTS, FIRST, error_of, exact_rows, sample_rows
from fullgnn.kernels.spmm import TorchCSR
from tests.gpu.blocks import DEVICE, corner, exact, ragged

CPU = torch.device("cpu")


def test_errors_are_over_the_sum_of_magnitudes() -> None:
    """The sum 1e6 - 1e6 + 1 is 1, and an error of 1 is 5e-7 of the sum of the magnitudes."""
    one, magnitude = torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[2e6 + 1]], dtype=torch.float64)
    assert error_of(torch.tensor([[2.0]]), one, magnitude) == pytest.approx(5e-7, rel=1e-3)
    nothing = torch.zeros(1, 1, dtype=torch.float64)
    assert error_of(nothing.float(), nothing, nothing) == 0 and error_of(one.float(), nothing, nothing) == torch.inf
    assert not error_of(torch.tensor([[torch.nan]]), one, magnitude) <= 1.0


@pytest.mark.parametrize("weighted", [False, True])
def test_the_exact_product_is_the_dense_one(weighted: bool) -> None:
    block = ragged(weighted)
    dense = TorchCSR().prepare(block, torch.float64).to_dense()
    stored = (dense != 0).sum(1)
    assert (stored == 0).sum() >= 6 and stored.max() == block.num_cols and stored[-1] == 0
    x = torch.randn(block.num_cols, 130, dtype=torch.float64, device=DEVICE)
    product, magnitude = exact(block, x)
    torch.testing.assert_close(product, dense @ x)
    torch.testing.assert_close(magnitude, dense.abs() @ x.abs())
    if not weighted:
        rows = sample_rows(block)
        torch.testing.assert_close(exact_rows(block, x, rows), product[rows])


def test_a_corner_is_where_a_matrix_ends() -> None:
    block = corner(500, 300, 64, 64)
    assert block.nnz == 64 * 64 and block.indptr[-65] == 0 and block.indices.max() == 299


def test_contestants_are_named_as_the_kernels_name_themselves(triton_on_cpu: None) -> None:
    for name, one in CONTESTANTS.items():
        assert one.name == name == one.make().name_for(DEVICE, torch.float32)


def test_only_the_kernel_that_rounds_may_be_off_by_more() -> None:
    assert {one.tolerance for one in FIRST} == {1e-6} and 2**-8 < CONTESTANTS["csr bf16"].tolerance < 2**-7


def test_a_kernel_that_cannot_serve_says_so() -> None:
    assert CONTESTANTS["torch"].missing(CPU) is None
    assert "GPU" in CONTESTANTS["csr"].missing(CPU)
