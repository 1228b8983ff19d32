"""Dropout whose mask depends on the nodes, not on their distribution: it is the same for every number of ranks,
replication, order and device.

The random words come from a counter-based generator, not from a generator with a state. Element (node v, column c) of
layer ``l`` in epoch ``e`` with seed ``s`` uses word ``c % 4`` of

    Philox4x32-10(counter = (v, c // 4, l, e), key = (s mod 2^32, s div 2^32))

(Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11), where v is the id of
the node in the dataset. If its word is at least ``round(p * 2^32)``, the element is kept and divided by ``1 - p``;
otherwise it becomes 0. The backward pass computes the mask again, so that no mask is stored.

The code for CPUs (``_philox_cpu.py``) and GPUs (``_philox_gpu.py``) is compiled; for other devices and dtypes, torch
operations compute the same integers.
"""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import as_rows

Words = TypeVar("Words", np.ndarray, Tensor)

LOW = 0xFFFFFFFF  # the low 32 bits
MAX_CALLS = 1 << 20  # Philox calls per chunk of the torch operations; it limits their temporaries to about 0.1 GB


@dataclass(frozen=True, eq=False)
class Mask:
    """The parameters that determine which elements of a matrix a dropout zeroes, and how it scales the others."""

    node_id: Tensor  # (num_rows,) int64, original ids of the rows
    p: float  # probability of zeroing an element, in [0, 1)
    seed: int
    epoch: Tensor  # () int64, on the device of the matrix; its value may change between two uses
    layer: int

    @property
    def scale(self) -> float:
        """Factor by which the kept elements are scaled."""
        return 1 / (1 - self.p)

    @property
    def threshold(self) -> int:
        """Smallest random word with which an element is kept."""
        return min(round(self.p * 2**32), LOW)

    def of(self, rows: slice) -> "Mask":
        """The mask of some rows."""
        return replace(self, node_id=self.node_id[rows])


def dropout(x: Tensor, node_id: Tensor, p: float, seed: int, epoch: int | Tensor, layer: int) -> Tensor:
    """Zero the elements of ``x`` with probability ``p`` and divide the others by ``1 - p``; differentiable.

    The map is linear and its own transpose: backward is the same function of the gradient.

    Args:
        x: (num_local_nodes, F) this rank's rows, in any order.
        node_id: (num_local_nodes,) int64 GLOBAL original id of each row, below 2^32.
        p: probability of zeroing an element, in [0, 1).
        seed: an integer, of which 64 bits are used.
        epoch: an integer, of which 32 bits are used, or a () int64 tensor with it on the device of ``x``, which a GPU
            reads without the host.
        layer: an integer, of which 32 bits are used.

    Returns:
        (num_local_nodes, F).
    """
    if p == 0:
        return x
    return _Dropout.apply(x, node_id, p, seed, epoch, layer)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, node_id: Tensor, p: float, seed: int, epoch: int | Tensor, layer: int) -> Tensor:
        # The epoch is saved, so that autograd raises if it has changed by the time of the backward pass.
        ctx.save_for_backward(node_id, epoch if isinstance(epoch, Tensor) else None)
        ctx.stream = (p, seed, epoch, layer)
        return dropout_apply(x, node_id, p, seed, epoch, layer)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        node_id, _ = ctx.saved_tensors
        return dropout(grad, node_id, *ctx.stream), None, None, None, None, None


def dropout_apply(x: Tensor, node_id: Tensor, p: float, seed: int, epoch: int | Tensor, layer: int) -> Tensor:
    """:func:`dropout` without a gradient, in one pass over ``x``. An inf or nan that is dropped becomes 0 as well."""
    x = x.detach()
    return _dropout_into(x.new_empty(x.shape), x, node_id, p, seed, epoch, layer)


def dropout_(x: Tensor, node_id: Tensor, p: float, seed: int, epoch: int | Tensor, layer: int) -> Tensor:
    """``dropout_apply`` in place; ``x`` must be contiguous on a CPU and may have any row stride on a GPU."""
    return _dropout_into(x, x, node_id, p, seed, epoch, layer)


def drop_(y: Tensor, mask: Mask) -> Tensor:
    """Apply ``mask`` in place, in one pass over the contiguous (num_rows, F) ``y``."""
    return dropout_(y, mask.node_id, mask.p, mask.seed, mask.epoch, mask.layer)


def drop_entries(values: Tensor, row: Tensor, column: Tensor, mask: Mask) -> Tensor:
    """The stored entries of a sparse matrix after the dropout of its elements by ``mask``; without a gradient.

    Args:
        values: (nnz,) the entries.
        row, column: (nnz,) int32, where they are; the mask has an id for each row.

    Returns:
        (nnz,) each entry scaled, or 0: what ``dropout_apply`` makes of it in the dense matrix.
    """
    out = torch.empty_like(values)
    if gpu.runs_triton(values.device) and values.dtype in (torch.float32, torch.float64):
        from fullgnn.kernels.dropout._philox_gpu import drop_entries_gpu

        return drop_entries_gpu(values, row, column, out, mask)
    key = (mask.seed & LOW, mask.seed >> 32 & LOW)
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        from fullgnn.kernels.dropout._philox_cpu import drop_entries_cpu

        drop_entries_cpu(
            values.numpy(),
            row.numpy(),
            column.numpy(),
            mask.node_id.contiguous().numpy(),
            out.numpy(),
            mask.threshold,
            mask.scale,
            key,
            int(mask.epoch) & LOW,
            mask.layer & LOW,
        )
        return out
    node, group = mask.node_id.index_select(0, row.long()) & LOW, column.long() // 4
    constants = [torch.full((1,), mask.layer & LOW, device=values.device), mask.epoch.reshape(1)]
    words = torch.stack(rounds((node, group, *constants), key), dim=-1)
    word = words.gather(1, (column.long() % 4)[:, None])[:, 0]
    return torch.where(word >= mask.threshold, values * mask.scale, 0)


def _dropout_into(
    out: Tensor, x: Tensor, node_id: Tensor, p: float, seed: int, epoch: int | Tensor, layer: int
) -> Tensor:
    if not 0 <= p < 1:
        raise ConfigError(f"Dropout p is {p}: give a probability of at least 0 and below 1.")
    assert x.dim() == 2 and node_id.shape == x.shape[:1], (x.shape, node_id.shape)
    if gpu.runs_triton(x.device) and x.dtype in (torch.float32, torch.float64, torch.bfloat16):
        from fullgnn.kernels.dropout._philox_gpu import dropout_gpu

        # The tensor is filled on the device: torch.tensor(epoch) would wait for a copy from the host.
        where = epoch if isinstance(epoch, Tensor) else torch.full((), epoch, device=x.device)
        return dropout_gpu(as_rows(x), out, Mask(node_id, p, seed, where, layer))
    threshold = min(round(p * 2**32), LOW)
    key = (seed & LOW, seed >> 32 & LOW)
    if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
        # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
        from fullgnn.kernels.dropout._philox_cpu import dropout_cpu

        dropout_cpu(
            x.contiguous().numpy(),
            node_id.contiguous().numpy(),
            out.numpy(),
            threshold,
            1 / (1 - p),
            key,
            int(epoch) & LOW,
            layer & LOW,
        )
        return out
    return _dropout_torch(x, node_id, out, threshold, 1 / (1 - p), key, epoch, layer & LOW)


def _dropout_torch(
    x: Tensor,
    node_id: Tensor,
    out: Tensor,
    threshold: int,
    scale: float,
    key: tuple[int, int],
    epoch: int | Tensor,
    layer: int,
) -> Tensor:
    """Compute the same bits as ``_philox_cpu.dropout_cpu``, with torch operations on a chunk of rows at a time."""
    num_rows, num_columns = x.shape
    group = torch.arange((num_columns + 3) // 4, device=x.device)
    constants = [  # filled on the device, as in ``_dropout_into``
        value.reshape(1, 1) if isinstance(value, Tensor) else torch.full((1, 1), value, device=x.device)
        for value in (layer, epoch)
    ]
    chunk_rows = max(1, MAX_CALLS // max(1, group.numel()))
    for first in range(0, num_rows, chunk_rows):
        rows = slice(first, first + chunk_rows)
        words = torch.stack(rounds((node_id[rows, None] & LOW, group[None, :], *constants), key), dim=-1)
        kept = words.flatten(1)[:, :num_columns] >= threshold
        out[rows] = torch.where(kept, x[rows] * scale, 0)
    return out


def uniform(node_id: Tensor, num_columns: int, seed: int, layer: int) -> Tensor:
    """Draw a uniform number for each node and column, from the same generator as dropout, at epoch 0.

    Args:
        node_id: (n,) int64 GLOBAL original ids, below 2^32.
        layer: number of the random stream, of which 32 bits are used.

    Returns:
        (n, num_columns) float64 in (0, 1), multiples of 2^-33.
    """
    group, key = torch.arange((num_columns + 3) // 4), (seed & LOW, seed >> 32 & LOW)
    constants = [torch.tensor([[value]]) for value in (layer & LOW, 0)]
    out = torch.empty(len(node_id), num_columns, dtype=torch.float64)
    chunk_rows = max(1, MAX_CALLS // max(1, group.numel()))
    for first in range(0, len(node_id), chunk_rows):
        ids = node_id[first : first + chunk_rows, None] & LOW
        words = torch.stack(rounds((ids, group[None, :], *constants), key), dim=-1)
        out[first : first + chunk_rows] = (words.flatten(1)[:, :num_columns].double() + 0.5) / 2**32
    return out


def philox_4x32(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Compute Philox4x32-10 on many counters at once. This function is the reference for the compiled code.

    Args:
        counter: (..., 4) uint32.
        key: (..., 2) uint32.

    Returns:
        (..., 4) uint32 random words.
    """
    # Two dims at least: NumPy 1 turns a word of one counter into a scalar, which it does not shift by an integer.
    wide_counter, wide_key = (np.atleast_2d(np.asarray(words, dtype=np.uint64)) for words in (counter, key))
    words = rounds(tuple(np.moveaxis(wide_counter, -1, 0)), tuple(np.moveaxis(wide_key, -1, 0)))
    shape = np.broadcast_shapes(np.shape(counter)[:-1], np.shape(key)[:-1])
    return np.stack(np.broadcast_arrays(*words), axis=-1).astype(np.uint32).reshape(*shape, 4)


def rounds(counter: tuple[Words, ...], key: tuple[Any, ...]) -> list[Words]:
    """The ten rounds of Philox, on 32-bit words in 64-bit integers that broadcast against each other.

    Products wrap around in torch's signed int64; the masks extract the same bits as in uint64.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32 & LOW) ^ c1 ^ k0, p1 & LOW, (p0 >> 32 & LOW) ^ c3 ^ k1, p0 & LOW
        k0, k1 = k0 + 0x9E3779B9 & LOW, k1 + 0xBB67AE85 & LOW
    return [c0, c1, c2, c3]
