"""A batch travels to a GPU by one copy, for which the host does not wait. A CPU takes the way of a GPU here."""

from collections import deque
from itertools import islice
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.to_device import move
from fullgnn.sampling.loader import Arrivals
from fullgnn.sampling.transfer import ALIGNED, Packet, Transfer
from fullgnn.telemetry.meter import Meter
from tests.gpu_code.host_waits import HostWaits
from tests.sampling.loaders import batches_of, content, loader_of
from tests.triton_device import DEVICE, needs_triton

CPU = torch.device("cpu")


@pytest.fixture
def on_gpu(triton_on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "AS_ON_GPU", True)


def pieces() -> list[Tensor]:
    arrays = [
        np.arange(7, dtype=np.int32),
        np.arange(5, dtype=np.int64),
        np.random.default_rng(0).random((3, 5)),
        np.empty(0, np.float32),
        np.array([True, False, True]),
        np.arange(12, dtype=np.int32)[::3],  # not contiguous
    ]
    return [torch.from_numpy(array) for array in arrays]


def copies(transfer: Transfer) -> mock.Mock:
    """Counts the copies of ``transfer``."""
    transfer.copy = mock.Mock(side_effect=transfer.copy)  # type: ignore[method-assign]
    return transfer.copy  # type: ignore[return-value]


@pytest.mark.parametrize("room", [1 << 20, 0, 200])
def test_a_packet_has_what_was_put_in(on_gpu: None, room: int) -> None:
    """By one copy if there is room, and the next packet has room for as much in any case."""
    transfer = Transfer(DEVICE)
    transfer.packet_bytes, copied = room, copies(transfer)
    for turn in range(2):
        packet, given = Packet(transfer), pieces()
        tensors = [packet.put(piece) for piece in given] + [packet.put(given[0], torch.int64)]
        copied.reset_mock()
        packet.send()
        for tensor, expected in zip(tensors, [*given, given[0].long()], strict=True):
            assert tensor.dtype == expected.dtype and tensor.device.type == DEVICE.type
            assert torch.equal(tensor.cpu(), expected)
            assert tensor.untyped_storage().data_ptr() != expected.untyped_storage().data_ptr()
            assert (tensor.storage_offset() * tensor.element_size()) % ALIGNED == 0
        assert copied.call_count == 1 if turn or room > 1000 else copied.call_count > 1


def test_a_cpu_keeps_its_tensors() -> None:
    packet, x = Packet(Transfer(CPU)), torch.arange(3)
    assert packet.put(x) is x and packet.put(x, torch.int32).dtype == torch.int32
    packet.send()
    rows = torch.ones(2, 3)
    assert Transfer(CPU).moved(rows) is rows and move(rows, CPU) is rows


@needs_triton
def test_a_batch_is_made_without_a_wait(on_gpu: None, graph) -> None:
    """And by one copy for all of its blocks; the values of the batches are those of a CPU."""
    batches = batches_of(graph)
    with mock.patch.object(gpu, "AS_ON_GPU", False):
        wanted = [content(batch) for batch in islice(loader_of(batches, None).epoch(1), 2)]
    loader = loader_of(batches, None)
    copied, contents = copies(loader.transfer), []
    for batch in islice(loader.epoch(1), 2):
        assert copied.call_count == 2  # rows of features, and everything else
        contents.append(content(batch))
        copied.reset_mock()
    for numbers, other in zip(contents, wanted, strict=True):
        for a, b in zip(numbers, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)  # another kernel adds in another order
    made = loader.epoch(2)
    with HostWaits() as waits:
        next(made)
    assert waits.counts == {} and waits.num_calls > 0


class Worker:
    """Stands for ``Workers`` that always have the next piece."""

    def __init__(self, waits: bool):
        self.released: list[int] = []
        self.waits = waits

    def has_piece(self, number: int) -> bool:
        return not self.waits or len(self.released) >= 2

    def next_piece(self, number: int) -> SimpleNamespace:
        return SimpleNamespace(time_s={})

    def release(self, piece: int) -> None:
        self.released.append(piece)


class Event:
    """The event behind a copy that is ``done``, or not yet."""

    def __init__(self, done: bool):
        self.done = done

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.done = True


@pytest.mark.parametrize(
    ("done", "waits", "released"),
    [
        ([True, True, False, True], False, [0, 1]),
        ([True, True, True], False, [0, 1, 2]),
        ([False, True], False, []),
        ([False, False, False], True, [0, 1]),
        ([], False, []),
    ],
)
def test_every_slot_whose_copy_is_done_is_free_again(done: list[bool], waits: bool, released: list[int]) -> None:
    """And if the worker waits for a slot, the oldest ones are waited for, but no others."""
    worker = Worker(waits)
    arrivals = Arrivals(worker, Transfer(CPU), Meter(CPU))  # type: ignore[arg-type]
    arrivals.copying = deque((Event(ready), number) for number, ready in enumerate(done))  # type: ignore[misc]
    arrivals.next_number(5)
    assert worker.released == released and len(arrivals.copying) == len(done) - len(released)
