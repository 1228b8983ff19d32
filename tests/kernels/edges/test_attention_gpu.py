"""Attention with the kernels for GPUs: heads of any width in padded rows, and long rows in parts. Where there is no
GPU, Triton's interpreter runs the kernels."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fullgnn.kernels.edges import row_bins
from fullgnn.kernels.edges.attention import attend
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import transpose
from fullgnn.kernels.edges.row_bins import PART, bins_of
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from fullgnn.kernels.edges.weighted import edge_dots, edge_spmm_into, edge_spmm_transposed
from fullgnn.kernels.spmm.reading import CHAIN
from fullgnn.kernels.support.gpu import in_vectors
from fullgnn.sampling.rows import Rows
from tests.kernels.edges.attention import (
    FLOAT32,
    FLOAT64,
    KINDS,
    SLOPE,
    Attention,
    check,
    computed,
    dense_attention,
    dropout,
    expected_factors,
)
from tests.kernels.edges.blocks import amid_nans, local_csr, pattern
from tests.triton_device import DEVICE, needs_triton

pytestmark = needs_triton


@pytest.fixture(autouse=True)
def on_triton(triton_on_cpu: None) -> None:
    """All tests of this file run the kernels in Triton."""


WIDTHS = [(1, 41, FLOAT32), (4, 47, FLOAT32), (3, 7, FLOAT32), (1, 100, FLOAT32), (8, 41, FLOAT32), (1, 47, FLOAT32),
          (5, 3, FLOAT64), (1, 41, FLOAT64), (12, 4, FLOAT32), (2, 62, FLOAT32)]  # fmt: skip
"""Heads that begin at no multiple of four columns, end amid a vector, or fill more than one program."""


@pytest.mark.sample(12)
@KINDS
@pytest.mark.parametrize(("heads", "depth", "dtype"), WIDTHS)
def test_padding_is_read_and_does_not_show(dynamic: bool, heads: int, depth: int, dtype: torch.dtype) -> None:
    """The kernels read the nans behind each row, and the columns of neighbouring heads, in vectors of 16 bytes."""
    mask = pattern(4, 12)
    factors = expected_factors(mask, heads)
    inputs = Attention.random(mask, heads, depth, weighted=True, dynamic=dynamic)
    expected = dense_attention(inputs, factors)
    rows = amid_nans(inputs.x.to(dtype), in_lines=True)
    assert in_vectors(rows) is rows, "the rows are copied, so that nothing behind them is read"
    check(computed(inputs, dtype, make_mask=dropout(), device=DEVICE, in_lines=True), expected, dtype)


@pytest.mark.sample(2)
@KINDS
def test_a_nan_stays_in_its_head(dynamic: bool) -> None:
    """Four heads of 7 columns share vectors."""
    mask = pattern(4, 12)
    inputs = Attention.random(mask, 4, 7, dynamic=dynamic)
    expected = dense_attention(inputs)
    for columns in (inputs.x, inputs.grad):
        columns[:, 7:14] = torch.nan
    out, gradients = computed(inputs, FLOAT32, device=DEVICE, in_lines=True)
    for computed_rows, exact_rows in zip((out, *gradients), (expected[0], *expected[1]), strict=True):
        by_head, exact_by_head = (
            rows.double() if rows.shape == (4, 7) else rows.double().view(len(rows), 4, -1).transpose(0, 1)
            for rows in (computed_rows, exact_rows)
        )
        torch.testing.assert_close(by_head[[0, 2, 3]], exact_by_head[[0, 2, 3]], rtol=0, atol=2e-5)


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of more than 3 edges are cut into parts, whose results are joined in levels of 3."""
    monkeypatch.setattr(row_bins, "BINS", ())
    monkeypatch.setattr(row_bins, "PART", 3)


def with_hubs() -> Tensor:
    """(15, 16) pattern: a target and a source have nearly all edges, other rows few, and some none."""
    mask = torch.rand(15, 16, generator=torch.Generator().manual_seed(1)) < 0.04
    mask[2] = mask[:, 5] = True
    mask[4::9] = False
    mask[:, 6::11] = False
    return mask


@pytest.mark.sample(6)
@pytest.mark.parametrize(("heads", "depth"), [(8, 8), (1, 41), (3, 7)])
@KINDS
def test_long_rows_are_cut(dynamic: bool, heads: int, depth: int, short_parts: None) -> None:
    """The states and sums of the parts of a row are joined in three levels, with the same bits in every run."""
    mask = with_hubs()
    for edges in (local_csr(mask), transpose(local_csr(mask))):
        bins = bins_of(edges)
        assert bins.parts is not None and len(bins.levels) == 3, bins
    factors = expected_factors(mask, heads)
    inputs = Attention.random(mask, heads, depth, weighted=True, dynamic=dynamic)
    expected = dense_attention(inputs, factors)
    outcome, again = (computed(inputs, FLOAT32, make_mask=dropout(), device=DEVICE) for _ in range(2))
    check(outcome, expected, FLOAT32)
    assert all(torch.equal(*pair) for pair in zip([outcome[0], *outcome[1]], [again[0], *again[1]]))


@pytest.mark.sample(2)
@KINDS
def test_a_row_of_thousands_of_edges(dynamic: bool) -> None:
    """Only the forward pass: a gradient at 3,000 sources is many programs, for which the interpreter takes long."""
    mask = torch.zeros(3, 3000, dtype=torch.bool)
    mask[1], mask[2, ::400] = True, True
    inputs = Attention.random(mask, 1, 9, dynamic=dynamic)
    csr, x = local_csr(mask.to(DEVICE)), inputs.x.to(DEVICE, FLOAT32)
    assert len(bins_of(csr).parts.begin) == -(-3000 // PART)
    state = SoftmaxState.empty(3, 1, 9, x)
    of_sources, of_targets = (ends.to(DEVICE, FLOAT32) for ends in (inputs.of_sources, inputs.of_targets))
    attend(AttentionStage(csr, of_sources, x, SLOPE, None, dynamic), of_targets, state)
    torch.testing.assert_close(state.finish().cpu().double(), dense_attention(inputs)[0], rtol=0, atol=2e-5)


def test_logits_far_apart_in_parts(short_parts: None) -> None:
    """Parts whose weights would overflow, or vanish, without the maximum of the whole row."""
    inputs = Attention.random(with_hubs(), 2, 5, 80.0)
    inputs.of_targets.zero_()  # so that float32 does not round the sums of two logits
    expected = dense_attention(inputs, slope=torch.tensor(SLOPE).double().item())
    check(computed(inputs, FLOAT32, device=DEVICE), expected, FLOAT32)


def test_values_of_edges_in_parts(short_parts: None) -> None:
    """The products with a number for each edge and head cut long rows as well."""
    mask = with_hubs()
    csr, generator = local_csr(mask.to(DEVICE)), torch.Generator().manual_seed(0)
    (n, m), heads, depth = mask.shape, 3, 7
    values, x, of_targets = (
        torch.randn(*shape, generator=generator).to(DEVICE)
        for shape in ((csr.nnz, heads), (m, heads * depth), (n, heads * depth))
    )
    dense = torch.zeros(n, m, heads, dtype=FLOAT64).index_put(tuple(mask.nonzero().T), values.cpu().double())
    by_head = x.cpu().double().view(m, heads, depth)
    out = torch.zeros(n, heads * depth, device=DEVICE)
    edge_spmm_into(csr, values, amid_nans(x, in_lines=True), out)
    expected = torch.einsum("nmk,mkd->nkd", dense, by_head).flatten(1)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=0, atol=2e-5)
    of_x = edge_spmm_transposed(csr, transpose(csr), values, of_targets)
    of_rows = of_targets.cpu().double().view(n, heads, depth)
    expected = torch.einsum("nmk,nkd->mkd", dense, of_rows).flatten(1)
    torch.testing.assert_close(of_x.cpu().double(), expected, rtol=0, atol=2e-5)
    dots = edge_dots(csr, of_targets, amid_nans(x, in_lines=True), heads)
    expected = torch.einsum("nkd,mkd->nmk", of_rows, by_head)[mask]
    torch.testing.assert_close(dots.cpu().double(), expected, rtol=0, atol=2e-5)


def test_a_block_that_is_used_once_is_not_sorted() -> None:
    """It has one bin of all rows, since cutting rows would wait for the GPU; the result is the same. Blocks of sampled
    batches are such."""

    def put(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(DEVICE)

    rows = Rows(torch.tensor([0, 1], dtype=torch.int32), torch.tensor([0], dtype=torch.int32), None, 1, put)
    assert rows.pattern.single_use
    inputs = Attention.random(with_hubs(), 2, 5)
    x, of_sources, of_targets = (part.to(DEVICE, FLOAT32) for part in (inputs.x, inputs.of_sources, inputs.of_targets))
    csr = replace(local_csr(inputs.mask.to(DEVICE)), single_use=True)
    assert transpose(csr).single_use and len(bins_of(csr).bins) == 1 and bins_of(csr).parts is None
    state = SoftmaxState.empty(csr.num_rows, 2, 10, x)
    attend(AttentionStage(csr, of_sources, x, SLOPE, None), of_targets, state)
    torch.testing.assert_close(state.finish().cpu().double(), dense_attention(inputs)[0], rtol=0, atol=2e-5)


def test_a_lane_adds_few_numbers() -> None:
    """At most ``CHAIN`` one after the other, for heads of up to 1,024 columns."""
    from fullgnn.kernels.edges._gpu_lanes import shape_of

    for numbers in (4, 8, 16):
        for heads, depth in ((8, 8), (1, 41), (8, 41), (4, 62), (1, 100), (1, 256), (2, 602), (1, 1)):
            for most in (*row_bins.BINS, PART):
                _, shape = shape_of(1000, most, heads, depth, torch.empty(0), numbers)
                assert most <= CHAIN * shape["EDGES"], (heads, depth, shape)
