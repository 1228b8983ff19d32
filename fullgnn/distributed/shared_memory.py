"""Let the ranks of one machine read each other's rows in shared memory, instead of sending them.

Each rank has s slots (two, or one) in memory that all ranks have mapped, and every product of the job is a round, in
the same order on every rank. In round q a rank writes its rows to slot q mod s and sets its counter ``ready`` to q. A
reader waits for this counter, reads in place, and sets its own counter ``done`` to q when its product is complete.
Before a slot is written again, s rounds later, all its readers must be done with it. Every counter has one writer, so
that no locks are necessary. The protocol needs a processor that keeps the order of a rank's writes, and is therefore
available on x86 only.
"""

import logging
import mmap
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from fullgnn.distributed.collectives import all_gather_objects
from fullgnn.distributed.mesh import World
from fullgnn.kernels.support.aligned import aligned_stride

log = logging.getLogger(__name__)

_HEADER_BYTES = 64  # the two counters, in a cache line of their own
_READY, _DONE = 0, 1
_YIELDS = 200  # polls that only yield the core, before the first that sleeps
_NAP_S = 20e-6


def can_share_memory(world: World) -> bool:
    """Whether the ranks of ``world`` can read each other's rows in place: all use the CPUs of one x86 Linux machine."""
    one_machine = 1 < world.size == world.local_size and world.device.type == "cpu"
    return one_machine and sys.platform == "linux" and platform.machine() == "x86_64"


class SharedSlots:
    """Slots for each rank, in memory that all ranks map. A slot holds one round's rows, of any width and dtype.

    With two slots, a rank writes the rows of a round while others still read those of the last one. With one, it waits
    for them, and needs half the memory.

    The memory is mapped by the first round, and mapped anew by a round whose rows need more bytes than any before.

    Args:
        num_ranks: number of ranks that share memory.
        rank: rank of this process.
        timeout_s: seconds after which a wait raises TimeoutError. If the other rank has ended, it soon raises
            ConnectionError.
        alone: whether this process is the only one, see ``dry.py``.
        num_slots: of each rank, 1 or 2.
    """

    def __init__(self, num_ranks: int, rank: int, timeout_s: float, alone: bool = False, num_slots: int = 2):
        self.num_ranks, self.rank, self.timeout_s, self.alone = num_ranks, rank, timeout_s, alone
        self.num_slots, self.round = num_slots, 0
        self._bytes = [0] * num_ranks  # of one slot of each rank
        self._readers: list[list[int]] = [[]] * num_slots  # of this rank's slots, in the last round of each
        self.pids: list[int] = []  # of the ranks, once their memory is mapped
        self._memory: list[Tensor] = []
        self._counters: list[np.ndarray] = []
        self._views: dict[tuple[int, int, int, int, torch.dtype], Tensor] = {}

    def release(self) -> None:
        """Unmap the memory. Every rank calls this function, between rounds.

        Ranks that still read the rows of the last round have mapped them too.
        """
        self._bytes = [0] * self.num_ranks
        self._unmap()

    def tensors(self) -> list[Tensor]:
        """The memory of this rank, for counting it."""
        return [self._memory[self.rank]] if self._memory else []

    def begin(self, num_rows: list[int], width: int, dtype: torch.dtype, readers: list[int]) -> Tensor:
        """Begin a round and return this rank's slot, once the readers of its last round do not need it any more.

        Every rank calls this function. It is a collective if the slot of any rank needs more bytes than ever before.

        Args:
            num_rows: number of rows of each rank, the same on every rank, as ``width`` and ``dtype`` are.
            readers: the ranks that will read this rank's rows in this round.

        Returns:
            (num_rows[rank], width), whose rows begin at cache lines.

        Raises:
            OSError: a rank could not map the memory of another one; this is raised on every rank.
        """
        self._num_rows, self._width, self._dtype = num_rows, width, dtype
        self._stride = aligned_stride(torch.device("cpu"), width, dtype)
        row_bytes = self._stride * dtype.itemsize
        if not self._memory or any(rows * row_bytes > held for rows, held in zip(num_rows, self._bytes)):
            self._bytes = [max(rows * row_bytes, held) for rows, held in zip(num_rows, self._bytes)]
            self._map()
        self.round += 1
        number = self.round % self.num_slots
        for reader in self._readers[number]:
            self._wait(reader, _DONE, self.round - self.num_slots)
        self._readers[number] = readers
        return self._slot(self.rank)

    def publish(self) -> None:
        """Tell the readers that the slot of this round is written."""
        self._counters[self.rank][_READY] = self.round

    def read(self, holder: int, rows: slice | None = None) -> Tensor:
        """Wait until ``holder`` has published its slot of this round, and return the slot, or some ``rows`` of it,
        read-only.

        Returns:
            (num_rows[holder], width).
        """
        self._wait(holder, _READY, self.round)
        if rows is None:
            return self._slot(holder)
        with _disable_current_modes():  # as in ``_map``
            return self._slot(holder)[rows]

    def end(self) -> None:
        """Tell the holders that this rank has finished its reads of this round. Ranks that read nothing call it too."""
        self._counters[self.rank][_DONE] = self.round

    def _map(self) -> None:
        """Map the slots of every rank i, each of ``_bytes[i]`` bytes; the next round is the first. A collective."""
        self._unmap()  # on every rank before any rank touches the new memory, since all meet in ``map_shared``
        sizes = [_HEADER_BYTES + self.num_slots * num_bytes for num_bytes in self._bytes]
        with _disable_current_modes():  # the memory ledger must not count the other ranks' tensors
            if self.alone:
                self._memory = _own_all(sizes, self.rank)
            else:
                memory, self.pids = map_shared(sizes[self.rank], range(self.num_ranks))
                self._memory = list(map(torch.from_numpy, memory))
            self._counters = [part[:16].view(torch.int64).numpy() for part in self._memory]

    def _unmap(self) -> None:
        self._memory, self._counters, self._views = [], [], {}
        self._readers, self.round = [[]] * self.num_slots, 0

    def _slot(self, rank: int) -> Tensor:
        """The slot of ``rank`` in this round, in the shape of this round."""
        number, num_rows, width, dtype = self.round % self.num_slots, self._num_rows[rank], self._width, self._dtype
        key = (rank, number, num_rows, width, dtype)
        if key not in self._views:
            first = _HEADER_BYTES + number * self._bytes[rank]
            with _disable_current_modes():
                held = self._memory[rank][first : first + num_rows * self._stride * dtype.itemsize]
                self._views[key] = held.view(dtype).view(num_rows, self._stride)[:, :width]
        return self._views[key]

    def _wait(self, rank: int, counter: int, value: int) -> None:
        counters, polls, deadline = self._counters[rank], 0, time.monotonic() + self.timeout_s
        while counters[counter] < value:
            polls += 1
            time.sleep(0 if polls < _YIELDS else _NAP_S)
            if polls % 1024 != 0:
                continue
            if self.pids and not os.path.exists(f"/proc/{self.pids[rank]}"):
                raise ConnectionError(f"rank {rank} has ended")
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {rank} did not reach round {value} within {self.timeout_s} s")


def _own_all(sizes: list[int], rank: int) -> list[Tensor]:
    """Buffers of ``sizes[i]`` bytes for every rank i, all owned by this process.

    The buffers of the other ranks are filled with the byte 0x3F. Their rows are then small floats, but their counters
    are huge, so that waits return at once.
    """
    return [torch.full((size,), 0 if other == rank else 0x3F, dtype=torch.uint8) for other, size in enumerate(sizes)]


def map_shared(
    num_bytes: int, owners: Sequence[int], fill: Callable[[np.ndarray], None] | None = None
) -> tuple[list[np.ndarray], list[int]]:
    """Map memory of some ranks of this machine; the last process that has mapped it frees it. Every rank calls this.

    Args:
        num_bytes: of this rank's own memory; 0 where others map none of it.
        owners: the ranks whose memory this rank maps.
        fill: writes to this rank's memory, which is 0, before another rank maps it.

    Returns:
        (num_bytes,) uint8 for each of ``owners``, and their process ids.

    Raises:
        OSError: a rank could not map what it needs; the same on every rank.
    """
    descriptor, problem = -1, ""
    memory: list[np.ndarray] = []
    try:
        if num_bytes:
            try:
                descriptor = os.memfd_create("fullgnn")
                os.posix_fallocate(descriptor, 0, num_bytes)  # too little memory is an error here, and no signal later
                if fill is not None:
                    fill(np.frombuffer(mmap.mmap(descriptor, num_bytes), np.uint8))
            except OSError as error:
                problem = f"{num_bytes / 1e9:.1f} GB: {error.strerror}"
        told = all_gather_objects((os.getpid(), descriptor, problem))
        problem = next((text for *_, text in told if text), "")
        try:
            for pid, of_owner, _ in [told[owner] for owner in owners] if not problem else []:
                with open(f"/proc/{pid}/fd/{of_owner}", "r+b") as file:
                    memory.append(np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8))
        except OSError as error:
            problem = str(error)
        problems = [text for text in all_gather_objects(problem) if text]
    finally:
        if descriptor >= 0:
            os.close(descriptor)  # all ranks have mapped it, or failed
    if problems:
        raise OSError(problems[0])
    return memory, [told[owner][0] for owner in owners]


def shared_with_forks(shape: int | tuple[int, ...], dtype: type | np.dtype) -> np.ndarray:
    """An array of zeros in memory that the forks of this process share with it; nothing is to be removed."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, max(1, size)), dtype, int(np.prod(shape))).reshape(shape)
