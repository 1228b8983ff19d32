"""Processes: the mesh they form, the collectives between them, and starting them."""

from fullgnn.dist.collectives import (
    Axis,
    Pending,
    all_gather_objects,
    from_rank0,
    receive_arrays,
    send_arrays,
    share,
)
from fullgnn.dist.dry import dry_world
from fullgnn.dist.launch import WorkerError, launch_workers, report_failure, under_torchrun, wait_for_others
from fullgnn.dist.mesh import World, default_nproc, init_world
from fullgnn.dist.shared_memory import SharedSlots, can_share_memory

__all__ = [
    "Axis",
    "Pending",
    "SharedSlots",
    "WorkerError",
    "World",
    "all_gather_objects",
    "can_share_memory",
    "default_nproc",
    "dry_world",
    "from_rank0",
    "init_world",
    "launch_workers",
    "receive_arrays",
    "report_failure",
    "send_arrays",
    "share",
    "under_torchrun",
    "wait_for_others",
]
