"""Calls over the edges of a block: attention, the largest rows and messages, and products with values per edge."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from fullgnn.kernels.edges.attention import attend, attend_backward
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import transpose_torch
from fullgnn.kernels.edges.largest import largest_rows, largest_rows_backward
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.edges.reduce import add_largest, add_messages, largest_backward
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from fullgnn.kernels.edges.weighted import edge_dots, edge_spmm_into, edge_spmm_transposed
from fullgnn.kernels.spmm import LocalCSR
from tests.gpu_code.cases import Case

TARGETS, SOURCES, DEGREE = 50, 60, 16

HEADS = {
    "8 x 8": (8, 8, 64),
    "8 x 16": (8, 16, 128),
    "1 x 64": (1, 64, 64),
    "1 x 41 padded": (1, 41, 48),
    "1 x 47 padded": (1, 47, 48),
    "1 x 41": (1, 41, 41),
    "4 x 47 padded": (4, 47, 192),
}
"""Heads, columns of each, and the distance of the rows."""

WIDTHS = {"8": (8, 8), "64": (64, 64), "128": (128, 128), "41 padded": (41, 48), "47 padded": (47, 48), "41": (41, 41)}
"""Columns, and the distance of the rows."""


def block(weighted: bool = False, dtype: torch.dtype = torch.float32, size: int = 0) -> LocalCSR:
    """Every target has ``DEGREE`` edges; with ``size`` 1, there is one edge."""
    num_rows, num_cols, degree = (1, 1, 1) if size else (TARGETS, SOURCES, DEGREE)
    indptr = torch.arange(num_rows + 1, dtype=torch.int32) * degree
    indices = torch.arange(num_rows * degree, dtype=torch.int32) % num_cols
    values = torch.ones(len(indices), dtype=dtype) if weighted else None
    return LocalCSR(indptr, indices, values, num_rows, num_cols)


def matrix(num_rows: int, width: int, stride: int, dtype: torch.dtype = torch.float32, first: int = 0) -> Tensor:
    """Rows ``stride`` apart, ``first`` numbers behind the beginning of the memory."""
    return torch.zeros(first + num_rows * stride, dtype=dtype)[first:].view(num_rows, stride)[:, :width]


def attention_cases() -> Iterator[Case]:
    """Forward and backward, static and dynamic."""
    for name, (heads, depth, stride) in HEADS.items():
        weighted = dropped = name in ("8 x 8", "1 x 64", "4 x 47 padded")
        x, csr = matrix(SOURCES, heads * depth, stride), block(weighted)
        yield from _attention(name, csr, heads, x, dropped)
    yield from _attention("1 x 64 unaligned", block(), 1, matrix(SOURCES, 64, 64, first=1), False)
    yield from _attention("2 x 8 float64", block(True, torch.float64), 2, matrix(SOURCES, 16, 16, torch.float64), True)
    yield from _attention("one edge", block(True, size=1), 1, matrix(1, 41, 41), True)
    yield from _attention("one column", block(), 1, matrix(SOURCES, 1, 1), False)


def _attention(name: str, csr: LocalCSR, heads: int, x: Tensor, dropped: bool) -> Iterator[Case]:
    n, m, width = csr.num_rows, csr.num_cols, x.shape[1]

    def zeros(num_rows: int, columns: int) -> Tensor:
        return x.new_zeros(num_rows, columns)

    def state() -> SoftmaxState:
        return SoftmaxState.empty(n, heads, width, x)

    mask = EdgeMask(torch.arange(n), torch.arange(m), 0.6, 2**63 + 1, torch.tensor(3), 1) if dropped else None
    static = AttentionStage(csr, zeros(m, heads), x, 0.2, mask)
    dynamic = AttentionStage(csr, x.new_zeros(heads, width // heads), x, 0.2, mask, dynamic=True)

    def backward() -> None:
        of_targets = (zeros(n, heads), zeros(n, heads), zeros(n, heads), zeros(n, width))
        rows = AttentionRows(*of_targets, zeros(n, heads), zeros(n, heads))
        attend_backward(static, transpose_torch(csr), rows)

    def dynamic_backward() -> None:
        of_targets = (zeros(n, width), zeros(n, heads), zeros(n, heads), zeros(n, width))
        rows = AttentionRows(*of_targets, zeros(n, heads), zeros(n, width), zeros(n, width))
        attend_backward(dynamic, transpose_torch(csr), rows)

    yield Case("attention", name, partial(attend, static, zeros(n, heads), state()))
    yield Case("attention backward", name, backward)
    yield Case("dynamic", name, partial(attend, dynamic, zeros(n, width), state()))
    yield Case("dynamic backward", name, dynamic_backward)


def reduction_cases() -> Iterator[Case]:
    """The largest rows of sources, and sums and maxima of messages, with their gradients."""
    for name, (width, stride) in WIDTHS.items():
        yield from _reductions(name, block(weighted=width == 64), matrix(SOURCES, width, stride))
    yield from _reductions("64 unaligned", block(), matrix(SOURCES, 64, 64, first=1))
    yield from _reductions("16 float64", block(True, torch.float64), matrix(SOURCES, 16, 16, torch.float64))
    yield from _reductions("one edge", block(size=1), matrix(1, 1, 1))


def _reductions(name: str, csr: LocalCSR, x: Tensor) -> Iterator[Case]:
    ids, width, transposed = torch.arange(csr.num_cols), x.shape[1], transpose_torch(csr)
    state, messages = MaxState.empty(csr.num_rows, width, x), x.new_zeros(csr.nnz, width)
    out = x.new_zeros(csr.num_rows, width)
    yield Case("largest", name, partial(largest_rows, csr, x, ids, state))
    yield Case("largest", name, partial(largest_rows_backward, csr, lambda: transposed, ids, state.winner, out))
    yield Case("messages", name, partial(add_messages, csr, messages, out))
    yield Case("messages", name, partial(add_largest, csr, messages, ids, state))
    yield Case("messages", name, partial(largest_backward, csr, ids, state.winner, out))


def weighted_cases() -> Iterator[Case]:
    """Products with a value for each edge and head, and their gradients."""
    for name, (heads, depth, stride) in HEADS.items():
        yield from _weighted(name, block(), heads, matrix(SOURCES, heads * depth, stride))
    yield from _weighted("1 x 64 unaligned", block(), 1, matrix(SOURCES, 64, 64, first=1))
    yield from _weighted("one edge", block(size=1), 1, matrix(1, 41, 41))


def _weighted(name: str, csr: LocalCSR, heads: int, x: Tensor) -> Iterator[Case]:
    values, of_targets = x.new_zeros(csr.nnz, heads), x.new_zeros(csr.num_rows, x.shape[1])
    transposed = transpose_torch(csr)
    yield Case("weighted", name, partial(edge_spmm_into, csr, values, x, of_targets))
    yield Case("weighted", name, partial(edge_spmm_transposed, csr, transposed, values, of_targets))
    yield Case("weighted", name, partial(edge_dots, csr, of_targets, x, heads))
