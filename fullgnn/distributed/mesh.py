"""From torchrun's environment to a device, a process group and a named mesh."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.determinism import prepare_environment
from fullgnn.distributed.store import job_store
from fullgnn.errors import ConfigError, FullGNNError, UnsupportedError

log = logging.getLogger(__name__)

NCCL_VARIABLES = {"TORCH_NCCL_HIGH_PRIORITY": "1", "NCCL_LAUNCH_ORDER_IMPLICIT": "1"}
"""Set before NCCL starts, unless the user has. Its kernels go before those of a product that is under way, since other
ranks wait for them. Operations of several groups begin in the order of their launches on every rank, so that they
cannot wait for each other crosswise (read by NCCL 2.26 and later)."""

_TIMEOUT_S = 600.0
"""``World.timeout_s`` of one process whose settings do not say it: no other process can keep it waiting."""


@dataclass(frozen=True)
class World:
    """The processes of one job, as one of them sees them."""

    rank: int
    size: int
    local_size: int
    device: torch.device
    backend: str
    """Backend of collectives on ``device``; host objects always travel over gloo."""
    timeout_s: float
    """After which a collective that does not complete ends the job."""
    dry: bool = False
    """This process plays one rank alone: nothing arrives from the others."""
    _meshes: dict[tuple[int | str, ...], DeviceMesh] = field(default_factory=dict)

    @property
    def group(self) -> dist.ProcessGroup:
        """All ranks."""
        assert dist.group.WORLD is not None
        return dist.group.WORLD

    @property
    def others(self) -> range:
        """The ranks that wait for what rank 0 hands out: none in a dry run."""
        return range(1, self.size) if not self.dry else range(0)

    def mesh(self, shape: tuple[int, ...], axes: tuple[str, ...]) -> DeviceMesh:
        """Arrange the ranks, row-major, as a mesh with named ``axes``; asked for again, it is the same mesh.

        Its device type names the backend of its groups alone: tensors of ``device`` travel in them either way.
        """
        key: tuple[int | str, ...] = (*shape, *axes)
        if key not in self._meshes:
            # With ranks that share a GPU, a mesh on "cuda" would bind rank i to a GPU i that does not exist.
            device_type = "cuda" if self.backend == "nccl" else "cpu"
            mesh = init_device_mesh(device_type, shape, mesh_dim_names=axes)
            if not self.dry:
                for axis in axes:
                    meet(mesh.get_group(axis), self.device)
            self._meshes[key] = mesh
        return self._meshes[key]


def meet(group: dist.ProcessGroup, device: torch.device) -> None:
    """Make the connections of ``group`` by one all-reduce of a number, before anything else travels in it.

    NCCL makes them in the first operation of a group, and torch asks all of its ranks to take part in that one
    (``torch.distributed.batch_isend_irecv``). An exchange does not: a rank may have nothing to send or to receive.
    """
    size = dist.get_world_size(group)
    if size > 1:
        one = torch.ones((), device=device)
        dist.all_reduce(one, group=group)
        assert one.item() == size  # waits for it


@contextmanager
def init_world(runtime: RuntimeConfig) -> Iterator[World]:
    """Join the job that torchrun's environment describes, and leave it at the end; a process may do so repeatedly.

    Every rank first publishes in the key-value store whether its machine can serve ``runtime``; only when all can is
    a process group made. So a mistake on one node is the same error on all of them, at once.

    Raises:
        ConfigError, UnsupportedError: the same on every rank.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    device_type, backend, problem = _resolve(runtime, local_size)
    store = job_store("world", runtime.timeout_s)
    _agree(store, rank, size, problem)

    device = torch.device(device_type)
    if device_type == "cuda":
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    prepare_environment(runtime)
    torch.set_num_threads(num_threads(runtime, local_size))
    backends = "cpu:gloo" + (f",cuda:{backend}" if device_type == "cuda" else "")
    if backend == "nccl":
        for name, value in NCCL_VARIABLES.items():
            os.environ.setdefault(name, value)
    timeout = timedelta(seconds=runtime.timeout_s)
    dist.init_process_group(backends, store=store, rank=rank, world_size=size, timeout=timeout)
    try:
        world = World(rank, size, local_size, device, backend, runtime.timeout_s)
        meet(world.group, device)
        yield world
    finally:
        dist.destroy_process_group()


@contextmanager
def world_of_one(where: torch.device | RuntimeConfig) -> Iterator[World]:
    """A job of this process alone, whatever job the environment describes; it needs neither a launcher nor a port.

    Args:
        where: the device, or the settings of a run, whose device, threads, timeout and determinism then hold.

    Raises:
        UnsupportedError: the device is not here.
    """
    if isinstance(where, RuntimeConfig):
        device, timeout_s = device_of(where), where.timeout_s
        prepare_environment(where)
        torch.set_num_threads(num_threads(where, 1))
    else:
        device, timeout_s = where, _TIMEOUT_S
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield World(0, 1, 1, device, "gloo", timeout_s)
    finally:
        dist.destroy_process_group()


def device_of(runtime: RuntimeConfig) -> torch.device:
    """The device of a process that is alone on this machine.

    Raises:
        UnsupportedError: it is not here.
    """
    device_type, _, problem = _resolve(runtime, 1)
    if problem is not None:
        raise problem
    return torch.device(device_type, 0) if device_type == "cuda" else torch.device(device_type)


def default_nproc(runtime: RuntimeConfig) -> int:
    """Processes to start on this machine: as asked, or one for each visible GPU that will be used, or one."""
    if runtime.nproc is not None:
        return runtime.nproc
    return max(1, torch.cuda.device_count()) if runtime.device != "cpu" else 1


def num_threads(runtime: RuntimeConfig, local_size: int) -> int:
    """CPU threads of each of ``local_size`` processes: at most this machine's cores in all, unless asked for."""
    return runtime.threads or max(1, len(os.sched_getaffinity(0)) // local_size)


def _resolve(runtime: RuntimeConfig, local_size: int) -> tuple[str, str, FullGNNError | None]:
    """Decide device type and backend, and say what this machine lacks for them."""
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
    elif backend == "nccl" and local_size > num_gpus:
        problem = ConfigError(
            f"{local_size} ranks on a machine with {num_gpus} visible GPUs, and NCCL wants a GPU for each: start at "
            f"most {num_gpus} here, or let ranks share with runtime.backend=gloo"
        )
    return device, backend, problem


def _agree(store: dist.Store, rank: int, size: int, problem: FullGNNError | None) -> None:
    """Raise the lowest rank's problem on every rank, or return on every rank."""
    kind = type(problem).__name__ if problem else ""
    store.set(f"problem/{rank}", f"{kind}|{problem or ''}")
    for other in range(size):
        kind, _, message = store.get(f"problem/{other}").decode().partition("|")
        if kind:
            raise (ConfigError if kind == "ConfigError" else UnsupportedError)(message)
