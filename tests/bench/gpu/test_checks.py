"""The checks find what is wrong, and pass what is right; on a GPU they check every kernel."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import fullgnn.kernels
from fullgnn.bench.gpu.blocks import corner, full, magnitudes, many_columns, ragged, reference, star, thin, weighted
from fullgnn.bench.gpu.check import compared, equal, error_of
from fullgnn.bench.gpu.checks import (
    WIDTHS,
    check_dropout,
    check_epilogue,
    check_product,
    check_repeats,
    kept_elements,
)
from fullgnn.bench.gpu.contestants import BASELINE, CONTESTANTS, FIRST, ROUNDING, TOYS, Contestant
from fullgnn.bench.gpu.sizes import check_equal_addends, check_offsets_of_out, check_offsets_of_x
from fullgnn.kernels.dropout.mask import Mask
from fullgnn.kernels.dropout.philox import dropout_apply
from fullgnn.kernels.spmm import NOTHING, TorchCSR

CPU = torch.device("cpu")


class Rounding(TorchCSR):
    """Multiplies X as bfloat16."""

    def spmm(self, block, x: Tensor, out: Tensor, accumulate, epilogue=NOTHING) -> None:
        super().spmm(block, x.bfloat16().float(), out, accumulate, epilogue)


class Forgetful(TorchCSR):
    """Leaves the last row of the output as it was."""

    def spmm(self, block, x: Tensor, out: Tensor, accumulate, epilogue=NOTHING) -> None:
        kept = out[-1].clone()
        super().spmm(block, x, out, accumulate, epilogue)
        out[-1] = kept


class Restless(TorchCSR):
    """Changes a bit now and then."""

    turn = 0

    def spmm(self, block, x: Tensor, out: Tensor, accumulate, epilogue=NOTHING) -> None:
        super().spmm(block, x, out, accumulate, epilogue)
        self.turn += 1
        if self.turn == 5:
            out[0, 0] = torch.nextafter(out[0, 0], out.new_tensor(9e9))


class Drifting(TorchCSR):
    """Adds the edges of a row one after the other."""

    def spmm(self, block, x: Tensor, out: Tensor, accumulate, epilogue=NOTHING) -> None:
        for row, (first, last) in enumerate(zip(block.crow_indices()[:-1], block.crow_indices()[1:])):
            out[row] = torch.from_numpy(np.cumsum(x[block.col_indices()[first:last].long()].numpy(), 0)[-1])


class Undropping(TorchCSR):
    """Forgets the dropout of an epilogue."""

    def spmm(self, block, x: Tensor, out: Tensor, accumulate, epilogue=NOTHING) -> None:
        super().spmm(block, x, out, accumulate, replace(epilogue, dropout=None))


@pytest.fixture
def make(monkeypatch):
    def contestant(kind, mode="ieee"):
        monkeypatch.setattr(fullgnn.kernels, kind.__name__, kind, raising=False)
        return Contestant("test", mode, kind.__name__)

    return contestant


@pytest.mark.parametrize(
    "block", [ragged(CPU, toy=True), thin(CPU), weighted(CPU, toy=True)], ids=["ragged", "thin", "weighted"]
)
@pytest.mark.parametrize("width", [1, 41, 128])
def test_what_is_right_passes(block, width):
    checks = [check(BASELINE, "", block, width) for check in (check_product, check_epilogue, check_dropout)]
    assert all(check.passed and check.error < 1e-6 for check in checks)
    assert check_repeats(BASELINE, "", block, width, repeats=3).passed


def test_the_reference_is_the_dense_product():
    for block in (ragged(CPU, toy=True), weighted(CPU, toy=True)):
        dense = TorchCSR().prepare(block, torch.float64).to_dense()
        stored = (dense != 0).sum(1)
        assert (stored == 0).sum() >= 6 and stored.max() == block.num_cols and stored[-1] == 0
        x = torch.randn(block.num_cols, 130, dtype=torch.float64)
        torch.testing.assert_close(reference(block, x), dense @ x)
        torch.testing.assert_close(magnitudes(block, x), dense.abs() @ x.abs())


def test_what_is_wrong_is_found(make):
    block = ragged(CPU)
    assert not check_product(make(Rounding), "", block, 41).passed
    assert not check_product(make(Rounding, "bf16x2"), "", block, 41).passed
    assert check_product(make(Rounding, "bf16"), "", block, 41).passed
    assert not check_product(make(Forgetful), "", block, 41).passed
    assert not check_repeats(make(Restless), "", block, 41, repeats=10).passed
    assert not check_dropout(make(Undropping), "", block, 41).passed


def test_a_running_sum_is_found(make):
    """Rows of 100,000 equal addends: one float32 sum drifts, and torch's sums in parts do not."""
    for block in (lambda: star(100_000, CPU), lambda: full(3, 50_000, CPU)):
        found = check_equal_addends(make(Drifting), "", block, 8)
        assert not found.passed and 1e-6 < found.error < 1e-2


def test_large_matrices_are_looked_at_where_they_end(make):
    assert check_offsets_of_x(BASELINE, 500, 8, CPU).passed and check_offsets_of_out(BASELINE, 500, 8, CPU).passed
    assert not check_offsets_of_out(make(Forgetful), 500, 8, CPU).passed
    block = corner(500, 300, 64, CPU)
    assert block.nnz == 64 * 64 and block.indptr[-65] == 0 and block.indices.max() == 299


def test_errors_are_over_the_sum_of_magnitudes():
    """1e6 - 1e6 + 1: the result is 1, and an error of 1 is 5e-7 of what was added."""
    exact, magnitude = torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[2e6 + 1]], dtype=torch.float64)
    assert error_of(torch.tensor([[2.0]]), exact, magnitude) == pytest.approx(5e-7, rel=1e-3)
    nothing = torch.zeros(1, 1, dtype=torch.float64)
    assert error_of(nothing.float(), nothing, nothing) == 0 and error_of(exact.float(), nothing, nothing) == torch.inf
    assert not compared("", "", "", torch.tensor([[torch.nan]]), exact, magnitude, 1.0).passed
    zero = torch.zeros(2)
    assert equal("", "", "", zero, zero.clone()).passed and not equal("", "", "", zero, -zero).passed


def test_the_mask_of_the_checks_is_that_of_the_dropout():
    mask = Mask(torch.randperm(50), 0.3, 2**40 + 5, torch.tensor(3), 1)
    ones = torch.ones(50, 7)
    found = dropout_apply(ones, mask.node_id, mask.p, mask.seed, mask.epoch, mask.layer)
    assert torch.equal(found > 0, kept_elements(mask, 7)) and 0.5 < kept_elements(mask, 7).float().mean() < 0.9


def test_every_mode_of_every_kernel_is_a_contestant():
    names = set(CONTESTANTS)
    kernels = ["tile32", "packed32", "packed64", "packed128"]
    assert {f"{kernel} {mode}" for kernel in kernels for mode in ROUNDING} <= names
    assert {f"{kernel} bf16x3 planes" for kernel in kernels} | {"csr ieee", "csr bf16", "persistent ieee"} <= names
    assert {one.name for one in TOYS} <= names and all(one.is_float32 for one in FIRST)


def test_tolerances_follow_the_mode(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # which is less precise than a GPU
    tolerance = {one.mode: one.tolerance for one in CONTESTANTS.values()}
    assert tolerance["ieee"] == tolerance["bf16x3"] == 1e-6
    assert 2**-17 < tolerance["bf16x2"] < 1e-5 and 2**-9 < tolerance["bf16"] < 2**-7


def test_a_kernel_that_is_not_there_says_so():
    assert "no attribute" in Contestant("x", "ieee", "NoSuchKernel").missing(CPU)
    assert "argument" in Contestant("x", "ieee", "TorchCSR", {"planes": 3}).missing(CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CONTESTANTS)
def test_kernels_on_a_gpu(name):
    one, device = CONTESTANTS[name], torch.device("cuda")
    if reason := one.missing(device):
        pytest.skip(reason)
    for width in WIDTHS:
        for label, block in {"ragged": ragged(device), "thin": thin(device)}.items():
            for check in (check_product(one, label, block, width), check_repeats(one, label, block, width)):
                assert check.passed, check
    for check in (check_product(one, "many columns", many_columns(device), 41), check_epilogue(one, "", block, 41)):
        assert check.passed, check
