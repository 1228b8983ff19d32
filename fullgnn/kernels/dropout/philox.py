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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import as_rows
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.dropout import _philox_cpu, _philox_gpu
else:
    _philox_cpu = module_on_use("fullgnn.kernels.dropout._philox_cpu")
    _philox_gpu = module_on_use("fullgnn.kernels.dropout._philox_gpu")

Words = TypeVar("Words", np.ndarray, Tensor)

LOW = 0xFFFFFFFF  # the low 32 bits
MAX_CALLS = 1 << 20  # Philox calls per chunk of the torch operations; it limits their temporaries to about 0.1 GB


class DropsWithProbability:
    """What drops a number with probability ``p``, in [0, 1), and scales the others."""

    p: float

    @property
    def scale(self) -> float:
        """Factor by which the kept numbers are scaled."""
        return 1 / (1 - self.p)

    @property
    def threshold(self) -> int:
        """Smallest random word with which a number is kept."""
        return min(round(self.p * 2**32), LOW)


@dataclass(frozen=True, eq=False)
class Mask(DropsWithProbability):
    """The parameters that determine which elements of a matrix a dropout zeroes, and how it scales the others."""

    node_id: Tensor  # (num_rows,) int64, GLOBAL original ids of the rows, below 2^32
    p: float  # probability of zeroing an element, in [0, 1)
    seed: int  # 64 bits of it are used
    epoch: Tensor  # () int64, on the device of the matrix; its value may change between two uses
    layer: int  # 32 bits of it are used

    @property
    def key(self) -> tuple[int, int]:
        """The key of Philox."""
        return self.seed & LOW, self.seed >> 32 & LOW

    def of(self, rows: slice) -> "Mask":
        """The mask of some rows."""
        return replace(self, node_id=self.node_id[rows])


def dropout(x: Tensor, mask: Mask) -> Tensor:
    """Zero the elements of ``x`` that ``mask`` drops and scale the others; differentiable.

    The map is linear and its own transpose: backward is the same function of the gradient.

    Args:
        x: (num_local_nodes, F) this rank's rows, in any order.

    Returns:
        (num_local_nodes, F).
    """
    return x if mask.p == 0 else _Dropout.apply(x, mask)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Mask) -> Tensor:
        # The epoch is saved, so that autograd raises if it has changed by the time of the backward pass.
        ctx.save_for_backward(mask.epoch)
        ctx.mask = mask
        return drop(x, mask)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (_,) = ctx.saved_tensors  # autograd checks the epoch as it is read
        return dropout(grad, ctx.mask), None


def drop(x: Tensor, mask: Mask) -> Tensor:
    """:func:`dropout` without a gradient, in one pass over ``x``. An inf or nan that is dropped becomes 0 as well."""
    x = x.detach()
    return _drop_into(x.new_empty(x.shape), x, mask)


def drop_(x: Tensor, mask: Mask) -> Tensor:
    """``drop`` in place; ``x`` must be contiguous on a CPU and may have any row stride on a GPU."""
    return _drop_into(x, x, mask)


def drop_entries(values: Tensor, row: Tensor, column: Tensor, mask: Mask) -> Tensor:
    """The stored entries of a sparse matrix after the dropout of its elements by ``mask``; without a gradient.

    Args:
        values: (nnz,) the entries.
        row, column: (nnz,) int32, where they are; the mask has an id for each row.

    Returns:
        (nnz,) each entry scaled, or 0: what ``drop`` makes of it in the dense matrix.
    """
    out = torch.empty_like(values)
    if gpu.runs_triton(values.device) and values.dtype in (torch.float32, torch.float64):
        return _philox_gpu.drop_entries_gpu(values, row, column, out, mask)
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        arrays = (values.numpy(), row.numpy(), column.numpy(), mask.node_id.contiguous().numpy())
        _philox_cpu.drop_entries_cpu(*arrays, out.numpy(), mask)
        return out
    node, group = mask.node_id.index_select(0, row.long()) & LOW, column.long() // 4
    constants = [torch.full((1,), mask.layer & LOW, device=values.device), mask.epoch.reshape(1)]
    words = torch.stack(rounds((node, group, *constants), mask.key), dim=-1)
    word = words.gather(1, (column.long() % 4)[:, None])[:, 0]
    return torch.where(word >= mask.threshold, values * mask.scale, 0)


def _drop_into(out: Tensor, x: Tensor, mask: Mask) -> Tensor:
    if not 0 <= mask.p < 1:
        raise ConfigError(f"Dropout p is {mask.p}: give a probability of at least 0 and below 1.")
    assert x.dim() == 2 and mask.node_id.shape == x.shape[:1], (x.shape, mask.node_id.shape)
    if gpu.runs_triton(x.device) and x.dtype in (torch.float32, torch.float64, torch.bfloat16):
        return _philox_gpu.dropout_gpu(as_rows(x), out, mask)
    if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
        _philox_cpu.dropout_cpu(x.contiguous().numpy(), mask.node_id.contiguous().numpy(), out.numpy(), mask)
        return out
    return drop_into_torch(out, x, mask)


def drop_into_torch(out: Tensor, x: Tensor, mask: Mask) -> Tensor:
    """Compute the same bits as ``_philox_cpu.dropout_cpu``, with torch operations on a chunk of rows at a time."""
    # The layer is filled on the device: torch.tensor(layer) would wait for a copy from the host.
    layer = torch.full((1, 1), mask.layer & LOW, device=x.device)
    for rows, words in _words(mask.node_id, x.shape[1], mask.key, layer, mask.epoch.reshape(1, 1)):
        out[rows] = torch.where(words >= mask.threshold, x[rows] * mask.scale, 0)
    return out


def uniform(node_id: Tensor, num_columns: int, seed: int, layer: int) -> Tensor:
    """Draw a uniform number for each node and column, from the same generator as dropout, at epoch 0.

    Args:
        node_id: (n,) int64 GLOBAL original ids, below 2^32.
        layer: number of the random stream, of which 32 bits are used.

    Returns:
        (n, num_columns) float64 in (0, 1), multiples of 2^-33.
    """
    stream = (seed & LOW, seed >> 32 & LOW), torch.tensor([[layer & LOW]]), torch.tensor([[0]])
    out = torch.empty(len(node_id), num_columns, dtype=torch.float64)
    for rows, words in _words(node_id, num_columns, *stream):
        out[rows] = (words.double() + 0.5) / 2**32
    return out


def _words(
    node_id: Tensor, num_columns: int, key: tuple[int, int], layer: Tensor, epoch: Tensor
) -> Iterator[tuple[slice, Tensor]]:
    """Chunks of rows, and the random words of their nodes and columns; ``layer`` and ``epoch`` are (1, 1)."""
    group = torch.arange((num_columns + 3) // 4, device=node_id.device)
    chunk_rows = max(1, MAX_CALLS // max(1, group.numel()))
    for first in range(0, len(node_id), chunk_rows):
        rows = slice(first, first + chunk_rows)
        words = torch.stack(rounds((node_id[rows, None] & LOW, group[None, :], layer, epoch), key), dim=-1)
        yield rows, words.flatten(1)[:, :num_columns]


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
