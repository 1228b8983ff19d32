"""Blocks of edges for the tests of this folder, and factors of the attention dropout, written independently."""

import torch
from torch import Tensor

from fullgnn.kernels.dropout.philox import philox_4x32
from fullgnn.kernels.spmm import LocalCSR
from tests.triton_device import DEVICE


def pattern(num_targets: int, num_sources: int, seed: int = 0) -> Tensor:
    """(n, m) bool: every fifth target and every seventh source has no edges, and one target has nearly all sources."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(num_targets, num_sources, generator=generator) < 0.15
    if num_targets > 2:
        mask[2] = True
    mask[4::5] = False
    mask[:, 6::7] = False
    return mask


def block_for(path: str) -> Tensor:
    """(n, m) pattern whose heavy target has more edges than a tile; Triton's interpreter gets a small one."""
    return pattern(8, 40) if path == "triton" else pattern(31, 150)


def device_of(path: str) -> torch.device:
    return DEVICE if path == "triton" else torch.device("cpu")


def local_csr(mask: Tensor, weights: Tensor | None = None) -> LocalCSR:
    """The block of a pattern, on the device of ``mask``, with the (n, m) ``weights`` of the edges, if given."""
    indptr = torch.zeros(len(mask) + 1, dtype=torch.int32, device=mask.device)
    indptr[1:] = mask.sum(1).cumsum(0)
    values = None if weights is None else weights[mask]
    return LocalCSR(indptr, mask.nonzero()[:, 1].int().contiguous(), values, *mask.shape)


def dropout_factors(
    target_id: Tensor, source_id: Tensor, num_heads: int, p: float, seed: int, epoch: int, layer: int
) -> Tensor:
    """(n, m, K): the definition of the mask, one Philox call for every edge and head."""
    target, source, head = torch.meshgrid(target_id, source_id, torch.arange(num_heads), indexing="ij")
    packed = target // 2**32 + source // 2**32 * 2**8 + head // 4 * 2**16 + layer * 2**24
    counter = torch.stack([target % 2**32, source % 2**32, packed, torch.full_like(packed, epoch)], -1).numpy()
    words = torch.from_numpy(philox_4x32(counter, [seed % 2**32, seed // 2**32 ^ 0x45444745]).astype("int64"))
    word = words.gather(3, head[..., None] % 4)[..., 0]
    return (word >= round(p * 2**32)).double() / (1 - p)


def from_edges(mask: Tensor, values: Tensor) -> Tensor:
    """(n, m, ...) matrix with (E, ...) ``values`` at the edges and 0 elsewhere; differentiable."""
    dense = values.new_zeros(*mask.shape, *values.shape[1:])
    return dense.index_put(tuple(mask.nonzero().T), values)


def amid_nans(rows: Tensor, in_lines: bool = False) -> Tensor:
    """These (n, f) ``rows`` inside a wider matrix of nans, which would show.

    Args:
        in_lines: every row begins at a multiple of 16 bytes, so that a kernel may read the nans behind it.
    """
    width, first = rows.shape[1], 0 if in_lines else 1
    stride = (width // 8 + 1) * 8 if in_lines else width + 3
    frame = torch.full((len(rows), stride), torch.nan, dtype=rows.dtype, device=rows.device)
    frame[:, first : first + width] = rows
    return frame[:, first : first + width]
