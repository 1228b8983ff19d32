"""One rank of a job that does not run: its real program over torch's fake process group.

Its collectives return at once and move nothing, but are counted all the same. What rank 0 hands out, this process makes
for itself. So memory and bytes are the rank's true ones, and so is its computation, while the numbers that it computes
mean nothing.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.collectives import Axis, Work
from fullgnn.distributed.mesh import World, device_of, num_threads
from fullgnn.telemetry.meter import Meter


@contextmanager
def dry_world(runtime: RuntimeConfig, rank: int, size: int) -> Iterator[World]:
    """The world of ``rank`` among ``size`` ranks, of which ``runtime.nproc`` are on each machine; None: all on one.

    On a CPU, if all are on one machine, they share memory. What others own of that is this process's too, and is not
    counted as its tensors.

    Raises:
        UnsupportedError: ``runtime.device`` is not here.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore  # changes torch.distributed as it is imported

    device = device_of(runtime)
    torch.set_num_threads(num_threads(runtime, 1))
    local_size = min(runtime.nproc or size, size)
    hook = sys.excepthook  # which init_process_group wraps once more for each rank
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield World(rank, size, local_size, device, "fake", runtime.timeout_s, dry=True)
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook


class SilentAxis(Axis):
    """Collectives that count and move nothing, without any process group: a job may be under way in this process.

    Args:
        size, index: ranks on the axis, and which of them this is.
    """

    def __init__(self, size: int, index: int, meter: Meter):
        self.size, self.index, self.meter = size, index, meter

    def broadcast(self, tensor: Tensor, source: int) -> Work:
        if self.index != source:
            self.meter.received("broadcast", tensor.nbytes)
        return Work(tensor, None, self.meter)

    def exchange(
        self, sends: list[tuple[Tensor, int]], receives: list[tuple[Tensor, int]], name: str = "exchange"
    ) -> tuple[list[Work], list[Work]]:
        for tensor, _ in receives:
            self.meter.received(name, tensor.nbytes)
        pending = [[Work(tensor, None, self.meter) for tensor, _ in transfers] for transfers in (sends, receives)]
        return pending[0], pending[1]

    def all_reduce(self, tensor: Tensor) -> Tensor:
        self.meter.received("all_reduce", 2 * (self.size - 1) * tensor.nbytes // self.size)
        return tensor
