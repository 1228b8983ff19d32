"""Rows that stay on the host are read a chunk at a time."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from fullgnn.kernels.dense import host_rows
from fullgnn.kernels.dense.host_rows import HostRows, staged
from fullgnn.kernels.support import aligned

CPU = torch.device("cpu")
ROW_BYTES = 5 * 8


def matrix(num_rows: int) -> Tensor:
    return torch.arange(num_rows * 5, dtype=torch.float64).view(num_rows, 5)


@pytest.mark.parametrize(
    ("num_rows", "chunk_bytes", "sizes"),
    [
        (7, 3 * ROW_BYTES, [3, 3, 1]),
        (6, 3 * ROW_BYTES + 39, [3, 3]),
        (2, 1, [1, 1]),  # a row is wider than a chunk
        (4, 1 << 20, [4]),
        (0, 1 << 20, [0]),
    ],
)
def test_the_chunks_are_views_of_all_rows_in_order(monkeypatch, num_rows, chunk_bytes, sizes) -> None:
    monkeypatch.setattr(host_rows, "CHUNK_BYTES", chunk_bytes)
    rows = matrix(num_rows)
    chunks = list(HostRows(rows, CPU).chunks())
    assert [len(chunk) for _, chunk in chunks] == sizes
    assert all(torch.equal(rows[where], chunk) for where, chunk in chunks)
    assert [where.start for where, _ in chunks] == [sum(sizes[:k]) for k in range(len(sizes))]
    assert all(chunk.untyped_storage().data_ptr() == rows.untyped_storage().data_ptr() for _, chunk in chunks)


@pytest.mark.parametrize("chosen", [[0, 2, 3, 6], [5], [], [6, 0, 3]])
def test_rows_are_selected_once(monkeypatch, chosen: list[int]) -> None:
    monkeypatch.setattr(host_rows, "CHUNK_BYTES", 3 * ROW_BYTES)
    rows, index = matrix(7), torch.tensor(chosen, dtype=torch.int64)
    whole = HostRows(rows, CPU)
    some = whole.index_select(0, index)
    assert torch.equal(torch.cat([chunk for _, chunk in some.chunks()]), rows[index])
    assert whole.index_select(0, index) is some
    other = torch.tensor([1])
    assert torch.equal(torch.cat([chunk for _, chunk in whole.index_select(0, other).chunks()]), rows[other])


def test_it_names_all_that_it_holds(monkeypatch) -> None:
    monkeypatch.setattr(host_rows, "CHUNK_BYTES", 3 * ROW_BYTES)
    whole = HostRows(matrix(7), CPU)
    assert sum(tensor.nbytes for tensor in whole.tensors()) == 7 * ROW_BYTES
    whole.index_select(0, torch.tensor([1, 2]))
    assert sum(tensor.nbytes for tensor in whole.tensors()) == 9 * ROW_BYTES


def test_chunks_lie_in_lines_where_the_device_wants_them(monkeypatch) -> None:
    """A line holds 8 float64 numbers."""
    monkeypatch.setattr(aligned, "PADDED_DEVICES", ("cpu",))
    monkeypatch.setattr(host_rows, "CHUNK_BYTES", 3 * 8 * 8)
    rows = matrix(7)
    whole = HostRows(rows, CPU)
    chunks = list(whole.chunks())
    assert [(tuple(chunk.shape), chunk.stride()) for _, chunk in chunks] == [((n, 5), (8, 1)) for n in (3, 3, 1)]
    assert all(torch.equal(rows[where], chunk) for where, chunk in chunks)
    assert all(held.is_contiguous() and not held[:, 5:].any() for held in whole.tensors())
    assert sum(tensor.nbytes for tensor in whole.tensors()) == 7 * 8 * 8
    some = whole.index_select(0, torch.tensor([6, 0]))
    assert torch.equal(torch.cat([chunk for _, chunk in some.chunks()]), rows[[6, 0]])
    assert all(chunk.stride() == (8, 1) for _, chunk in some.chunks())


# ---- the two buffers of a GPU, on streams that run when the test lets them -------------------------------------------


class Event:
    done = False


class Stream:
    """Operations in the order in which they were issued; ``advance`` runs the next one, unless it waits."""

    def __init__(self) -> None:
        self.operations: list[tuple[Event | None, Callable[[], None]]] = []

    def issue(self, operation: Callable[[], None], after: Event | None = None) -> None:
        self.operations.append((after, operation))

    def wait_event(self, event: Event) -> None:
        self.issue(lambda: None, after=event)

    def wait_stream(self, other: "Stream") -> None:
        self.wait_event(other.record_event())

    def record_event(self) -> Event:
        event = Event()
        self.issue(lambda: setattr(event, "done", True))
        return event

    def advance(self) -> bool:
        if not self.operations or (self.operations[0][0] is not None and not self.operations[0][0].done):
            return False
        self.operations.pop(0)[1]()
        return True


class Cuda:
    """The functions of ``torch.cuda`` that ``staged`` calls."""

    def __init__(self) -> None:
        self.current, self.copies = Stream(), Stream()
        self.active = self.current

    def current_stream(self, device: object) -> Stream:
        return self.current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self.active = stream
        yield
        self.active = self.current


class Buffer:
    """A device tensor whose copies are issued to a stream that runs them later."""

    device = None

    def __init__(self, cuda: Cuda, memory: Tensor):
        self.cuda, self.memory = cuda, memory

    def __getitem__(self, index: object) -> "Buffer":
        return Buffer(self.cuda, self.memory[index])

    def copy_(self, source: Tensor, non_blocking: bool) -> None:
        assert non_blocking
        memory = self.memory

        def first() -> None:
            memory.fill_(-1)  # the copy is half done

        self.cuda.active.issue(first)
        self.cuda.active.issue(lambda: memory.copy_(source))


def schedules() -> Iterator[tuple[str, Callable[[list[Stream]], list[Stream]]]]:
    """Rules for which of two streams runs first whenever both can."""
    yield "current", lambda streams: streams
    yield "copies", lambda streams: streams[::-1]
    for seed in range(20):
        draw = random.Random(seed)
        yield f"random-{seed}", lambda streams, draw=draw: draw.sample(streams, 2)


@pytest.mark.sample(7)
@pytest.mark.parametrize(("order"), [pytest.param(order, id=name) for name, order in schedules()])
@pytest.mark.parametrize("num_rows", [1, 3, 6, 7, 14])
def test_what_is_read_is_the_chunk_whatever_runs_first(order, num_rows: int) -> None:
    cuda = Cuda()
    rows = matrix(num_rows)
    chunks = rows.split(3)
    buffers = Buffer(cuda, torch.full((2, 3, 5), -2.0, dtype=torch.float64))
    results: list[list[Tensor]] = [[], []]
    for read in results:  # a pass forward and one backward, issued one after the other
        for buffer in staged(chunks, buffers, cuda.copies, cuda):
            for _ in range(2):  # two operations read a chunk
                cuda.active.issue(lambda read=read, buffer=buffer: read.append(buffer.memory.clone()))
    assert results == [[], []]  # the host has waited for nothing
    streams = [cuda.current, cuda.copies]
    while any(stream.advance() for stream in order(streams)):
        pass
    assert not cuda.current.operations and not cuda.copies.operations
    for read in results:
        assert torch.equal(torch.cat(read[::2]), rows) and torch.equal(torch.cat(read[1::2]), rows)


@pytest.mark.gpu
@pytest.mark.parametrize("num_rows", [0, 1, 3, 1000])
def test_rows_arrive_on_the_gpu(monkeypatch, num_rows: int) -> None:
    monkeypatch.setattr(host_rows, "CHUNK_BYTES", 3 * ROW_BYTES)
    device = torch.device("cuda", torch.cuda.current_device())
    rows = matrix(num_rows)
    held = HostRows(rows, device)
    for _ in range(2):
        chunks = [(where, chunk.clone()) for where, chunk in held.chunks()]
        assert all(chunk.device == device and torch.equal(rows[where], chunk.cpu()) for where, chunk in chunks)
    index = torch.arange(0, num_rows, 2, device=device)
    some = torch.cat([chunk.clone() for _, chunk in held.index_select(0, index).chunks()])
    assert torch.equal(some.cpu(), rows[::2])
