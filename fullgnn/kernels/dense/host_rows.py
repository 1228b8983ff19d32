"""A constant matrix that stays in host memory; products copy it to the device one chunk of rows at a time.

On a GPU the host memory is pinned and two buffers alternate: a separate stream copies the next chunk into one buffer
while the current stream reads the other,

    copies     | chunk 0 | chunk 1 |         chunk 2 |         ...
    current              | X_0 ... | X_1 ... | X_2 ...

Events order both directions: a chunk is read only after its copy, and a buffer is filled again only after its last
reader has finished. The host waits for neither. On the host and in both buffers, rows begin at the GPU's cache lines
(``aligned.py``), so that a chunk is one contiguous copy. On a CPU a chunk is a view of the matrix.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from fullgnn.kernels.dense.dense import linear_gradients, matmul
from fullgnn.kernels.epilogue.epilogue import NO_EPILOGUE, Epilogue
from fullgnn.kernels.support.aligned import aligned_stride, pads_rows

CHUNK_BYTES = 32 << 20
"""Size of one chunk of rows; a GPU holds two chunks."""


class HostRows:
    """(n, f) rows in host memory for products on ``device``.

    Args:
        rows: (n, f) on the host. For a CPU the tensor is kept, for a GPU it is copied to pinned memory.
        whole: share the buffers of this matrix, which has the same width and at least as many rows.
    """

    def __init__(self, rows: Tensor, device: torch.device, whole: Optional["HostRows"] = None):
        assert rows.device.type == "cpu", rows.device
        self.num_rows, self.num_columns = rows.shape
        self._device = device
        self._selected: tuple[Tensor, HostRows] | None = None
        stride = aligned_stride(device, self.num_columns, rows.dtype) if pads_rows(device) else self.num_columns
        self._chunk_rows = max(1, CHUNK_BYTES // max(1, stride * rows.element_size()))
        self._chunks: Sequence[Tensor] = rows.split(self._chunk_rows)  # (num, stride) each; one empty chunk if n is 0
        if pads_rows(device) or device.type == "cuda":
            # Pinned chunk by chunk, since torch rounds the size of pinned memory up to a power of two.
            padding = (0, stride - self.num_columns)
            padded = (torch.nn.functional.pad(chunk, padding) for chunk in self._chunks)
            self._chunks = [chunk.pin_memory() if device.type == "cuda" else chunk for chunk in padded]
        if device.type == "cuda":
            if whole is None:
                buffer_rows = min(self._chunk_rows, self.num_rows)
                self._buffers = rows.new_empty(2, buffer_rows, stride, device=device)
                self._copies = torch.cuda.Stream(device)
            else:
                self._buffers, self._copies = whole._buffers, whole._copies

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """Every chunk in order: the slice of rows that it has, and these (num, f) rows on the device.

        A chunk may be read, on the current stream, until the next chunk is requested.
        """
        on_device = iter(self._chunks)
        if self._device.type == "cuda":
            on_device = staged(self._chunks, self._buffers, self._copies)
        first = 0
        for chunk in on_device:
            yield slice(first, first + len(chunk)), chunk[:, : self.num_columns]
            first += len(chunk)

    def multiply(self, weight: Tensor, epilogue: Epilogue = NO_EPILOGUE) -> Tensor:
        """X W with an ``epilogue``, one chunk of rows at a time: (f, g) to (n, g)."""
        y = weight.new_empty(self.num_rows, weight.shape[1])
        for rows, chunk in self.chunks():
            y[rows] = matmul(chunk, weight, epilogue.of(rows))
        return y

    def linear_gradients(self, g: Tensor, output: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
        """The gradients of W and b for Y = activation(X W + b); see ``linear_gradients`` of ``dense.py``. Those of the
        chunks are added in the order of the rows."""
        total: list[Tensor] = []
        for rows, chunk in self.chunks():
            part = None if output is None else output[rows]
            gradients = linear_gradients(chunk, g[rows], part, scale, keep_masked=False)[:2]
            total = [a.add_(b) for a, b in zip(total, gradients)] if total else [*gradients]
        grad_weight, grad_bias = total
        return grad_weight, grad_bias

    def on_device(self) -> Tensor:
        """(n, f), all rows on the device."""
        like = self._chunks[0]
        whole = torch.empty(self.num_rows, self.num_columns, dtype=like.dtype, device=self._device)
        for rows, chunk in self.chunks():
            whole[rows] = chunk
        return whole

    def index_select(self, dim: int, index: Tensor) -> "HostRows":
        """The rows ``index``, without duplicates, gathered on the host; the result is cached for the same tensor."""
        assert dim == 0
        if self._selected is None or self._selected[0] is not index:
            where = index.cpu()
            rows = self._chunks[0].new_empty(len(where), self.num_columns)
            for number, chunk in enumerate(self._chunks):
                first = number * self._chunk_rows
                here = (where >= first) & (where < first + len(chunk))
                rows[here] = chunk[:, : self.num_columns][where[here] - first]
            self._selected = index, HostRows(rows, self._device, self)
        return self._selected[1]

    def tensors(self) -> list[Tensor]:
        """The tensors of this matrix, on the host and on the device."""
        buffers = [self._buffers] if self._device.type == "cuda" else []
        return [*self._chunks, *buffers, *(self._selected[1].tensors() if self._selected else [])]


def staged(chunks: Sequence[Tensor], buffers: Tensor, copies: Any, cuda: Any = torch.cuda) -> Iterator[Tensor]:
    """The ``chunks`` in turn, each in one of two ``buffers``; see the head of this file.

    Args:
        chunks: (num, f) in pinned memory, ``num`` at most that of a buffer.
        buffers: (2, most rows, f) on the device.
        copies: the stream that copies.
        cuda: the module that provides streams; tests pass a fake.
    """
    current = cuda.current_stream(buffers.device)
    # The copies wait for the buffers' last readers. In a capture, this also makes the copies part of the CUDA graph.
    copies.wait_stream(current)
    read: list[Any] = [None, None]  # for each buffer, the event after its last reader

    def fill(number: int) -> tuple[Tensor, Any]:
        turn = number % 2
        buffer = buffers[turn, : len(chunks[number])]
        if read[turn] is not None:
            copies.wait_event(read[turn])
        with cuda.stream(copies):
            buffer.copy_(chunks[number], non_blocking=True)
        return buffer, copies.record_event()

    arriving = fill(0)
    for number in range(len(chunks)):
        buffer, copied = arriving
        if number + 1 < len(chunks):
            arriving = fill(number + 1)
        current.wait_event(copied)
        yield buffer
        read[number % 2] = current.record_event()
