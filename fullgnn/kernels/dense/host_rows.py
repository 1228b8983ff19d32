"""A constant matrix that stays in host memory and comes to the device a chunk of rows at a time, as it is multiplied.

On a GPU the host memory is pinned and two buffers take turns: a stream of its own copies the next chunk into one while
the current stream reads the other,

    copies     | chunk 0 | chunk 1 |         chunk 2 |         ...
    current              | X_0 ... | X_1 ... | X_2 ...

Events order both directions: a chunk is read only after its copy, and a buffer is filled again only after the reader
before has done. The host waits for neither. Rows lie in lines of the GPU (``lines.py``) in all three places, so that a
chunk travels in one piece. On a CPU a chunk is a view of the matrix.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from fullgnn.kernels.support.lines import line_stride, pads_rows

CHUNK_BYTES = 32 << 20
"""Of the rows that travel at a time; a GPU holds two chunks."""


class HostRows:
    """(n, f) rows in host memory for products on ``device``.

    Args:
        rows: on the host. On a CPU it is kept, elsewhere it is copied to pinned memory.
        whole: take turns with the buffers of this matrix of the same width, which has at least as many rows.
    """

    def __init__(self, rows: Tensor, device: torch.device, whole: Optional["HostRows"] = None):
        assert rows.device.type == "cpu", rows.device
        self.num_rows, self.num_columns = rows.shape
        self._device = device
        self._selected: tuple[Tensor, HostRows] | None = None
        stride = line_stride(device, self.num_columns, rows.dtype) if pads_rows(device) else self.num_columns
        self._chunk_rows = max(1, CHUNK_BYTES // max(1, stride * rows.element_size()))
        self._chunks: Sequence[Tensor] = rows.split(self._chunk_rows)  # (num, stride) each; one, empty, of no rows
        if pads_rows(device) or device.type == "cuda":
            # Pinned chunk by chunk, since torch rounds what it pins up to a power of two.
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
        """Every chunk in order: which rows it has, and the (num, f) rows on the device.

        A chunk may be read, on the current stream, until the next one is asked for.
        """
        on_device = iter(self._chunks)
        if self._device.type == "cuda":
            on_device = staged(self._chunks, self._buffers, self._copies)
        first = 0
        for chunk in on_device:
            yield slice(first, first + len(chunk)), chunk[:, : self.num_columns]
            first += len(chunk)

    def index_select(self, dim: int, index: Tensor) -> "HostRows":
        """The rows ``index``, no row twice, gathered on the host; the same object while ``index`` is."""
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
        """The tensors it holds, on the host and on the device."""
        buffers = [self._buffers] if self._device.type == "cuda" else []
        return [*self._chunks, *buffers, *(self._selected[1].tensors() if self._selected else [])]


def staged(chunks: Sequence[Tensor], buffers: Tensor, copies: Any, cuda: Any = torch.cuda) -> Iterator[Tensor]:
    """The ``chunks`` in turn, each in one of two ``buffers``; see the head of this file.

    Args:
        chunks: (num, f) in pinned memory, ``num`` at most that of a buffer.
        buffers: (2, most rows, f) on the device.
        copies: the stream that copies.
        cuda: where streams come from.
    """
    current = cuda.current_stream(buffers.device)
    # The buffers' last readers are behind this; and in a graph that is captured, the copies belong to it from here on.
    copies.wait_stream(current)
    read: list[Any] = [None, None]  # events, by buffer

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
