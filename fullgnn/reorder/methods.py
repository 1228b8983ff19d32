"""The names of the functions that order and cut the nodes, and which of them a graph was prepared with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class UsedMethods:
    """The methods that ordered the nodes, and how long they took. The fields are named as those of ``RunRecord``."""

    partition: str  # name of the partitioner that ran; after a fallback it differs from the configured one
    reorder: str  # name of the reordering that ran; after a fallback it differs as well
    reorder_num_blocks: int  # number of blocks that were ordered separately
    partition_time_s: float = 0.0  # 0 if the order was loaded
    reorder_time_s: float = 0.0


def base_function(method: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, also where Hydra has wrapped it in a ``functools.partial``."""
    return getattr(method, "func", method)


def name_of(method: Callable[..., Any]) -> str:
    """The name of the function, such as ``rcm``, also where it is wrapped in a ``functools.partial``."""
    function = base_function(method)
    return getattr(function, "__name__", repr(function))
