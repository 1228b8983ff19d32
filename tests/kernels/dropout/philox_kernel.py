"""A kernel that computes the dropout mask as an epilogue does."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fullgnn.kernels.dropout._philox_gpu import kept, kept_tile, mask_arguments
from fullgnn.kernels.dropout.philox import Mask


def elements_kept(node: Tensor, p: float, seed: int, epoch: int, layer: int) -> tuple[Tensor, Tensor]:
    """Two (8, 32) bool masks, with one Philox call for each element, and with one for four elements."""
    where = torch.tensor(epoch, device=node.device)
    node_id, at, *constants, _ = mask_arguments(Mask(node, p, seed, where, layer))
    by_element, by_tile = (torch.zeros(8, 32, dtype=torch.int8, device=node.device) for _ in range(2))
    _elements_kept[(2,)](node_id, at, *constants, by_element, by_tile)
    return by_element > 0, by_tile > 0


@triton.jit
def _elements_kept(node_id, epoch, seed: tl.int64, layer: tl.int64, threshold: tl.int64, by_element, by_tile):
    node, first_column = tl.load(node_id + tl.arange(0, 8)), tl.program_id(0) * 16
    column = first_column + tl.arange(0, 16)
    at = tl.arange(0, 8)[:, None] * 32 + column[None, :]
    keep = kept(node[:, None], column[None, :], seed, tl.load(epoch), layer, threshold)
    tl.store(by_element + at, keep.to(tl.int8))
    keep = kept_tile(node, first_column, seed, tl.load(epoch), layer, threshold, 16)
    tl.store(by_tile + at, keep.to(tl.int8))
