"""The ranks of a job as one of them sees them, and what the keys of ``runtime`` mean on its machine.

``joining.py`` makes a ``World``, which has the device, the group of all ranks, and the groups of a mesh. The functions
below it turn ``runtime`` into a device, a backend, threads, settings of libraries, and the precision of products.
"""

import functools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from fullgnn.config import RuntimeConfig
from fullgnn.errors import ConfigError, FullGNNError, UnsupportedError
from fullgnn.startup import tasks_of, under_torchrun

log = logging.getLogger(__name__)

DETERMINISTIC_VARIABLES = {"NCCL_ALGO": "^NVLS,NVLSTree", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Environment variables of ``runtime.deterministic``, which the libraries read at their start."""

NCCL_VARIABLES = {"TORCH_NCCL_HIGH_PRIORITY": "1", "NCCL_LAUNCH_ORDER_IMPLICIT": "1"}
"""Environment variables that are set before NCCL starts, unless the user has set them. The first gives NCCL's kernels
priority over a product in progress, since other ranks wait for NCCL. The second starts the operations of several groups
in launch order on every rank, so that they cannot deadlock (NCCL 2.26 and later reads it)."""

NCCL_VARIABLES_OF_SEVERAL_MACHINES = {"NCCL_GRAPH_REGISTER": "0"}
"""Variables that are set as well if a job spans several machines. By default NCCL registers the buffers of operations
that a CUDA graph has captured with the network card, so that it reads and writes them without a copy. A replay may then
wait forever, with busy GPUs and no error: NCCL's thread that drives the card can erase the signal by which a kernel has
told it that such a buffer is ready (github.com/NVIDIA/nccl/pull/2390). Without registration NCCL copies through buffers
of its own."""

PRECISIONS = {"float32": ("highest", "ieee"), "tf32": ("high", "tf32")}
"""What torch calls the choices of ``runtime.precision``: in the function of all versions, and in attributes."""


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
        count = torch.ones((), device=device)
        dist.all_reduce(count, group=group)
        assert count.item() == size  # item() waits for the all-reduce


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


def check_tasks(runtime: RuntimeConfig | None, one_process: bool = False) -> None:
    """Refuse to go on as one of several tasks. Called by a command before it starts ranks, or works without ranks.

    Args:
        runtime: None if the command has no such keys; then it is always refused.
        one_process: whether the command is one process that torchrun must not start, such as a sweep.

    Raises:
        SeveralTasksError: ``runtime.independent_tasks`` does not allow it; the message ends with the line to type.
    """
    tasks = tasks_of(os.environ)
    if tasks is not None and not under_torchrun() and not (runtime is not None and runtime.independent_tasks):
        from fullgnn.distributed.outer_launcher import refusal  # which imports this module

        raise refusal(tasks, runtime, one_process)


def warn_of_crowding(nproc: int, runtime: RuntimeConfig) -> None:
    """Log a warning if ``nproc`` ranks that compute on the CPU outnumber its cores. Called before the ranks start."""
    if nproc > num_cores() and resolve(runtime)[0] == "cpu":
        warn_once(nproc, num_cores())


@functools.cache
def warn_once(nproc: int, cores: int) -> None:
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


def prepare_environment(runtime: RuntimeConfig) -> None:
    """Set the environment variables of ``runtime.deterministic``, unless the user has set them.

    The key means the same bits in every run of one configuration on the same machines. On a CPU every run is
    deterministic without it: every sum has a fixed order, whatever the number of threads. On a GPU it requires

        sparse products    kernels whose sums have a fixed order, chosen by a fixed rule
                           (``kernels/spmm/fixed_choice.py``) instead of by timing; cuSPARSE is refused, since its CSR
                           product guarantees no order
        NCCL               no NVLS algorithm: with it, NVLink switches add in an order that may differ between calls.
                           The ring and tree algorithms add in an order that depends only on the ranks and the size
        cuBLAS             a workspace of fixed size; without it, sums may differ if several streams use cuBLAS
                           (docs.nvidia.com/cuda/cublas, "Results reproducibility")

    The other GPU operations of a step either add nothing (copies, masks, comparisons, the optimizer), add in a fixed
    order (sums over a dim), or add atomically, but only once to each element: the gradient of ``index_select`` by the
    training rows, and the loss, which subtracts 1 from an element of each row if there are more classes than its kernel
    supports.
    """
    if runtime.deterministic:
        set_defaults(DETERMINISTIC_VARIABLES)


def set_defaults(variables: dict[str, str]) -> None:
    """Set the environment ``variables`` that the user has not set."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


@contextmanager
def product_precision(choice: str = "float32") -> Iterator[None]:
    """Give dense float32 products on a GPU the precision of ``choice`` inside the ``with`` block.

    Afterwards this process has its own setting again. TF32 keeps 11 significant bits of each factor. Torch uses it
    where a process has asked for it, or where the environment has ``TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1``, as some
    container images set it. A run follows its own key ``runtime.precision`` alone.

    Args:
        choice: one of ``PRECISIONS``; ``float32`` keeps all digits.
    """
    if choice != "float32":
        log.info("runtime.precision=%s rounds the factors of dense products on a GPU: the run is not exact", choice)
    before = _precision()
    for where, name, _ in before:
        _set_precision(where, name, PRECISIONS[choice][0 if where is None else 1])
    try:
        yield
    finally:
        for where, name, value in before:
            _set_precision(where, name, value)


def _precision() -> list[tuple[Any, str, str]]:
    """The precision of float32 products: where torch has it (None: in the function of all versions), and the value."""
    try:
        return [(None, "", torch.get_float32_matmul_precision())]
    except RuntimeError:  # the caller uses the attributes that have taken the place of this function
        places = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        return [(place, "fp32_precision", place.fp32_precision) for place in places]


def _set_precision(where: Any, name: str, value: str) -> None:
    if where is None:
        torch.set_float32_matmul_precision(value)
    else:
        setattr(where, name, value)
