"""Sums over the ranks of sampled training, each of which has some targets of every batch."""

from torch import Tensor

from fullgnn.distributed import Axis, World
from fullgnn.telemetry.meter import Meter


class DataParallel:
    """Adds what the ranks have computed from their own targets."""

    def __init__(self, world: World, meter: Meter):
        self._axis = Axis(world.group, meter)

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor`` over all ranks, in place; every rank receives the same bits."""
        return self._axis.all_reduce(tensor)
