"""Join the job that torchrun's environment describes, and leave it at the end.

A rank that joins agrees with the others over the key-value store before there is a process group: on what their
machines support, on where each of them runs, and on the GPUs that they use. It leaves with the process group destroyed,
or without waiting for anybody.

Over NCCL, ``destroy_process_group`` waits for the operations in flight, and so for the other ranks. Where one rank
raises an error and the others go on, each waits for the other, until the timeout of a collective, and the error is not
seen before (github.com/pytorch/torchtitan/pull/1342). So a rank destroys the group

    after success                   every rank comes to the end of its job
    after an error of all ranks     a ``FullGNNError`` that all ranks raise, once all of them have left the job

and leaves it behind after any other error, which is then reported at once. A rank that a command has started ends right
after its report, without the work of the interpreter's end, where torch would wait again. In a user's own process, such
as a script under torchrun, the error reaches the user; the group is destroyed when the process joins its next job, to
which all ranks have come by then.

Which errors do all ranks raise? By the rule that no rank decides alone (docs/architecture.md, "Where errors are
decided") every ``FullGNNError`` follows from what all ranks know, or is sent to all of them, by ``from_rank0``,
``on_every_rank``, ``Watch`` or a request to stop; the two exceptions are ``RankFailed`` and ``LostRank``. Every other
exception is a bug, a signal, or a lack of memory, which a rank meets alone. A user's model can break the rule, and
raise a ``FullGNNError`` on one rank only: hence a rank waits until all have left, but not for long.
"""

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from fullgnn import startup
from fullgnn.config import RuntimeConfig
from fullgnn.distributed.failure import (
    WAIT_S,
    is_lost_connection,
    is_timeout,
)
from fullgnn.distributed.mesh import (
    NCCL_VARIABLES,
    NCCL_VARIABLES_OF_SEVERAL_MACHINES,
    World,
    device_of,
    num_threads,
    open_connections,
    prepare_environment,
    product_precision,
    resolve,
    set_defaults,
)
from fullgnn.distributed.presence import LostRank, Presence, Process, another_connection, is_file, job_store, join
from fullgnn.distributed.store import AbsentRank
from fullgnn.errors import ConfigError, FullGNNError, RankFailed, UnsupportedError
from fullgnn.startup import under_torchrun

log = logging.getLogger(__name__)

GRACE_S = 3.0
"""Seconds that a rank waits before it reports that another rank, whose process runs, does not answer: that rank may be
about to report the cause, such as a stopped sampling worker."""

WAIT_FOR_ALL_S = 10.0
"""Seconds in which every rank has left the job, if all of them have raised an error."""

_TIMEOUT_S = 600.0
"""``World.timeout_s`` of a single process without settings; no other process can keep it waiting."""

left_behind: dist.ProcessGroup | None = None


@dataclass(frozen=True)
class RankPlace:
    """Where a process stands in its job."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @staticmethod
    def of_environment() -> "RankPlace":
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        return RankPlace(*(int(os.environ[name]) for name in names))


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
        startup.end_with_launcher()
    place = RankPlace.of_environment()
    device_type, backend, problem = resolve(runtime)
    prepare_environment(runtime)  # before CUDA starts, which may be to tell the GPU's id
    device = _own_device(device_type, place) if problem is None else torch.device("cpu")
    gpu = _gpu_id(device) if backend == "nccl" and problem is None else ""
    try:
        store = job_store("world", runtime.timeout_s)
        processes = agree_to_join(store, place, problem, gpu)
    except AbsentRank as error:
        raise LostRank(f"{error} within runtime.timeout_s={runtime.timeout_s:g} s: see whether it runs") from error
    presence = Presence(store, place.rank, processes, runtime.timeout_s, polls=is_file())
    group = _joined(runtime, store, place, device, backend, presence)
    with product_precision(runtime.precision), naming_lost_ranks(presence), group as world:
        with join(presence, lambda: another_connection("world", runtime.timeout_s)):
            yield world


@contextmanager
def naming_lost_ranks(presence: Presence) -> Iterator[None]:
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
    device_type, backend, problem = resolve(runtime)
    if problem is not None:
        raise problem
    prepare_environment(runtime)
    with _joined(runtime, dist.HashStore(), RankPlace(), _own_device(device_type, RankPlace()), backend) as world:
        yield world


def _own_device(device_type: str, place: RankPlace) -> torch.device:
    """The device of the rank at ``place``: of several visible GPUs, the one of its number on the machine."""
    if device_type != "cuda":
        return torch.device(device_type)
    return torch.device("cuda", place.local_rank % torch.cuda.device_count())


def _gpu_id(device: torch.device) -> str:
    """The UUID of a GPU, which no other GPU has, on no machine."""
    return str(torch.cuda.get_device_properties(device).uuid)


@contextmanager
def _joined(
    runtime: RuntimeConfig,
    store: dist.Store,
    place: RankPlace,
    device: torch.device,
    backend: str,
    presence: Presence | None = None,
) -> Iterator[World]:
    """Join a job, whose ranks find each other in ``store``, and leave it at the end.

    Args:
        presence: the ranks of the job; None: it has one.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(num_threads(runtime, place.local_size))
    backends = "cpu:gloo" + (f",cuda:{backend}" if device.type == "cuda" else "")
    if backend == "nccl":
        set_defaults(NCCL_VARIABLES)
        if presence is not None and presence.spans_machines:
            set_defaults(NCCL_VARIABLES_OF_SEVERAL_MACHINES)
    timeout = timedelta(seconds=runtime.timeout_s)
    destroy_group_left_behind()
    dist.init_process_group(backends, store=store, rank=place.rank, world_size=place.size, timeout=timeout)
    try:
        world = World(place.rank, place.size, place.local_size, device, backend, runtime.timeout_s)
        open_connections(world.group, device)
        yield world
    except BaseException as error:
        leave_group(error, presence)
        raise
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
        device, timeout_s, precision = device_of(where), where.timeout_s, where.precision
        prepare_environment(where)
        torch.set_num_threads(num_threads(where, 1))
    else:
        device, timeout_s, precision = where, _TIMEOUT_S, "float32"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with product_precision(precision):
            yield World(0, 1, 1, device, "gloo", timeout_s)
    finally:
        dist.destroy_process_group()


def agree_to_join(store: dist.Store, place: RankPlace, problem: FullGNNError | None, gpu: str) -> list[Process]:
    """Raise the problem of the lowest rank that has one, on every rank; if no rank has a problem, return.

    Args:
        gpu: the id of the GPU that this rank needs for itself; empty: it needs none.

    Returns:
        the process of each rank.

    Raises:
        AbsentRank: a rank has not come here in the time that ``store`` waits for a key.
        ConfigError: two ranks have the same GPU.
    """
    store.set(f"problem/{place.rank}", f"{type(problem).__name__ if problem else ''}|{problem or ''}")
    store.set(f"process/{place.rank}", json.dumps([asdict(Process.current()), gpu]))
    processes: list[Process] = []
    holders: dict[str, int] = {}
    for other in range(place.size):
        try:
            kind, _, message = store.get(f"problem/{other}").decode().partition("|")
            process, gpu = json.loads(store.get(f"process/{other}"))
        except RuntimeError as error:  # of a store in a file, too, whose errors have no class of their own
            if "timeout" not in str(error).lower():
                raise
            raise AbsentRank(other) from error
        if kind:
            raise (ConfigError if kind == "ConfigError" else UnsupportedError)(message)
        processes.append(Process(**process))
        if gpu and (holder := holders.setdefault(gpu, other)) != other:
            raise ConfigError(
                f"ranks {holder} and {other} use the same GPU, but NCCL needs a GPU for each: start at most as many"
                " ranks on a machine as it has GPUs, or let ranks share a GPU with runtime.backend=gloo"
            )
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
    time.sleep(GRACE_S)
    return LostRank(f"a rank {waited}, although all run: set a longer runtime.timeout_s")


def leave_group(error: BaseException, presence: Presence | None) -> None:
    """Destroy the process group after ``error``, or leave it behind, as the docstring of this module explains it.

    Args:
        presence: the ranks of the job, which this rank has left; None: it is the only one.
    """
    global left_behind
    if presence is None or presence.size == 1 or (is_of_all_ranks(error) and presence.all_leave(WAIT_FOR_ALL_S)):
        dist.destroy_process_group()
    else:
        left_behind = dist.group.WORLD


def is_of_all_ranks(error: BaseException) -> bool:
    """Whether ``error`` is one that every rank of the job raises."""
    return isinstance(error, FullGNNError) and not isinstance(error, (RankFailed, LostRank))


def is_group_left_behind() -> bool:
    """Whether torch still has the process group of a job that this process has left after an error."""
    return left_behind is not None and left_behind is dist.group.WORLD


def destroy_group_left_behind() -> None:
    """Destroy the group of an earlier job. All ranks have come to their next job, so that none waits for another."""
    global left_behind
    if is_group_left_behind():
        dist.destroy_process_group()
    left_behind = None
