"""Processes that make the batches of a rank ahead of it, and the shared memory in which the batches travel.

    worker w    makes the batches w, w + W, w + 2 W, ... of an epoch: draws the hops, gathers the rows of features that
                are fetched into a slot of shared memory, copies the hops behind them, and tells the rank through a pipe
    the rank    takes the batches in order, from one worker after the other, and tells a worker when a slot is free

Each worker has slots of its own, so that at most as many of its batches wait at any time. A pipe joins two processes
only: no lock is shared, and a worker that is killed leaves none behind. A rank that waits for a batch notices at once
that a worker has ended, and a worker ends when its rank does.

The memory of a slot has a fixed size: the features of as many inputs as a usual batch has (``Sampler.usual_size``). The
features of a larger batch travel in several pieces, one slot after the other.

Workers are forks of the rank: they have the graph already. Each runs compiled code on one thread.
"""

import contextlib
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from fullgnn.distributed.launch import STOP_SIGNALS
from fullgnn.distributed.shared_memory import shared_with_forks
from fullgnn.distributed.worker import Worker, WorkerLost, receive, send
from fullgnn.errors import FullGNNError, RankFailed, UnsupportedError
from fullgnn.sampling.features import FeatureSource
from fullgnn.sampling.hop import PADDING, Hop
from fullgnn.sampling.sample import Sample
from fullgnn.sampling.sharing import ArrayPlace, laid_out, views, whole_lines
from fullgnn.telemetry.machine import too_little


def slot_type(num_rows: int, width: int, dtype: np.dtype, hop_bytes: int) -> np.dtype:
    """A slot: (num_rows, width) ``rows`` of features, and then bytes for the ``hops``, both at a cache line."""
    first = whole_lines(num_rows * width * dtype.itemsize)
    formats, size = ((dtype, (num_rows, width)), (np.uint8, (hop_bytes,))), first + whole_lines(hop_bytes)
    return np.dtype({"names": ("rows", "hops"), "formats": formats, "offsets": (0, first), "itemsize": size})


PackedHops = dict[tuple[int, str], ArrayPlace] | list[Hop[np.ndarray]]
"""Where the arrays of the hops lie, by the number of the hop, from the targets outwards, and the field of ``Hop``; or
the hops themselves, where the slot is too small for them."""


def pack(hops: Sequence[Hop[np.ndarray]], area: np.ndarray) -> PackedHops:
    """Copy the arrays of ``hops`` to the (n,) uint8 ``area``, if they fit."""
    arrays = {(number, name): array for number, hop in enumerate(hops) for name, array in vars(hop).items()}
    arrays = {key: array for key, array in arrays.items() if array is not None}
    places, size = laid_out(arrays, PADDING)
    if size > len(area):
        return list(hops)
    for key, view in views(area, places).items():
        view[...] = arrays[key]
    return places


def unpack(packed: PackedHops, area: np.ndarray) -> list[Hop[np.ndarray]]:
    """The hops that ``pack`` has copied, as views of ``area``; or those that it returned."""
    if isinstance(packed, list):
        return [hop.copy() for hop in packed]  # with the padding, which pickle drops
    arrays = defaultdict[int, dict[str, Any]](dict)
    for (number, name), view in views(area, packed).items():
        arrays[number][name] = view
    return [Hop(**of_hop) for of_hop in arrays.values()]


@dataclass(frozen=True)
class Piece:
    """What a worker tells its rank: rows ``first`` to ``stop`` of the fetched features of a batch are in ``slot``.

    The last three fields are those of the batch, and come with its first piece.
    """

    request: int  # number of the call of ``Workers.begin``
    number: int  # of the batch
    slot: int
    first: int
    stop: int
    num_rows: int  # of the batch
    time_s: dict[str, float]  # what the worker has spent on this piece, by step
    targets: np.ndarray | None = None
    total: float = 0.0
    hops: PackedHops | None = None


EpochRequest = tuple[int, int, int, int]
"""The number of a call of ``Workers.begin``, and its arguments."""


class Workers:
    """The workers of a rank.

    Args:
        sample: draws batch (epoch, number).
        features: tells which rows are fetched.
        slot: see ``slot_type``.
        num_workers: at least 1.
        num_slots: of each worker.
        rank: for messages.
        timeout_s: seconds after which a worker that has been stopped is lost.
    """

    def __init__(
        self,
        sample: Callable[[int, int], Sample],
        features: FeatureSource,
        slot: np.dtype,
        num_workers: int,
        num_slots: int,
        rank: int,
        timeout_s: float,
    ):
        if sys.platform != "linux":
            raise UnsupportedError("loader.num_workers needs Linux, where a process can be forked: set it to 0")
        self._workers, self._slots = list[Worker](), list[np.ndarray]()
        self._request, self._rank, self._timeout_s = 0, rank, timeout_s
        try:
            for number in range(num_workers):
                slots = shared_with_forks(num_slots, slot)
                producer = partial(_Producer, sample, features, slots, number, num_workers)
                self._workers.append(Worker.forked(_serve, producer, timeout_s=timeout_s))
                self._slots.append(slots)
        except BaseException:
            self.close()
            raise

    def begin(self, epoch: int, first: int, stop: int) -> None:
        """Let the workers make the batches ``first`` to ``stop`` of ``epoch``. What is left of an earlier call is
        skipped."""
        self._request += 1
        for worker in self._workers:
            self._send(worker, (self._request, epoch, first, stop))

    def next_piece(self, number: int) -> Piece:
        """Wait for the next piece of batch ``number``.

        Raises:
            RankFailed: the worker of the batch has ended or failed, or has been stopped for long.
        """
        number %= len(self._workers)
        while True:
            try:
                message = self._workers[number].receive()
            except WorkerLost as lost:
                raise self._lost(number, lost.status) from None
            if isinstance(message, FullGNNError):
                raise RankFailed(str(message)) from message
            if isinstance(message, str):
                raise RuntimeError(f"worker {number} of rank {self._rank} failed:\n{message}")
            if message.request == self._request:
                return message
            self.release(message)

    def features(self, piece: Piece) -> np.ndarray:
        """(stop - first, row width), the rows of ``piece``, until its slot is released."""
        return self._slots[piece.number % len(self._slots)]["rows"][piece.slot][: piece.stop - piece.first]

    def hops(self, piece: Piece) -> list[Hop[np.ndarray]]:
        """The hops of a batch, from its first piece, until the slot of that is released."""
        assert piece.hops is not None
        return unpack(piece.hops, self._slots[piece.number % len(self._slots)]["hops"][piece.slot])

    def release(self, piece: Piece) -> None:
        """Tell the worker that nothing reads the slot of ``piece`` any more."""
        self._send(self._of(piece.number), piece.slot)

    def has_piece(self, number: int) -> bool:
        """Whether a piece of batch ``number`` has come, or its worker has ended."""
        return self._of(number).connection.poll()

    def memory(self) -> list[tuple[int, int]]:
        """Address and bytes of the slots of each worker."""
        return [(slots.ctypes.data, slots.nbytes) for slots in self._slots]

    def close(self) -> None:
        """End the workers, whatever they do, and wait for that."""
        for worker in self._workers:
            worker.connection.close()
            worker.kill()
        self._workers, self._slots = [], []

    def _of(self, number: int) -> Worker:
        """The worker that makes batch ``number``."""
        return self._workers[number % len(self._workers)]

    def _send(self, worker: Worker, message: object) -> None:
        """Tell ``worker`` something. That it has ended is noticed where its next piece is awaited: an error here would
        be lost, since a generator that is closed releases its slot."""
        with contextlib.suppress(WorkerLost):
            worker.send(message)

    def _lost(self, number: int, status: int | None) -> RankFailed:
        what = f"sampling worker {number} of rank {self._rank} (process {self._workers[number].process.pid})"
        if status is None:
            return RankFailed(
                f"{what} has been stopped for runtime.timeout_s={self._timeout_s:g} s: start again with resume=auto"
            )
        how = f"was killed ({signal.Signals(-status).name})" if status < 0 else f"ended with status {status}"
        hint = ", as the system does when memory runs out" if status == -signal.SIGKILL else ""
        return RankFailed(f"{what} {how}{hint}: use fewer loader.num_workers or a smaller loader.batch_size")


@dataclass(frozen=True)
class _Producer:
    """What a worker does."""

    sample: Callable[[int, int], Sample]
    features: FeatureSource
    slots: np.ndarray  # of ``slot_type``
    number: int
    num_workers: int
    connection: Connection

    def serve(self) -> None:
        """Make the batches of one epoch after the other, until the pipe is closed."""
        free, wanted = list(range(len(self.slots))), list[EpochRequest]()
        while True:
            while not wanted:
                self._receive(free, wanted)
            request, epoch, first, stop = wanted.pop(0)
            start = first + (self.number - first) % self.num_workers
            for number in range(start, stop, self.num_workers):
                for piece in self._pieces(request, epoch, number, free, wanted):
                    send(self.connection, piece)

    def _pieces(
        self, request: int, epoch: int, number: int, free: list[int], wanted: list[EpochRequest]
    ) -> Iterator[Piece]:
        begin = time.perf_counter()
        sample = self.sample(epoch, number)
        time_s = {"sample": time.perf_counter() - begin}
        fetched = self.features.missing(sample.inputs)
        num_rows, step = len(fetched), self.slots["rows"].shape[1]
        for first in range(0, max(1, num_rows), step):
            while not free:
                self._receive(free, wanted)
            slot, stop = free.pop(0), min(first + step, num_rows)
            begin = time.perf_counter()
            rows = self.slots["rows"][slot][: stop - first]
            np.take(self.features.rows, fetched[first:stop], axis=0, out=rows, mode="clip")  # clip: no copy
            time_s["gather"] = time.perf_counter() - begin
            place = request, number, slot, first, stop, num_rows, time_s
            if first == 0:
                begin = time.perf_counter()
                hops = pack(sample.hops, self.slots["hops"][slot])
                time_s["pack"] = time.perf_counter() - begin
                yield Piece(*place, sample.targets, sample.total, hops)
            else:
                yield Piece(*place)
            time_s = {}

    def _receive(self, free: list[int], wanted: list[EpochRequest]) -> None:
        """Take a message of the rank: the number of a slot that is free again, or an epoch."""
        message = receive(self.connection)
        if isinstance(message, int):
            free.append(message)
        else:
            wanted.append(message)


def _serve(connection: Connection, producer: Callable[[Connection], _Producer]) -> None:
    """The main function of a worker."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the rank decides when its workers end
    torch.set_num_threads(1)
    worker = producer(connection)
    try:
        worker.serve()
    except (EOFError, ConnectionError):
        raise
    except BaseException as error:
        shortage = too_little(error, f"what sampling worker {worker.number} makes")
        send(connection, shortage or traceback.format_exc())
