"""Cut the ordered nodes 0..n-1 into block rows: one file per partitioner, each returning a ``Partition``."""

from fullgnn.partition.contiguous import contiguous
from fullgnn.partition.partition import Partition

__all__ = ["Partition", "contiguous"]
