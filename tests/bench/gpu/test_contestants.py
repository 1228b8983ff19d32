"""The kernels that are timed, the errors that they may have, and the exact products that they are compared with."""

import pytest
import torch

from fullgnn.bench.exact import error_of, exact_rows, sample_rows
from fullgnn.bench.gpu.contestants import CONTESTANTS, FIRST, ROUNDING
from fullgnn.kernels.spmm import TorchCSR
from fullgnn.kernels.spmm.panels import MODES
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


def test_every_mode_of_every_kernel_is_a_contestant() -> None:
    names = set(CONTESTANTS)
    assert {f"{kernel} {mode}" for kernel in ("tile32", "packed") for mode in MODES} | {"csr ieee", "csr bf16"} < names
    assert all(one.name == name for name, one in CONTESTANTS.items())
    assert all(ROUNDING[one.mode] == 0 for one in FIRST)


def test_tolerances_follow_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # the interpreter is less precise than a GPU
    tolerance = {one.mode: one.tolerance for one in CONTESTANTS.values()}
    assert tolerance["ieee"] == tolerance["bf16x3"] == 1e-6
    assert 2**-17 < tolerance["bf16x2"] < 1e-5 and 2**-9 < tolerance["bf16"] < 2**-7


def test_a_kernel_that_cannot_serve_says_so() -> None:
    assert CONTESTANTS["torch ieee"].missing(CPU) is None
    assert "GPU" in CONTESTANTS["csr ieee"].missing(CPU)
