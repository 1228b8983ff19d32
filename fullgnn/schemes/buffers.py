"""The memory that rows of X arrive in, shared by all products of a rank.

The products of a rank (with A, with its transpose, with some rows of either) run strictly one after another, in the
same order on every rank. So one allocation serves them all: it is as large as the largest product needs, not as large
as all of them together, whatever their widths and dtypes.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fullgnn.distributed import SharedSlots
from fullgnn.kernels.support.aligned import aligned_stride
from fullgnn.kernels.support.gpu import is_capturing

_KINDS = ("arriving", "padded", "leaving", "gradients")


class BufferPool:
    """The buffers of one rank. A buffer is valid until the next one of the same kind is requested.

    Args:
        make_slots: makes the slots in shared memory, so many for each rank; no memory is mapped until they are used.
            Products have two, so that the next one may begin before all ranks have ended the last one. Rows that a
            layer reads itself, and gradients on their way to the owners of their rows, have one each: such layers hold
            more, and compute longer.
    """

    def __init__(self, device: torch.device, make_slots: Callable[[int], SharedSlots]):
        self._slots = [make_slots(number) for number in (2, 1, 1)]
        self.slots, self.row_slots, self.gradient_slots = self._slots
        self._device = device
        self._allocations = {kind: _Allocation(device) for kind in _KINDS}

    def arriving(self, num_buffers: int, num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """Return (num_buffers, num_rows, width), contiguous, for rows that arrive. The contents are arbitrary."""
        return self._allocations["arriving"].view((num_buffers, num_rows, width), dtype)

    def leaving(self, num_numbers: int, dtype: torch.dtype) -> Tensor:
        """Return (num_numbers,), for rows that are packed before they leave. The contents are arbitrary."""
        return self._allocations["leaving"].view((num_numbers,), dtype)

    def gradients(self, num_buffers: int, num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """``arriving``, for gradients that come home while rows arrive."""
        return self._allocations["gradients"].view((num_buffers, num_rows, width), dtype)

    def padded(self, num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """Return (num_rows, width), each of whose rows begins at a memory line, see ``aligned.py``.

        The contents are arbitrary, the padding included: a product may read the padding but never uses it.
        """
        stride = aligned_stride(self._device, width, dtype)
        return self._allocations["padded"].view((num_rows, stride), dtype)[:, :width]

    def release(self) -> None:
        """Free all buffers. Every rank calls this function, between products.

        No CUDA graph that was captured with these buffers may be replayed afterwards.
        """
        self._allocations = {kind: _Allocation(self._device) for kind in _KINDS}
        for slots in self._slots:
            slots.release()

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, each once, for counting memory."""
        held = [allocation.tensors() for allocation in self._allocations.values()]
        return [tensor for tensors in (*held, *(slots.tensors() for slots in self._slots)) for tensor in tensors]


class _Allocation:
    """Bytes that serve one request after the other, as many as the largest request so far."""

    def __init__(self, device: torch.device):
        self._device = device
        self._bytes: Tensor | None = None  # (largest request,) uint8
        self._captured = False  # whether a CUDA graph may hold its address
        self._kept: list[Tensor] = []

    def view(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return the first bytes of the allocation, as a contiguous tensor."""
        num_bytes = math.prod(shape) * dtype.itemsize
        if self._bytes is None or len(self._bytes) < num_bytes:
            if self._captured and self._bytes is not None:
                # A CUDA graph replays with the addresses that it was captured with. If a later product, such as a
                # wider one of an evaluation, needs more bytes, the memory at these addresses must stay allocated.
                self._kept.append(self._bytes)
            self._bytes = None  # otherwise the old bytes are free before the new ones are allocated
            # Zeros, since in a dry run nothing arrives: its products must not compute with denormals or nan.
            self._bytes = torch.zeros(num_bytes, dtype=torch.uint8, device=self._device)
            self._captured = False
        self._captured = self._captured or is_capturing(self._device)
        return self._bytes[:num_bytes].view(dtype).view(shape)

    def tensors(self) -> list[Tensor]:
        return self._kept if self._bytes is None else [*self._kept, self._bytes]
