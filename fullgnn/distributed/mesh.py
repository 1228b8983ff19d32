"""The ranks of a job as one of them sees them: its device, the group of all ranks, and the groups of a mesh.

``joining.py`` makes a ``World`` of torchrun's environment.
"""

import functools
import logging
import os
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from fullgnn.config import RuntimeConfig
from fullgnn.errors import ConfigError, FullGNNError, UnsupportedError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class World:
    """The processes of one job, seen from one of them."""

    rank: int
    size: int
    local_size: int  # number of ranks on this machine
    device: torch.device
    backend: str
    """Backend of collectives on ``device``; host objects always travel over gloo."""
    timeout_s: float
    """Seconds without a sign of life after which a rank is lost, and a collective that does not complete is ended."""
    dry: bool = False
    """Whether this is a dry run: the process runs one rank alone and receives nothing from other ranks."""
    _meshes: dict[tuple[int | str, ...], "Mesh"] = field(default_factory=dict)

    @property
    def group(self) -> dist.ProcessGroup:
        """All ranks."""
        assert dist.group.WORLD is not None
        return dist.group.WORLD

    @property
    def others(self) -> range:
        """The ranks to which rank 0 distributes data: none in a dry run."""
        return range(1, self.size) if not self.dry else range(0)

    @property
    def ranks_per_device(self) -> int:
        """How many ranks of this machine share this rank's GPU, or the memory of its CPUs.

        Over NCCL each rank has a GPU of its own, even where it sees no other GPU, as with Slurm's ``--gpus-per-task``.
        """
        if self.device.type != "cuda":
            return self.local_size
        return 1 if self.backend == "nccl" else -(-self.local_size // torch.cuda.device_count())

    def mesh(self, shape: tuple[int, ...], axes: tuple[str, ...]) -> "Mesh":
        """Arrange the ranks, row-major, as a mesh with named ``axes``. The same arguments return the same mesh."""
        key: tuple[int | str, ...] = (*shape, *axes)
        if key not in self._meshes:
            self._meshes[key] = Mesh(self, shape, axes)
        return self._meshes[key]


class Mesh:
    """The ranks of ``world``, row-major, on named ``axes``.

    A mesh has no groups at first. The group of an axis is created when it is asked for, so that an axis that nobody
    uses takes no communicator, which on a GPU costs memory and time. torch creates all groups of an axis together, and
    numbers them: every rank must ask for the same axes, in the same order, between the same collectives. A caller
    therefore decides from what all ranks know, such as the options of a scheme, whether it asks.
    """

    def __init__(self, world: World, shape: tuple[int, ...], axes: tuple[str, ...]):
        self._world, self._axes = world, axes
        self._ranks = torch.arange(world.size).view(shape)
        self._groups: dict[str, dist.ProcessGroup | None] = {}

    def get_group(self, axis: str) -> dist.ProcessGroup | None:
        """The ranks that differ from this one only along ``axis``; None if this rank is the only one.

        The group of an axis that has all ranks is that of the world. Every other group waits for a rank as long as that
        does: torch's default would be half an hour, whatever ``runtime.timeout_s`` is.
        """
        if axis not in self._groups:
            self._groups[axis] = self._create(self._axes.index(axis))
        return self._groups[axis]

    def _create(self, dim: int) -> dist.ProcessGroup | None:
        world, along = self._world, self._ranks.movedim(dim, -1).reshape(-1, self._ranks.shape[dim])
        if along.shape[1] == 1:
            return None
        if len(along) == 1:
            return world.group
        timeout, own = timedelta(seconds=world.timeout_s), None
        for ranks in along.tolist():
            group = dist.new_group(ranks, timeout=timeout)
            own = group if world.rank in ranks else own
        assert own is not None
        if not world.dry:
            open_connections(own, world.device)
        return own


def open_connections(group: dist.ProcessGroup, device: torch.device) -> None:
    """Open the connections of ``group`` with an all-reduce of one number, before any other operation of the group.

    NCCL opens connections in the first operation of a group, and torch requires that all ranks of the group take part
    in it (``torch.distributed.batch_isend_irecv``). In an exchange a rank may have nothing to send or to receive.
    """
    size = dist.get_world_size(group)
    if size > 1:
        one = torch.ones((), device=device)
        dist.all_reduce(one, group=group)
        assert one.item() == size  # item() waits for the all-reduce


def device_of(runtime: RuntimeConfig) -> torch.device:
    """The device for a process that is alone on this machine.

    Raises:
        UnsupportedError: this machine does not have the device.
    """
    device_type, _, problem = resolve(runtime)
    if problem is not None:
        raise problem
    return torch.device(device_type, 0) if device_type == "cuda" else torch.device(device_type)


def default_nproc(runtime: RuntimeConfig) -> int:
    """Number of processes to start on this machine: ``runtime.nproc``, or one for each visible GPU in use, or one."""
    if runtime.nproc is not None:
        return runtime.nproc
    return max(1, torch.cuda.device_count()) if runtime.device != "cpu" else 1


def num_threads(runtime: RuntimeConfig, local_size: int) -> int:
    """CPU threads of each of ``local_size`` processes: ``runtime.threads``, or an equal part of the cores."""
    return runtime.threads or max(1, num_cores() // local_size)


def num_cores() -> int:
    """CPU cores on which this process may run."""
    return len(os.sched_getaffinity(0))


def warn_of_crowding(nproc: int, runtime: RuntimeConfig) -> None:
    """Log a warning if ``nproc`` ranks that compute on the CPU outnumber its cores. Called before the ranks start."""
    if nproc > num_cores() and resolve(runtime)[0] == "cpu":
        _warn_once(nproc, num_cores())


@functools.cache
def _warn_once(nproc: int, cores: int) -> None:
    """One warning for all jobs of a sweep."""
    log.warning(
        "%d ranks share %s: they take turns, so that an epoch takes longer than with %d, and each of them needs memory;"
        " set runtime.nproc=%d or less",
        nproc,
        "one core" if cores == 1 else f"{cores} cores",
        cores,
        cores,
    )


def resolve(runtime: RuntimeConfig) -> tuple[str, str, FullGNNError | None]:
    """Return the device type, the backend, and an error if this machine does not support them."""
    num_gpus = torch.cuda.device_count()
    device = runtime.device if runtime.device != "auto" else ("cuda" if num_gpus else "cpu")
    backend = runtime.backend if runtime.backend != "auto" else ("nccl" if device == "cuda" else "gloo")
    problem: FullGNNError | None = None
    if device == "cuda" and not num_gpus:
        problem = UnsupportedError("runtime.device=cuda but no GPU is visible here: use runtime.device=cpu")
    elif backend == "nccl" and device == "cpu":
        problem = ConfigError("runtime.backend=nccl needs GPUs: use runtime.backend=gloo")
    elif backend == "nccl" and not dist.is_nccl_available():
        problem = UnsupportedError("runtime.backend=nccl but this torch has no NCCL: use runtime.backend=gloo")
    elif runtime.precision == "tf32" and (device == "cpu" or runtime.dtype == "float64"):
        why = "is for GPUs" if device == "cpu" else "rounds products of float32"
        problem = ConfigError(
            f"runtime.precision=tf32 {why}, and this run has {device} and {runtime.dtype}: leave it out"
        )
    return device, backend, problem
