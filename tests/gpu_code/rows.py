"""Calls on the rows of a matrix: the loss, dropout, the epilogue, the gather that ``bench.gpu`` times, scores of pairs,
and products of matrices that are multiplied once or that pass 2^31 elements."""

from collections.abc import Iterator
from functools import partial
from unittest import mock

import torch

from fullgnn.bench.gpu._gather_gpu import gather_sum, mark
from fullgnn.kernels.dropout.philox import Mask, drop, drop_entries
from fullgnn.kernels.epilogue.epilogue import apply_epilogue_
from fullgnn.kernels.loss.cross_entropy import cross_entropy
from fullgnn.kernels.pairs.scores import pair_scores
from fullgnn.kernels.spmm import Epilogue, TritonCSR, triton_csr
from fullgnn.kernels.spmm.single_use import SingleUseTriton
from tests.gpu_code.cases import Case
from tests.gpu_code.edges import SOURCES, TARGETS, WIDTHS, block, matrix

ROWS = 500


def row_cases() -> Iterator[Case]:
    """Rows that are padded, rows that are not, one row, and rows that begin anywhere."""
    shapes = [(name, matrix(ROWS, *shape)) for name, shape in WIDTHS.items()]
    shapes += [("one row", matrix(1, 47, 47)), ("64 unaligned", matrix(ROWS, 64, 64, first=1))]
    shapes += [("16 float64", matrix(ROWS, 16, 16, torch.float64))]
    for name, x in shapes:
        mask = Mask(torch.arange(len(x)), 0.5, 2**64 - 1, torch.tensor(1), layer=1)
        labels = torch.zeros(len(x), dtype=torch.int64)
        yield Case("loss", name, partial(cross_entropy, x, labels, 1.0))
        yield Case("dropout", name, partial(drop, x, mask))
        ends = Epilogue(x.new_ones(len(x)), x.new_ones(x.shape[1]), True, mask)
        yield Case("dropout", name, partial(apply_epilogue_, x, ends))
    entries = torch.arange(ROWS, dtype=torch.int32)
    for dtype in (torch.float32, torch.float64):
        mask = Mask(torch.arange(ROWS), 0.5, 1, torch.tensor(1), layer=0)
        call = partial(drop_entries, torch.ones(ROWS, dtype=dtype), entries, entries, mask)
        yield Case("dropout", f"entries {dtype}", call)
    for width, num_warps in ((16, 4), (128, 8), (41, 4)):
        index = torch.zeros(100_000, dtype=torch.int32)
        yield Case("gather", str(width), partial(gather_sum, matrix(ROWS, width, width), index, 4096, num_warps))
    yield Case("gather", "mark", lambda: mark[(1,)](torch.zeros(1)))


def wide_cases() -> Iterator[Case]:
    """Sparse products with offsets of 64 bits, as if X had as many rows as need them."""
    for name, (width, stride) in WIDTHS.items():
        yield Case("wide", name, partial(_multiply_wide, matrix(SOURCES, width, stride)))
    yield Case("wide", "64 unaligned", partial(_multiply_wide, matrix(SOURCES, 64, 64, first=1)))


def single_use_cases() -> Iterator[Case]:
    """Products of a matrix that is multiplied once, as a sampled block is."""
    for name, (width, stride) in WIDTHS.items():
        yield Case("single use", name, partial(_multiply_once, matrix(SOURCES, width, stride)))
    yield Case("single use", "16 float64", partial(_multiply_once, matrix(SOURCES, 16, 16, torch.float64)))


def _multiply_once(x: torch.Tensor) -> None:
    kernel = SingleUseTriton()
    kernel.spmm(kernel.prepare(block(), x.dtype), x, x.new_zeros(TARGETS, x.shape[1]), False)


def score_cases() -> Iterator[Case]:
    """Scores of pairs of rows."""
    index = torch.zeros(ROWS, dtype=torch.int64)
    for name, (width, stride) in WIDTHS.items():
        yield Case("scores", name, partial(pair_scores, matrix(SOURCES, width, stride), index, None, index))


def _multiply_wide(x: torch.Tensor) -> None:
    kernel, out = TritonCSR(), x.new_zeros(TARGETS, x.shape[1])
    with mock.patch.object(triton_csr, "wide", lambda *matrices: True):
        kernel.spmm(kernel.prepare(block(), x.dtype), x, out, True, Epilogue(x.new_ones(TARGETS)))
