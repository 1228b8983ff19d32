"""Attention over edges on a GPU, static and dynamic, and largest rows, for the table of compiled kernels.

The rows are laid out as in training on a GPU: they begin at sectors, and the logits of the sources stand behind the
last column. The block has targets and sources of every number of edges from 0 to 1,000, so that all bins, parts and
levels of parts occur.
"""

import functools
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
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from fullgnn.kernels.edges.weighted import edge_dots, edge_spmm_into, edge_spmm_transposed
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.support.aligned import empty_aligned

SHAPES = ((8, 8), (1, 41), (1, 44), (1, 47), (1, 64), (1, 100), (8, 41), (4, 47))
"""Heads and columns of a head; the numbers of classes of Reddit and Products, and widths around them."""
SHAPES_WITH_DROPOUT = ((8, 8), (1, 41), (1, 64), (8, 41))
NUM_NODES = 1001
SLOPE = 0.2


@functools.cache
def block(weights: torch.dtype | None = None, single_use: bool = False) -> LocalCSR:
    """(NUM_NODES, NUM_NODES): row i has the first i columns, so that column j has the rows behind j."""
    counts = torch.arange(NUM_NODES + 1, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    starts = torch.cat([counts[:1], counts[:-1]])
    places = torch.arange(int(counts[-2]), dtype=torch.int32)
    targets = torch.arange(NUM_NODES).repeat_interleave(starts.diff().long())
    values = None if weights is None else torch.ones(len(places), dtype=weights)
    return LocalCSR(starts, places - starts[targets], values, NUM_NODES, NUM_NODES, single_use)


def heads_and_rows(num_heads: int, depth: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The (n, K * D) rows and the (n, K) logits of sources, side by side in one matrix."""
    width = num_heads * depth
    whole = empty_aligned(NUM_NODES, width + num_heads, like=torch.empty(0, dtype=dtype)).zero_()
    return whole[:, :width], whole[:, width:]


def edge_mask(seed: int = 1) -> EdgeMask:
    ids = torch.arange(NUM_NODES)
    return EdgeMask(ids, ids, 0.6, seed, torch.tensor(1), layer=1)


def static_attention(
    csr: LocalCSR, num_heads: int, depth: int, mask: EdgeMask | None, dtype: torch.dtype = torch.float32
) -> None:
    """A stage of ``GATConv``, forward and backward."""
    x, logits = heads_and_rows(num_heads, depth, dtype)
    of_targets, ones = x.new_zeros(NUM_NODES, num_heads), x.new_ones(NUM_NODES, num_heads)
    stage = AttentionStage(csr, logits, x, SLOPE, mask)
    attend(stage, of_targets, SoftmaxState.empty(NUM_NODES, num_heads, x.shape[1], x))
    grad = x.new_zeros(x.shape)
    rows = AttentionRows(of_targets, of_targets, ones, grad, of_targets, torch.zeros_like(ones))
    attend_backward(stage, transpose_torch(csr), rows)


def dynamic_attention(
    csr: LocalCSR, num_heads: int, depth: int, mask: EdgeMask | None, dtype: torch.dtype = torch.float32
) -> None:
    """A stage of ``GATv2Conv``, forward and backward."""
    x, _ = heads_and_rows(num_heads, depth, dtype)
    of_targets, vector = x.new_zeros(x.shape), x.new_zeros(num_heads, depth)
    stage = AttentionStage(csr, vector, x, SLOPE, mask, dynamic=True)
    attend(stage, of_targets, SoftmaxState.empty(NUM_NODES, num_heads, x.shape[1], x))
    zeros, ones, sums = x.new_zeros(NUM_NODES, num_heads), x.new_ones(NUM_NODES, num_heads), x.new_zeros(x.shape)
    rows = AttentionRows(of_targets, zeros, ones, of_targets, zeros, sums, sums.clone())
    attend_backward(stage, transpose_torch(csr), rows)


def maximum(csr: LocalCSR, width: int) -> None:
    """A stage of ``neighbor_max``, forward and backward."""
    (x, _), ids = heads_and_rows(1, width, torch.float32), torch.arange(NUM_NODES)
    state = MaxState.empty(NUM_NODES, width, x)
    largest_rows(csr, x, ids, state)
    largest_rows_backward(csr, partial(transpose_torch, csr), ids, state.winner, torch.zeros(NUM_NODES, width))


def rare_attention() -> None:
    """Calls that training makes rarely: float64, edge weights, a sampled block, narrow and wide heads, large seeds."""
    for dtype, heads, depth, seed in (
        (torch.float32, 1, 1, 2**63 + 5),
        (torch.float64, 3, 47, 2**64 - 1),
        (torch.float32, 12, 4, 0),
        (torch.float32, 2, 100, 1),
    ):
        csr = block(dtype, single_use=heads == 12)
        static_attention(csr, heads, depth, edge_mask(seed), dtype)
        dynamic_attention(csr, heads, depth, edge_mask(seed) if heads == 12 else None, dtype)
        values, (x, _) = torch.ones(csr.nnz, heads, dtype=dtype), heads_and_rows(heads, depth, dtype)
        of_targets = x.new_zeros(x.shape)
        edge_spmm_into(csr, values, x, of_targets)
        edge_spmm_transposed(csr, transpose_torch(csr), values, of_targets)
        edge_dots(csr, of_targets, x, heads)


def attention_calls() -> Iterator[tuple[str, str, partial[None]]]:
    """The kernel's name, the heads and columns, and the call."""
    for heads, depth in SHAPES:
        yield "gat", f"{heads} x {depth}", partial(static_attention, block(), heads, depth, None)
    for name, call in (("gat", static_attention), ("gatv2", dynamic_attention)):
        for heads, depth in SHAPES_WITH_DROPOUT:
            yield f"{name} with dropout", f"{heads} x {depth}", partial(call, block(), heads, depth, edge_mask())
    yield "max", "41", partial(maximum, block(), 41)
