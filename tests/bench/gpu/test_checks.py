"""The checks find what is wrong, and pass what is right; on a GPU they check every kernel."""

import pytest
import torch
from torch import Tensor

import fullgnn.kernels
from fullgnn.bench.gpu.checks import (
    WIDTHS,
    check_epilogue,
    check_product,
    check_repeats,
    many_columns,
    ragged,
    reference,
    thin,
)
from fullgnn.bench.gpu.contestants import BASELINE, CONTESTANTS, MODES, Contestant
from fullgnn.kernels import NOTHING, TorchCSR

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


@pytest.fixture
def make(monkeypatch):
    def contestant(kind, mode="ieee"):
        monkeypatch.setattr(fullgnn.kernels, kind.__name__, kind, raising=False)
        return Contestant("test", mode, kind.__name__)

    return contestant


@pytest.mark.parametrize("block", [ragged(CPU, toy=True), ragged(CPU), thin(CPU)], ids=["toy", "ragged", "thin"])
@pytest.mark.parametrize("width", [1, 41, 128])
def test_what_is_right_passes(block, width):
    checks = [check_product(BASELINE, "", block, width), check_epilogue(BASELINE, "", block, width)]
    assert all(check.passed and check.error < 5e-6 for check in checks)
    assert check_repeats(BASELINE, "", block, width, repeats=3).passed


def test_the_reference_is_the_dense_product():
    block = ragged(CPU, toy=True)
    dense = TorchCSR().prepare(block, torch.float64).to_dense()
    degree = dense.sum(1)
    assert (degree == 0).sum() >= 11 and degree.max() == block.num_cols and degree[-1] == 0
    x = torch.randn(block.num_cols, 130, dtype=torch.float64)
    torch.testing.assert_close(reference(block, x), dense @ x)


def test_what_is_wrong_is_found(make):
    block = ragged(CPU)
    assert not check_product(make(Rounding), "", block, 41).passed
    assert check_product(make(Rounding, "bf16"), "", block, 41).passed
    assert not check_product(make(Forgetful), "", block, 41).passed
    assert not check_repeats(make(Restless), "", block, 41, repeats=10).passed


def test_every_mode_of_every_kernel_is_a_contestant():
    names = {one.name for one in CONTESTANTS.values()}
    kernels = ["tile32", "packed32", "packed64", "packed128"]
    assert {f"{kernel} {mode}" for kernel in kernels for mode in MODES} | {"csr ieee", "csr bf16"} <= names


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
