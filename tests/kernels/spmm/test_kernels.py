"""Every kernel against a dense product in float64. All numbers are small integers, so every sum is exact."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fullgnn.errors import UnsupportedError
from fullgnn.kernels.spmm import AutoKernel, BlockedCSR, Epilogue, Kernel, LocalCSR, TorchCSR, blocked
from tests.kernels.spmm.matrices import Matrix, integers, local_csr

WIDTHS = [1, 3, 8, 15, 16, 17, 41, 47, 64, 100, 128, 129, 602]
WIDTHS_OF_A_SAMPLE = [1, 3, 16, 41, 47, 129, 602]
DTYPES = [torch.float32, torch.float64]


MATRICES = {
    "one block": Matrix(60, 500, 9),
    "three blocks of 2000": Matrix(50, 6000, 200),
    "two blocks of 10,000, one when narrow": Matrix(120, 20_000, 24),
    "ids in two bytes": Matrix(30, 70_000, 24),
    "ids beyond two bytes": Matrix(30, 70_000, 2),
    "a huge row": Matrix(40, 5000, 3, hub=13),
    "one row": Matrix(1, 5000, 2, hub=0),
    "one column": Matrix(100, 1, 0.5),
    "one element": Matrix(1, 1, 1),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weighted"])
@pytest.mark.parametrize("degree", [100, 13_161, 1 << 22])
def test_long_sums_are_exact_to_working_precision(degree: int, weighted: bool) -> None:
    """The error is at most 1e-6 of the sum of magnitudes, for random addends and for equal ones, where every rounding
    of a running sum goes the same way; in one block of columns and in many, with and without ``accumulate``."""
    generator = torch.Generator().manual_seed(0)
    width = 16 if degree < 1 << 20 else 2
    indptr = torch.tensor([0, degree, degree + 1, 2 * degree + 1], dtype=torch.int32)
    every = torch.arange(degree, dtype=torch.int32)
    indices = torch.cat([every, torch.zeros(1, dtype=torch.int32), every])
    values = torch.full((len(indices),), 0.7) if weighted else None
    kernel = BlockedCSR()
    block = kernel.prepare(LocalCSR(indptr, indices, values, 3, degree), torch.float32)
    equal = torch.rand(width, generator=generator) + 0.05
    for x in (equal.expand(degree, width).contiguous(), torch.rand(degree, width, generator=generator)):
        for before in (0.0, 3.0):
            out = torch.full((3, width), before)
            kernel.spmm(block, x, out, accumulate=before > 0)
            exact = (np.float32(0.7) if weighted else 1.0) * x.double().sum(0) + before
            assert ((out[0].double() - exact).abs() <= 1e-6 * exact).all(), (degree, before)
            assert torch.equal(out[0], out[2])


@pytest.mark.parametrize("degree", [20, 5000])
def test_infinities_and_nans_stay_what_they_are(degree: int) -> None:
    x = torch.ones(degree, 3)
    x[7, 0], x[9, 1] = torch.inf, torch.nan
    indptr, indices = torch.tensor([0, degree], dtype=torch.int32), torch.arange(degree, dtype=torch.int32)
    kernel, out = BlockedCSR(), torch.empty(1, 3)
    kernel.spmm(kernel.prepare(LocalCSR(indptr, indices, None, 1, degree), torch.float32), x, out, accumulate=False)
    torch.testing.assert_close(out, torch.tensor([[torch.inf, torch.nan, degree]]), rtol=0, atol=0, equal_nan=True)


@pytest.mark.sample(7)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weighted"])
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("make", [TorchCSR, BlockedCSR])
def test_product(
    make: Callable[[], Kernel],
    name: str,
    weighted: bool,
    dtype: torch.dtype,
    every_case: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every width, contiguous or within a wider matrix, with and without ``accumulate`` and an epilogue.

    NaNs lie around X and in an output that must be overwritten, and would show; nothing around the output may change.
    """
    monkeypatch.setattr(blocked, "MIN_SHARED_LINES", 0)
    kernel = make()
    adj, dense = local_csr(MATRICES[name].mask(), weighted)
    block = kernel.prepare(adj, dtype)
    scale, bias = integers(adj.num_rows, dtype=dtype, seed=2), integers(max(WIDTHS), dtype=dtype, seed=5)
    widths = WIDTHS if every_case else WIDTHS_OF_A_SAMPLE
    for number, width in enumerate(widths if adj.num_cols < 50_000 else [1, 16, 47, 129]):
        torch.set_num_threads(1 + number % 3)
        margin = number % 2
        x_frame = torch.full((adj.num_cols + 2, width + 7 * margin), torch.nan, dtype=dtype)
        x = x_frame[1:-1, 3 * margin : 3 * margin + width]
        x.copy_(integers(adj.num_cols, width, dtype=dtype, seed=3))
        product = dense @ x.double()
        for accumulate in (False, True):
            for scaled, biased, relu in (
                (False, False, False),
                (True, False, False),
                (False, True, True),
                (True, True, True),
            ):
                frame = integers(adj.num_rows + 4, width + 9 * margin, dtype=dtype, seed=4)
                out = frame[2:-2, 5 * margin : 5 * margin + width]
                expected = product + out.double() if accumulate else product
                epilogue = Epilogue(scale if scaled else None, bias[:width] if biased else None, relu)
                expected = scale.double()[:, None] * expected if scaled else expected
                expected = expected + bias[:width].double() if biased else expected
                expected = expected.relu() if relu else expected
                if not accumulate:
                    out.fill_(torch.nan)
                expected_frame = frame.clone()
                expected_frame[2:-2, 5 * margin : 5 * margin + width] = expected
                kernel.spmm(block, x, out, accumulate, epilogue)
                assert torch.equal(frame, expected_frame), (width, accumulate, scaled, biased, relu)


@pytest.mark.sample(5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weighted"])
@pytest.mark.parametrize("width", [5, 64, 129])
def test_the_number_of_threads_changes_no_bit(width: int, weighted: bool, dtype: torch.dtype, monkeypatch) -> None:
    monkeypatch.setattr(blocked, "MIN_SHARED_LINES", 0)
    adj, _ = local_csr(Matrix(300, 5000, 120, hub=100).mask(), weighted)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(adj.num_cols, width, dtype=dtype, generator=generator)
    before = torch.randn(adj.num_rows, width, dtype=dtype, generator=generator)
    scale = torch.randn(adj.num_rows, dtype=dtype, generator=generator)
    results = []
    for num_threads in (1, 2, 3, 7):
        torch.set_num_threads(num_threads)
        kernel, out = BlockedCSR(), before.clone()
        kernel.spmm(kernel.prepare(adj, dtype), x, out, accumulate=True, epilogue=Epilogue(scale))
        results.append(out)
    assert all(torch.equal(out, results[0]) for out in results)


@pytest.mark.parametrize("make", [TorchCSR, BlockedCSR, AutoKernel])
def test_rounding_is_that_of_a_sum(make: Callable[[], Kernel]) -> None:
    adj, dense = local_csr(Matrix(50, 5000, 100).mask(), weighted=True)
    x = torch.randn(adj.num_cols, 33, generator=torch.Generator().manual_seed(0))
    out = torch.empty(adj.num_rows, 33)
    make().spmm(make().prepare(adj, torch.float32), x, out, accumulate=False)
    # Every addition rounds by at most half a unit of the sum of absolute values so far; few rows exceed 200 entries.
    bound = 200 * 2**-24 * (dense.abs() @ x.abs().double())
    assert torch.all((out.double() - dense @ x.double()).abs() <= bound)


@pytest.mark.parametrize("make", [TorchCSR, BlockedCSR, AutoKernel])
def test_nothing_to_multiply(make: Callable[[], Kernel]) -> None:
    kernel = make()
    adj, _ = local_csr(np.ones((3, 4), bool), weighted=False)
    kernel.spmm(kernel.prepare(adj, torch.float32), torch.empty(4, 0), torch.empty(3, 0), accumulate=False)
    no_entries, _ = local_csr(np.zeros((3, 4), bool), weighted=False)
    out = torch.full((3, 5), 7.0)
    kernel.spmm(kernel.prepare(no_entries, torch.float32), torch.ones(4, 5), out, accumulate=True)
    assert torch.equal(out, torch.full((3, 5), 7.0))
    kernel.spmm(kernel.prepare(no_entries, torch.float32), torch.ones(4, 5), out, accumulate=False)
    assert torch.equal(out, torch.zeros(3, 5))
    no_rows, _ = local_csr(np.zeros((0, 4), bool), weighted=False)
    kernel.spmm(kernel.prepare(no_rows, torch.float32), torch.ones(4, 5), torch.empty(0, 5), accumulate=False)


@pytest.mark.parametrize("make", [TorchCSR, BlockedCSR, AutoKernel])
@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weighted"])
def test_tensors_count_the_memory(make: Callable[[], Kernel], weighted: bool) -> None:
    """The ids of the blocked pattern take two bytes an edge; the ids and values of torch's CSR take eight."""
    kernel = make()
    adj, _ = local_csr(Matrix(50, 5000, 200).mask(), weighted)
    tensors = kernel.tensors(kernel.prepare(adj, torch.float32))
    num_bytes = sum(tensor.nbytes for tensor in tensors) - sum(t.nbytes for t in tensors if t.numel() < adj.nnz)
    assert num_bytes == pytest.approx(adj.nnz * (8 if make is TorchCSR else 6 if weighted else 2), rel=0.02)


def test_a_layout_made_for_narrow_rows_is_kept_and_counted() -> None:
    kernel = BlockedCSR()
    adj, _ = local_csr(MATRICES["two blocks of 10,000, one when narrow"].mask(), weighted=False)
    block = kernel.prepare(adj, torch.float32)
    sizes = [len(kernel.tensors(block))]
    for width in (64, 16, 16, 64):
        kernel.spmm(block, torch.ones(adj.num_cols, width), torch.empty(adj.num_rows, width), accumulate=False)
        sizes.append(len(kernel.tensors(block)))
    assert sizes == [3, 3, 5, 5, 5]


def test_auto_multiplies_and_says_with_what() -> None:
    adj, dense = local_csr(MATRICES["one block"].mask(), weighted=True)
    for dtype in DTYPES:
        out = torch.empty(adj.num_rows, 5, dtype=dtype)
        kernel = AutoKernel()
        kernel.spmm(kernel.prepare(adj, dtype), torch.ones(adj.num_cols, 5, dtype=dtype), out, accumulate=False)
        assert torch.equal(out.double(), dense.sum(dim=1, keepdim=True).expand(-1, 5))
    cpu, meta, kernel = torch.device("cpu"), torch.device("meta"), AutoKernel()
    assert [kernel.name_for(cpu, dtype) for dtype in (*DTYPES, torch.bfloat16)] == ["blocked", "blocked", "torch"]
    assert kernel.name_for(meta, torch.float32) == "torch"
    assert BlockedCSR().name_for(cpu, torch.float32) == "blocked" and TorchCSR().name_for(cpu, *DTYPES[:1]) == "torch"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32])
def test_blocked_refuses_what_it_cannot_multiply(dtype: torch.dtype) -> None:
    adj, _ = local_csr(np.ones((3, 4), bool), weighted=False)
    with pytest.raises(UnsupportedError, match="choose kernel=auto"):
        BlockedCSR().prepare(adj, dtype)
