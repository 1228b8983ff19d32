"""Start the processes of a job, arrange them as a mesh, and move data between them."""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.distributed.collectives import (
        Axis,
        Work,
        all_gather_objects,
        all_ranks_meet,
        broadcast_object,
        from_rank0,
        in_dry_run,
        on_every_rank,
        receive_arrays,
        send_arrays,
        sum_of_all,
    )
    from fullgnn.distributed.dry import CountingAxis, dry_world
    from fullgnn.distributed.failure import WorkerError, report_bug, report_failure, wait_for_others
    from fullgnn.distributed.gpu_wait import wait_for_gpu
    from fullgnn.distributed.joining import init_world, is_group_left_behind, world_here, world_of_one
    from fullgnn.distributed.launch import StopRequest, can_fork, fork_workers, launch_workers, stop_requests
    from fullgnn.distributed.mesh import World, check_tasks, default_nproc, product_precision, warn_of_crowding
    from fullgnn.distributed.outer_launcher import SeveralTasksError
    from fullgnn.distributed.shared_memory import SharedSlots, can_share_memory
    from fullgnn.startup import under_torchrun

__all__ = [
    "Axis",
    "CountingAxis",
    "SeveralTasksError",
    "SharedSlots",
    "StopRequest",
    "Work",
    "WorkerError",
    "World",
    "all_gather_objects",
    "all_ranks_meet",
    "broadcast_object",
    "can_fork",
    "can_share_memory",
    "check_tasks",
    "default_nproc",
    "dry_world",
    "fork_workers",
    "from_rank0",
    "in_dry_run",
    "init_world",
    "is_group_left_behind",
    "launch_workers",
    "on_every_rank",
    "product_precision",
    "receive_arrays",
    "report_bug",
    "report_failure",
    "send_arrays",
    "stop_requests",
    "sum_of_all",
    "under_torchrun",
    "wait_for_gpu",
    "wait_for_others",
    "warn_of_crowding",
    "world_here",
    "world_of_one",
]

import_on_use(__name__)
