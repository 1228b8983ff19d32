"""Attention over edges on a GPU, static and dynamic, with its gradients, for the table of compiled kernels.

The rows are laid out as in training on a GPU: they begin at sectors, and the logits of the sources stand behind the
last column. The block has targets and sources of every number of edges from 1 to 1,000, so that all bins, parts and
levels of parts occur.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from fullgnn.kernels.edges.attention import attend, attend_backward
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.dynamic_attention import attend_dynamic, attend_dynamic_backward
from fullgnn.kernels.edges.dynamic_rows import DynamicRows
from fullgnn.kernels.edges.index import transpose_torch
from fullgnn.kernels.edges.mask import EdgeMask
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.support.aligned import empty_aligned

SHAPES = ((8, 8), (1, 41), (1, 44), (1, 47), (1, 64), (1, 100), (8, 41), (4, 47))
"""Heads and columns of a head; the numbers of classes of Reddit and Products, and widths around them."""
NUM_NODES = 1001
SLOPE = 0.2


def attention_shapes() -> list[str]:
    return [f"{heads} x {depth}" for heads, depth in SHAPES]


def block() -> LocalCSR:
    """(NUM_NODES, NUM_NODES): row i has the first i columns, so that column j has the rows behind j."""
    counts = torch.arange(NUM_NODES + 1, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    starts = torch.cat([counts[:1], counts[:-1]])
    places = torch.arange(int(counts[-2]), dtype=torch.int32)
    targets = torch.arange(NUM_NODES).repeat_interleave(starts.diff().long())
    return LocalCSR(starts, places - starts[targets], None, NUM_NODES, NUM_NODES)


def heads_and_rows(num_heads: int, depth: int) -> tuple[Tensor, Tensor]:
    """The (n, K * D) rows and the (n, K) logits of sources, side by side in one matrix."""
    width = num_heads * depth
    whole = empty_aligned(NUM_NODES, width + num_heads, like=torch.empty(0)).zero_()
    return whole[:, :width], whole[:, width:]


def edge_mask() -> EdgeMask:
    ids = torch.arange(NUM_NODES)
    return EdgeMask(ids, ids, 0.6, 1, torch.tensor(1), layer=1)


def static_attention(num_heads: int, depth: int, dropout: bool) -> None:
    """A stage of ``GATConv``, forward and backward."""
    csr, (x, logits), mask = block(), heads_and_rows(num_heads, depth), edge_mask() if dropout else None
    of_targets, ones = torch.zeros(NUM_NODES, num_heads), torch.ones(NUM_NODES, num_heads)
    attend(csr, logits, of_targets, x, SLOPE, mask, SoftmaxState.empty(NUM_NODES, num_heads, x.shape[1], x))
    grad = torch.zeros(NUM_NODES, x.shape[1])
    rows = AttentionRows(of_targets, of_targets, ones, grad, of_targets, torch.zeros_like(ones))
    attend_backward(csr, transpose_torch(csr), logits, x, SLOPE, mask, rows)


def dynamic_attention(num_heads: int, depth: int, dropout: bool) -> None:
    """A stage of ``GATv2Conv``, forward and backward."""
    csr, (x, _), mask = block(), heads_and_rows(num_heads, depth), edge_mask() if dropout else None
    of_targets, vector = torch.zeros(NUM_NODES, x.shape[1]), torch.zeros(num_heads, depth)
    attend_dynamic(csr, x, of_targets, vector, SLOPE, mask, SoftmaxState.empty(NUM_NODES, num_heads, x.shape[1], x))
    zeros, ones, sums = (
        torch.zeros(NUM_NODES, num_heads),
        torch.ones(NUM_NODES, num_heads),
        torch.zeros_like(of_targets),
    )
    rows = DynamicRows(of_targets, zeros, ones, of_targets, zeros, sums, sums.clone())
    attend_dynamic_backward(csr, transpose_torch(csr), x, vector, SLOPE, mask, rows)


def attention_calls() -> Iterator[tuple[str, str, partial[None]]]:
    """The kernel's name, the heads and columns, and the call, for every shape, with and without a dropout."""
    for name, call in (("gat", static_attention), ("gatv2", dynamic_attention)):
        for dropout in (False, True):
            for heads, depth in SHAPES:
                end = " with dropout" if dropout else ""
                yield f"{name}{end}", f"{heads} x {depth}", partial(call, heads, depth, dropout)
