"""Turn torchrun's environment into a device, a process group and a named mesh."""

import functools
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.determinism import prepare_environment
from fullgnn.distributed.failure import WAIT_S, is_lost_connection, is_timeout
from fullgnn.distributed.precision import full_precision
from fullgnn.distributed.presence import LostRank, Presence, Process, join
from fullgnn.distributed.store import AbsentRank, another_connection, is_file, job_store, under_torchrun
from fullgnn.errors import ConfigError, FullGNNError, UnsupportedError
from fullgnn.orphan import end_with_launcher

log = logging.getLogger(__name__)

NCCL_VARIABLES = {"TORCH_NCCL_HIGH_PRIORITY": "1", "NCCL_LAUNCH_ORDER_IMPLICIT": "1"}
"""Environment variables that are set before NCCL starts, unless the user has set them. The first gives NCCL's kernels
priority over a product in progress, since other ranks wait for NCCL. The second starts the operations of several groups
in launch order on every rank, so that they cannot deadlock (NCCL 2.26 and later reads it)."""

_GRACE_S = 3.0
"""Seconds that a rank waits before it reports that another rank, whose process runs, does not answer: that rank may be
about to report the cause, such as a stopped sampling worker."""

_TIMEOUT_S = 600.0
"""``World.timeout_s`` of a single process without settings; no other process can keep it waiting."""


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
    _meshes: dict[tuple[int | str, ...], DeviceMesh] = field(default_factory=dict)

    @property
    def group(self) -> dist.ProcessGroup:
        """All ranks."""
        assert dist.group.WORLD is not None
        return dist.group.WORLD

    @property
    def others(self) -> range:
        """The ranks to which rank 0 distributes data: none in a dry run."""
        return range(1, self.size) if not self.dry else range(0)

    def mesh(self, shape: tuple[int, ...], axes: tuple[str, ...]) -> DeviceMesh:
        """Arrange the ranks, row-major, as a mesh with named ``axes``. The same arguments return the same mesh.

        The device type of the mesh only selects the backend of its groups: they accept tensors on ``device`` anyway.
        """
        key: tuple[int | str, ...] = (*shape, *axes)
        if key not in self._meshes:
            # With ranks that share a GPU, a mesh on "cuda" would bind rank i to a GPU i that does not exist.
            device_type = "cuda" if self.backend == "nccl" else "cpu"
            mesh = init_device_mesh(device_type, shape, mesh_dim_names=axes)
            if not self.dry:
                for axis in axes:
                    open_connections(mesh.get_group(axis), self.device)
            self._meshes[key] = mesh
        return self._meshes[key]


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


@contextmanager
def init_world(runtime: RuntimeConfig) -> Iterator[World]:
    """Join the job that torchrun's environment describes, and leave it at the end. A process may do so repeatedly.

    Every rank first publishes in the key-value store whether its machine supports ``runtime``. The process group is
    created only if all machines do, so that a problem on one node raises the same error on all ranks at once. From here
    on, a rank that a launcher has started ends with its launcher.

    Raises:
        ConfigError, UnsupportedError: the same on every rank.
        LostRank: a rank has not joined, or does not answer any more, in the ``with`` block too.
    """
    if under_torchrun():
        end_with_launcher()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    device_type, backend, problem = _resolve(runtime, local_size)
    try:
        store = job_store("world", runtime.timeout_s)
        processes = _agree(store, rank, size, problem)
    except AbsentRank as error:
        raise LostRank(f"{error} within runtime.timeout_s={runtime.timeout_s:g} s: see whether it runs") from error
    presence = Presence(store, rank, processes, runtime.timeout_s, polls=is_file())
    group = _joined(runtime, store, (rank, size), (local_rank, local_size), device_type, backend)
    with full_precision(), _naming_lost_ranks(presence), group as world:
        with join(presence, lambda: another_connection("world", runtime.timeout_s)):
            yield world


@contextmanager
def _naming_lost_ranks(presence: Presence) -> Iterator[None]:
    """Turn a lost connection inside the ``with`` block into a ``LostRank``. On one machine, the launcher has ended this
    process before, if a rank has ended."""
    try:
        yield
    except Exception as error:
        if is_lost_connection(error):
            raise _lost(error, presence) from error
        raise


@contextmanager
def world_here(runtime: RuntimeConfig) -> Iterator[World]:
    """``init_world`` for a job of one rank, which is this process; it reads nothing from the environment.

    Raises:
        ConfigError, UnsupportedError: this machine does not support ``runtime``.
    """
    device_type, backend, problem = _resolve(runtime, 1)
    if problem is not None:
        raise problem
    with _joined(runtime, dist.HashStore(), (0, 1), (0, 1), device_type, backend) as world:
        yield world


@contextmanager
def _joined(
    runtime: RuntimeConfig,
    store: dist.Store,
    place: tuple[int, int],
    local_place: tuple[int, int],
    device_type: str,
    backend: str,
) -> Iterator[World]:
    """Join a job, whose ranks find each other in ``store``, and leave it at the end.

    Args:
        place, local_place: rank and number of ranks, in the job and on this machine.
    """
    (rank, size), (local_rank, local_size) = place, local_place
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
        open_connections(world.group, device)
        yield world
    finally:
        dist.destroy_process_group()


@contextmanager
def world_of_one(where: torch.device | RuntimeConfig) -> Iterator[World]:
    """A job of this process alone, whatever job the environment describes. It needs neither a launcher nor a port.

    Args:
        where: the device, or the settings of a run, whose device, threads, timeout and determinism are applied.

    Raises:
        UnsupportedError: this machine does not have the device.
    """
    if isinstance(where, RuntimeConfig):
        device, timeout_s = device_of(where), where.timeout_s
        prepare_environment(where)
        torch.set_num_threads(num_threads(where, 1))
    else:
        device, timeout_s = where, _TIMEOUT_S
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with full_precision():
            yield World(0, 1, 1, device, "gloo", timeout_s)
    finally:
        dist.destroy_process_group()


def device_of(runtime: RuntimeConfig) -> torch.device:
    """The device for a process that is alone on this machine.

    Raises:
        UnsupportedError: this machine does not have the device.
    """
    device_type, _, problem = _resolve(runtime, 1)
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
    if nproc > num_cores() and _resolve(runtime, nproc)[0] == "cpu":
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


def _resolve(runtime: RuntimeConfig, local_size: int) -> tuple[str, str, FullGNNError | None]:
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
    elif backend == "nccl" and local_size > num_gpus:
        problem = ConfigError(
            f"{local_size} ranks on a machine with {num_gpus} visible GPUs, but NCCL needs a GPU for each: start at "
            f"most {num_gpus} here, or let ranks share a GPU with runtime.backend=gloo"
        )
    return device, backend, problem


def _agree(store: dist.Store, rank: int, size: int, problem: FullGNNError | None) -> list[Process]:
    """Raise the problem of the lowest rank that has one, on every rank; if no rank has a problem, return.

    Returns:
        the process of each rank.

    Raises:
        AbsentRank: a rank has not come here in the time that ``store`` waits for a key.
    """
    own = Process.current()
    store.set(f"problem/{rank}", f"{type(problem).__name__ if problem else ''}|{problem or ''}")
    store.set(f"process/{rank}", json.dumps(asdict(own)))
    processes = []
    for other in range(size):
        try:
            kind, _, message = store.get(f"problem/{other}").decode().partition("|")
            processes.append(Process(**json.loads(store.get(f"process/{other}"))))
        except dist.DistStoreError as error:
            raise AbsentRank(other) from error
        if kind:
            raise (ConfigError if kind == "ConfigError" else UnsupportedError)(message)
    return processes


def _lost(error: Exception, presence: Presence) -> LostRank:
    """What a user is told of a lost connection: which rank has ended, shows no sign of life, or takes too long."""
    if not is_timeout(error):
        time.sleep(WAIT_S)  # meanwhile a launcher ends this rank, unless the lost one is on another machine
        which = " and ".join(map(presence.describe, presence.gone()))
        if not which:
            return LostRank("another rank has failed, and its log says why")
        return LostRank(f"{which} has ended, or its machine cannot be reached: start again with resume=auto")
    waited = f"did not answer within runtime.timeout_s={presence.timeout_s:g} s"
    if silent := presence.silent():
        which = " and ".join(map(presence.describe, silent))
        message = f"{which} {waited}: it is stopped, or its machine is; start again with resume=auto"
        return LostRank(message, presence.pids_here(silent))
    time.sleep(_GRACE_S)
    return LostRank(f"a rank {waited}, although all run: set a longer runtime.timeout_s")
