"""The way of a batch from the host to the device of a rank: copies on a stream of their own, for which no one waits.

What the blocks of a batch hold is small and comes in many pieces. A ``Packet`` collects the pieces in one page-locked
buffer, hands out their places in a buffer of the device at once, and fills all of these by one copy. So a batch is made
while the GPU computes the one before, and the stream that computes waits for an event, not the host.
"""

import torch
from torch import Tensor

from fullgnn.kernels.support import gpu

ALIGNED = 64  # bytes; a piece begins at a multiple, so that kernels read vectors of it
FIRST_BYTES = 1 << 20
SPARE = 1.25  # room of a packet, of the bytes of the largest one before


class Transfer:
    """Copies from the host to ``device``. If that is the CPU, nothing is copied."""

    def __init__(self, device: torch.device):
        self.device, self.packet_bytes = device, FIRST_BYTES
        """Room of a packet: for somewhat more than the largest one so far."""
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory on the device for copies of ``copy``: nothing that is computed now has used it."""
        with torch.cuda.stream(self.stream):
            return torch.empty(shape, dtype=dtype, device=self.device)

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copy ``source``, on the host, to ``target``, without waiting for it where ``source`` is page-locked."""
        with torch.cuda.stream(self.stream):
            target.copy_(source, non_blocking=True)

    def arrived(self, *tensors: Tensor) -> None:
        """What is computed from now on sees all copies; it may read ``tensors``, which ``empty`` has made."""
        if self.stream is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(self.stream)
            for tensor in tensors:
                tensor.record_stream(current)

    def moved(self, tensor: Tensor) -> Tensor:
        """``tensor``, page-locked on the host, on the device."""
        if gpu.runs_host_loops(self.device):
            return tensor
        target = self.empty(tuple(tensor.shape), tensor.dtype)
        self.copy(tensor, target)
        self.arrived(target)
        return target


class Packet:
    """Tensors of the host that travel to the device by one copy; by more if they do not fit into ``packet_bytes``."""

    def __init__(self, transfer: Transfer):
        self._transfer = transfer
        self._buffers: list[tuple[Tensor, Tensor, int]] = []  # on the host and on the device, and the bytes in use

    def put(self, tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Where ``tensor`` is on the device, as ``dtype``, once ``send`` has been called."""
        device, dtype = self._transfer.device, dtype or tensor.dtype
        if gpu.runs_host_loops(device) or tensor.device.type == "cuda":
            return tensor.to(device, dtype)
        num_bytes = tensor.numel() * dtype.itemsize
        host, target, first = self._buffer(num_bytes)
        self._buffers[-1] = host, target, -(-(first + num_bytes) // ALIGNED) * ALIGNED
        on_host, on_device = (
            buffer[first : first + num_bytes].view(dtype).view(tensor.shape) for buffer in (host, target)
        )
        on_host.copy_(tensor)
        return on_device

    def send(self) -> None:
        """Copy what was put in; what is computed from now on sees it."""
        for host, target, end in self._buffers:
            self._transfer.copy(host[:end], target[:end])
        self._transfer.arrived(*(target for _, target, _ in self._buffers))
        num_bytes = sum(end for _, _, end in self._buffers)
        self._transfer.packet_bytes = max(self._transfer.packet_bytes, int(num_bytes * SPARE))
        self._buffers = []

    def _buffer(self, num_bytes: int) -> tuple[Tensor, Tensor, int]:
        """A buffer with room for ``num_bytes``, on the host and on the device, and the first free byte."""
        if not self._buffers or self._buffers[-1][2] + num_bytes > len(self._buffers[-1][0]):
            size = -(-max(self._transfer.packet_bytes, num_bytes) // ALIGNED) * ALIGNED
            host = torch.empty(size, dtype=torch.uint8, pin_memory=self._transfer.stream is not None)
            self._buffers.append((host, self._transfer.empty((size,), torch.uint8), 0))
        return self._buffers[-1]
