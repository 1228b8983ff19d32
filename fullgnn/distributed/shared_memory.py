"""Let the ranks of one machine read each other's rows in shared memory, instead of sending them.

Each rank has two slots in memory that all ranks have mapped. In round q a rank writes its rows to slot q mod 2 and sets
its counter ``ready`` to q. A reader waits for this counter, reads in place, and sets its own counter ``done`` to q when
its product is complete. Before a slot is written again, two rounds later, all readers must be done with it. Every
counter has one writer, so that no locks are necessary. The protocol needs a processor that keeps the order of a rank's
writes, and is therefore available on x86 only.
"""

import logging
import math
import os
import platform
import sys
import time

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
    """Two (rows, width) slots for each rank, in memory that all ranks map. Every row begins at a cache line.

    The constructor is a collective.

    Args:
        num_rows: number of rows of each rank.
        timeout_s: seconds after which a wait raises TimeoutError.
        rank: rank of this process.
        alone: whether this process is the only one, see ``dry.py``.

    Raises:
        OSError: a rank could not map the memory of another one; this is raised on every rank.
    """

    def __init__(
        self, num_rows: list[int], width: int, dtype: torch.dtype, timeout_s: float, rank: int, alone: bool = False
    ):
        self.rank, self.timeout_s, self.round = rank, timeout_s, 0
        stride = aligned_stride(torch.device("cpu"), width, dtype)
        shapes = [(2, rows, stride) for rows in num_rows]
        sizes = [_HEADER_BYTES + math.prod(shape) * dtype.itemsize for shape in shapes]
        with _disable_current_modes():  # the memory ledger must not count the other ranks' tensors
            memory = _own_all(sizes, rank) if alone else _map_all(sizes, rank)
            slots = [
                part[_HEADER_BYTES:].view(dtype).view(shape) if math.prod(shape) else torch.empty(shape, dtype=dtype)
                for part, shape in zip(memory, shapes)
            ]
            self._slots = [tuple(slot[:, :, :width].unbind()) for slot in slots]
            self._counters = [part[:16].view(torch.int64).numpy() for part in memory]

    @property
    def own(self) -> tuple[Tensor, ...]:
        """The two (rows, width) slots of this rank."""
        return self._slots[self.rank]

    def begin(self, readers: list[int]) -> Tensor:
        """Begin a round: wait until all ``readers`` are done with the next slot, then return it: (rows, width)."""
        self.round += 1
        for reader in readers:
            self._wait(reader, _DONE, self.round - 2)
        return self.own[self.round % 2]

    def publish(self) -> None:
        """Tell the readers that the slot of this round is written."""
        self._counters[self.rank][_READY] = self.round

    def read(self, holder: int) -> Tensor:
        """Wait until ``holder`` has published its slot of this round, and return the slot, read-only: (rows, width)."""
        self._wait(holder, _READY, self.round)
        return self._slots[holder][self.round % 2]

    def end(self) -> None:
        """Tell the holders that this rank has finished its reads of this round."""
        self._counters[self.rank][_DONE] = self.round

    def _wait(self, rank: int, counter: int, value: int) -> None:
        counters, polls, deadline = self._counters[rank], 0, time.monotonic() + self.timeout_s
        while counters[counter] < value:
            polls += 1
            time.sleep(0 if polls < _YIELDS else _NAP_S)
            if polls % 1024 == 0 and time.monotonic() > deadline:
                raise TimeoutError(f"rank {rank} did not reach round {value} within {self.timeout_s} s")


def _own_all(sizes: list[int], rank: int) -> list[Tensor]:
    """Buffers of ``sizes[i]`` bytes for every rank i, all owned by this process.

    The buffers of the other ranks are filled with the byte 0x3F. Their rows are then small floats, but their counters
    are huge, so that waits return at once.
    """
    return [torch.full((size,), 0 if other == rank else 0x3F, dtype=torch.uint8) for other, size in enumerate(sizes)]


def _map_all(sizes: list[int], rank: int) -> list[Tensor]:
    """Map ``sizes[i]`` zeroed bytes of every rank i into this process; the last process to unmap them frees them."""
    memory: list[Tensor] = []
    problem: OSError | None = None
    descriptor = os.memfd_create("fullgnn-rows")
    try:
        os.ftruncate(descriptor, sizes[rank])
        owners = all_gather_objects((os.getpid(), descriptor))
        try:
            memory = [
                torch.from_file(f"/proc/{pid}/fd/{fd}", shared=True, size=size, dtype=torch.uint8)
                for (pid, fd), size in zip(owners, sizes)
            ]
        except (OSError, RuntimeError) as error:
            problem = OSError(str(error))
        problems = [text for text in all_gather_objects(str(problem) if problem else "") if text]
    finally:
        os.close(descriptor)  # all ranks have mapped it, or failed
    if problems:
        raise OSError(problems[0])
    return memory
