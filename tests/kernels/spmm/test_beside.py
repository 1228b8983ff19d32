"""[A X | rows of X] W in one pass, against dense float64, and against the steps one after the other, to the bit."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.kernels.dense.dense import matmul
from fullgnn.kernels.spmm import Epilogue, LocalCSR, beside
from fullgnn.kernels.spmm.beside import BLOCK_ROWS, multiplies_beside, spmm_beside_linear
from fullgnn.kernels.spmm.single_use import SingleUseCSR
from fullgnn.kernels.support import aligned
from fullgnn.nn import Activation, Dropout
from tests.kernels.dense.dense import REGISTERS, integers, within

NUM_COLS = 700
ROWS = 24, BLOCK_ROWS + 1, 3 * BLOCK_ROWS + 5, 500
WIDTHS = [(1, 1), (5, 16), (16, 47), (100, 64), (130, 7), (130, 200)]
CASES = [
    *(("AVX-512", torch.float32, f, h) for f, h in WIDTHS),
    *(("AVX-512", torch.float64, f, h) for f, h in ((1, 1), (100, 64))),
    *((kind, torch.float32, f, h) for kind in ("AVX2", "NEON") for f, h in ((5, 16), (100, 64))),
]


def matrix(num_rows: int, weighted: bool, dtype: torch.dtype) -> tuple[LocalCSR, Tensor]:
    """A matrix with empty rows, short ones, and some of hundreds of entries; and its dense form in float64."""
    rng = np.random.default_rng(num_rows)
    lengths = rng.choice([0, 1, 5, 5, 5, 33, 64, 600], num_rows)
    columns = np.concatenate([rng.choice(NUM_COLS, length, replace=False) for length in lengths])
    values = rng.integers(1, 4, len(columns)) if weighted else np.ones(len(columns))
    dense = np.zeros((num_rows, NUM_COLS))
    dense[np.repeat(np.arange(num_rows), lengths), columns] = values
    indptr = torch.from_numpy(np.concatenate([[0], lengths.cumsum()])).int()
    entries = torch.from_numpy(values).to(dtype) if weighted else None
    return LocalCSR(indptr, torch.from_numpy(columns).int(), entries, num_rows, NUM_COLS), torch.from_numpy(dense)


@pytest.mark.sample(7)
@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weights"])
@pytest.mark.parametrize(("kind", "dtype", "f", "h"), CASES)
def test_both_results(
    kind: str, dtype: torch.dtype, f: int, h: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (aligned, beside):
        monkeypatch.setattr(module, "registers", lambda: REGISTERS[kind])
    for number, num_rows in enumerate(ROWS):
        adj, dense = matrix(num_rows, weighted, dtype)
        x, weight, bias = (integers(*shape, dtype=dtype, seed=f) for shape in ((NUM_COLS, f), (2 * f, h), (h,)))
        own = torch.randint(NUM_COLS, (num_rows,), generator=torch.Generator().manual_seed(h), dtype=torch.int32)
        scale = torch.tensor([1, 2, 4, 0.5])[torch.arange(num_rows) % 4].to(dtype) if number % 2 else None
        exact_ax = dense @ x.double() * (1 if scale is None else scale.double()[:, None])
        exact = torch.cat([exact_ax, x.double()[own]], dim=1) @ weight.double()
        for epilogue, expected in ((Epilogue(), exact), (Epilogue(None, bias, relu=True), (exact + bias).relu())):
            ax, y = spmm_beside_linear(adj, within(x, number), own, scale, weight, epilogue)
            assert torch.equal(ax.double(), exact_ax) and torch.equal(y.double(), expected), num_rows


@pytest.mark.sample(3)
@pytest.mark.parametrize(("f", "h"), [(100, 64), (128, 47), (70, 3)])
def test_the_bits_are_those_of_the_steps_whatever_the_threads(f: int, h: int) -> None:
    adj, _ = matrix(1000, False, torch.float32)
    generator = torch.Generator().manual_seed(1)
    x, weight, bias, scale = (
        torch.randn(shape, generator=generator) for shape in ((NUM_COLS, f), (2 * f, h), (h,), (1000,))
    )
    own = torch.randint(NUM_COLS, (1000,), generator=generator, dtype=torch.int32)
    dropout = Dropout(0.4, 1, 7)
    dropout.epoch.fill_(3)
    epilogue = Activation(True, dropout.mask(torch.arange(1000))).epilogue(bias)
    both, kernel = torch.empty(1000, 2 * f), SingleUseCSR()
    kernel.spmm(kernel.prepare(adj, torch.float32), x, both[:, :f], False, Epilogue(scale))
    both[:, f:] = x[own]
    expected = matmul(both, weight, epilogue)
    assert (expected == 0).any() and (expected > 0).any()
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        ax, y = spmm_beside_linear(adj, x, own, scale, weight, epilogue)
        assert torch.equal(ax, both[:, :f]) and torch.equal(y, expected)


def test_what_is_too_small_or_of_another_dtype_is_left_to_the_steps() -> None:
    adj, _ = matrix(500, False, torch.float32)
    small, _ = matrix(2, False, torch.float32)
    x = torch.zeros(NUM_COLS, 4)
    assert multiplies_beside(adj, x, 64) and multiplies_beside(adj, x.double(), 64)
    assert not any(
        multiplies_beside(*arguments)
        for arguments in ((small, x, 64), (adj, x.bfloat16(), 64), (adj, x[:, :0], 64), (adj, x, 0))
    )
