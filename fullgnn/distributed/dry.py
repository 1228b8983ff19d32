"""Dry run: the program of one rank of a job, run without the other ranks, over torch's fake process group.

Collectives return at once and move nothing, but their bytes are counted. The process has the prepared graph, and opens
the part of its rank as that rank would. So the memory, the bytes and the work are those of the rank in a real job,
while the computed numbers have no meaning.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.collectives import NOT_WITHOUT_OTHERS, Axis, Work
from fullgnn.distributed.mesh import World, device_of, num_threads, product_precision
from fullgnn.errors import UnsupportedError
from fullgnn.telemetry.meter import Meter


@contextmanager
def dry_world(runtime: RuntimeConfig, rank: int, size: int) -> Iterator[World]:
    """Enter a dry run as ``rank`` of ``size`` ranks, with ``runtime.nproc`` ranks on each machine; None: all on one.

    On a CPU, ranks on one machine share memory. This process then allocates the other ranks' buffers too, but does not
    count them as its tensors.

    Raises:
        UnsupportedError: this machine does not have ``runtime.device``.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore  # changes torch.distributed as it is imported

    device = device_of(runtime)
    torch.set_num_threads(num_threads(runtime, 1))
    local_size = min(runtime.nproc or size, size)
    hook = sys.excepthook  # init_process_group wraps it once more for each rank
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        with product_precision(runtime.precision):
            yield World(rank, size, local_size, device, "fake", runtime.timeout_s, dry=True)
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook


class CountingAxis(Axis):
    """Collectives that only count bytes. They need no process group, so this process may take part in a job as well.

    Args:
        size: number of ranks on the axis.
        index: position of this rank on the axis.
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

    def all_to_all(self, tensors: list[Tensor], name: str, num_rows: list[int] | None = None) -> list[Tensor]:
        if num_rows is None:
            raise UnsupportedError(NOT_WITHOUT_OTHERS)
        return super().all_to_all(tensors, name, num_rows)

    def all_to_all_rows(
        self, sent: Tensor, num_sent: list[int], arriving: Tensor, num_arriving: list[int], name: str
    ) -> Work:
        width = arriving.nbytes // max(1, len(arriving))
        self.meter.received(name, arriving.nbytes - num_arriving[self.index] * width)
        return Work(arriving, None, self.meter)

    def all_reduce(self, tensor: Tensor, operation: Literal["sum", "max"] = "sum") -> Tensor:
        self.meter.received("all_reduce", 2 * (self.size - 1) * tensor.nbytes // self.size)
        return tensor

    def all_gather(self, tensor: Tensor) -> Tensor:
        self.meter.received("gather", (self.size - 1) * tensor.nbytes)
        return torch.cat([tensor[None], tensor.new_zeros(self.size - 1, *tensor.shape)])
