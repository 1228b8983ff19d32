"""Profiles of machines: the few numbers that a prediction needs.

A profile is a YAML. Those in ``conf/hardware/`` are made of published numbers and name their sources. The profile of
this machine is measured (``measure.py``) once for each number of ranks and threads, and kept.
"""

import json
import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fullgnn.config import RuntimeConfig, conf_dir
from fullgnn.config.keys import check_choices, choices, explain_keys
from fullgnn.config.trust import as_text, restored
from fullgnn.distributed import launch_workers
from fullgnn.distributed.mesh import num_threads
from fullgnn.errors import ConfigError, DataError, message_of
from fullgnn.storage.folder import temporary_folder, write_text
from fullgnn.storage.text import parse_yaml, read_text
from fullgnn.telemetry.machine import hardware as machine

log = logging.getLogger(__name__)

DEFAULT_CACHE = "~/.cache/fullgnn"

WHOLE, SMALL = "", "small"
"""What is measured of this machine: all of it, or, as the beginning of a name, the part that a small graph needs; see
``measure.needed_part``."""

NeededPart = Callable[[], str]
"""Tells which part of this machine is needed. It may load a graph, so it is asked only where no profile of the whole
machine is kept."""

EDGE_ROW_BYTES = 4 * (64 + 8)
"""Bytes of a row in the passes over edges that are measured: 8 heads of 8 float32, and their logits."""

_MESSAGES = {"gather": "exchange", "reduce_scatter": "exchange"}
"""Collectives that are made of the messages of another (``Axis.exchange``)."""


@dataclass  # not frozen, which OmegaConf could not fill
class Link:
    """The time of a collective in which a rank receives n bytes: latency_s + n / bytes_per_s.

    Bytes are those that the meter counts (``distributed/collectives.py``): an all-reduce over g ranks receives
    2 (g-1)/g of its tensor.
    """

    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        _check_positive({"bytes_per_s": self.bytes_per_s})
        if not 0 <= self.latency_s < math.inf:
            raise ConfigError(f"latency_s={self.latency_s} is not possible: it takes a non-negative number")

    def time_s(self, num_bytes: Any, num_messages: Any = 1) -> Any:
        """Seconds, for a number of bytes or an array of them."""
        return self.latency_s * num_messages + num_bytes / self.bytes_per_s


@dataclass(frozen=True)
class Hardware:
    """One kind of machine, as one of its ranks sees it while all of them do the same.

    Raises:
        ConfigError: a value is not possible.
    """

    name: str
    source: str  # where the numbers come from: when and how they were measured, or the data sheets
    device: str  # cpu or cuda
    ranks_per_node: int  # ranks that share a machine and talk over ``links``; a job of more uses ``network``
    memory_bytes: int  # for one rank
    cache_bytes: int  # of the last-level cache, one rank's part
    copy_bytes_per_s: float  # of a stream larger than the cache, bytes read plus bytes written
    gemm_flops_per_s: float  # of X W in float32, X tall; a multiplication and an addition are two
    op_s: float  # cost of an operator that does nothing, as its launch or dispatch
    gather: dict[int, float]
    """Bytes of a table -> bytes of its rows that a sparse product reads in a second (nnz x width x itemsize / time),
    if its columns are uniformly random; measured with rows of 64 float32."""
    links: dict[str, Link]
    """``exchange``, ``broadcast`` and ``all_reduce`` as the meter names them, and ``shared``: an exchange between ranks
    that read each other's rows in place (``distributed/shared_memory.py``). Empty on a machine of one rank."""
    network: Optional[Link]
    """Any collective between machines, for each rank of the machine; None: there is one machine."""
    edge_gather: dict[int, float] = field(default_factory=dict)
    """``gather`` for a forward pass of attention over edges one by one, with rows of ``EDGE_ROW_BYTES``. Empty: it was
    not measured, and the rates of ``gather`` count."""
    draw_s: float = 1e-7
    """Seconds in which a rank draws a pair and a negative, of a task that finds links; on the host, also of a GPU."""

    def __post_init__(self) -> None:
        check_choices("device", [self.device], ["cpu", "cuda"])
        _check_positive({key: value for key, value in vars(self).items() if isinstance(value, int | float)})
        for key in ("gather", "edge_gather"):
            for table_bytes, rate in getattr(self, key).items():
                _check_positive({f"{key}[{table_bytes}]": rate, f"the table {table_bytes} of {key}": table_bytes})
        if not self.gather:
            raise ConfigError("gather is empty: give at least one rate")

    @property
    def near_bytes(self) -> int:
        """Size of the smallest measured table, which a cache near the core holds."""
        return min(self.gather)

    def gather_rate(self, table_bytes: float) -> float:
        """``gather`` for a table of any size."""
        return interpolated(self.gather, table_bytes)

    def gather_s_per_byte(self, table_bytes: float, locality: float) -> float:
        """Seconds for a byte of rows that are gathered from a table, in an order that has this ``locality``."""
        return locality / self.gather_rate(1) + (1 - locality) / self.gather_rate(table_bytes)

    def link(self, collective: str, world_size: int) -> Link:
        """The link of a ``collective``, as the meter names it, in a job of ``world_size`` ranks.

        Raises:
            ConfigError: this profile does not know it.
        """
        if world_size > self.ranks_per_node:
            if self.network is None:
                limit = f"hardware={self.name} is one machine of {self.ranks_per_node} ranks"
                raise ConfigError(f"{limit}, not {world_size}: give a profile with a network")
            return self.network
        link = self.links.get(collective) or self.links.get(_MESSAGES.get(collective, ""))
        if link is None:
            known = ", ".join(sorted(self.links)) or "none"
            raise ConfigError(f"hardware={self.name} has no link for {collective}: it has {known}")
        return link


def load_hardware(
    name: str, runtime: RuntimeConfig, nproc: int = 1, remeasure: bool = False, needed: NeededPart = lambda: WHOLE
) -> Hardware:
    """Read the profile ``name``: a choice of ``conf/hardware/``, a file ``*.yaml`` of the same keys, or ``auto``.

    ``auto`` is this machine with ``nproc`` ranks. It is measured once, by ranks that are started for it, in 10 to 20
    seconds. The ranks of a job call ``measure.measured_hardware`` instead.

    Args:
        remeasure: whether ``auto`` is measured also if a profile is kept, which is replaced.

    Raises:
        ConfigError: there is no such profile, or it is wrong.
        WorkerError: it could not be measured.
    """
    if name == "auto":
        kept, part = kept_or_needed(runtime, nproc, needed, remeasure)
        return kept or _measured_by_new_ranks(runtime, nproc, part)
    if not name.endswith(".yaml") and name not in choices("hardware"):
        known = ", ".join(["auto", *choices("hardware")])
        raise ConfigError(f"hardware={name} is not known: choose one of {known}, or a .yaml")
    path = Path(name).expanduser() if name.endswith(".yaml") else conf_dir() / "hardware" / f"{name}.yaml"
    try:
        return read_hardware(path)
    except OSError as error:
        raise ConfigError(f"hardware={name} cannot be read ({error.strerror})") from error


def kept_or_needed(
    runtime: RuntimeConfig, nproc: int, needed: NeededPart, remeasure: bool = False
) -> tuple[Hardware | None, str]:
    """The profile that is kept of this machine and serves, or None and the part of the machine to measure. The log then
    says how long that takes, and where the profile is kept.

    Args:
        remeasure: whether no profile serves that is kept.
    """
    kept, part = None if remeasure else cached_hardware(runtime, nproc), WHOLE
    if kept is None and not remeasure:
        part = needed()
        kept = None if part == WHOLE else cached_hardware(runtime, nproc, part)
    if kept is None:
        effort = "this machine, 10 to 20 s," if part == WHOLE else "what a small graph needs of this machine, 1 to 3 s,"
        log.info("hardware=auto: measuring %s for %s", effort, cache_path(runtime, nproc, part))
    return kept, part


def _measured_by_new_ranks(runtime: RuntimeConfig, nproc: int, part: str) -> Hardware:
    with temporary_folder() as folder:
        path = folder / "hardware.yaml"
        arguments = [str(path), json.dumps(asdict(runtime)), part]
        launch_workers(["-m", "fullgnn.costs.measure", *arguments], nproc, runtime)
        measured = read_hardware(path)
    keep_hardware(measured, runtime, nproc, part)
    return measured


BUSY = ", while it was busy"
"""The end of the source of a profile that was measured beside other work."""


def warn_if_busy(hardware: Hardware, cure: str) -> None:
    """Log a warning if a profile was measured beside other work.

    Args:
        cure: the key that measures it again.
    """
    if hardware.source.endswith(BUSY):
        problem = "hardware=auto was measured while this machine was busy, so predicted times may be too long"
        log.warning("%s: on a quiet machine, measure it again with %s", problem, cure)


def cached_hardware(runtime: RuntimeConfig, nproc: int = 1, part: str = WHOLE) -> Hardware | None:
    """Read the profile of this machine that was kept; None if there is none. A damaged file counts as none."""
    try:
        return read_hardware(cache_path(runtime, nproc, part))
    except FileNotFoundError:
        return None
    except (ConfigError, OSError) as error:
        log.warning("%s: it is not used", " ".join(str(error).split()))
        return None


def keep_hardware(measured: Hardware, runtime: RuntimeConfig, nproc: int, part: str = WHOLE) -> None:
    """Keep a profile for ``cached_hardware``; logs a warning if it cannot be written."""
    path = cache_path(runtime, nproc, part)
    try:
        write_hardware(measured, path)
    except OSError as error:
        log.warning("%s cannot be written (%s): the profile is not kept", path, error.strerror or error)


def cache_path(runtime: RuntimeConfig, nproc: int, part: str = WHOLE) -> Path:
    """Name this machine's profile by its GPU or CPU, their number, and ranks x threads: ``amd-epyc-2-cores-1x2.yaml``.
    The name of a part of it ends with that of the ``part``.

    Without ``runtime.cache_dir`` the file is in ``DEFAULT_CACHE``, where all runs find it.
    """
    folder = Path(DEFAULT_CACHE if runtime.cache_dir is None else runtime.cache_dir).expanduser().absolute()
    num_gpus = torch.cuda.device_count() if runtime.device != "cpu" else 0
    here = machine(torch.device("cuda", 0) if num_gpus else torch.device("cpu"))
    gpus, cores = f"{here['gpu']} {num_gpus} gpus {runtime.backend}", f"{here['cpu']} {here['num_cores']} cores"
    units = gpus if num_gpus else cores
    name = re.sub(r"[^a-z0-9]+", "-", f"{units} {nproc}x{num_threads(runtime, nproc)} {part}".strip().lower())
    return folder / "hardware" / f"{name}.yaml"


def read_hardware(path: Path) -> Hardware:
    """The profile in a YAML.

    Raises:
        ConfigError: it is not a profile; one line that names the key, what is wrong with it and what it may be.
        OSError: there is no such file, or it cannot be read.
    """
    try:
        with path.open("rb"):  # a file that is missing is another error than one that is damaged
            values = parse_yaml(read_text(path), path)
        if not isinstance(values, dict):
            raise ConfigError("a profile has keys and values")
        merged = OmegaConf.merge(Hardware, as_text(values))
        if missing := sorted(OmegaConf.missing_keys(merged)):
            raise ConfigError(f"the profile lacks {', '.join(missing)}")
        profile: Any = OmegaConf.to_object(merged)
        return replace(profile, **{key: restored(value) for key, value in vars(profile).items()})
    except OmegaConfBaseException as error:
        raise ConfigError(f"{path}: {restored(explain_keys(error, Hardware))}") from error
    except DataError as error:
        raise ConfigError(message_of(error)) from error
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"{path}: {message_of(error)}") from error


def write_hardware(hardware: Hardware, path: Path) -> None:
    """Write a profile for ``read_hardware``, in one step."""
    write_text(path, OmegaConf.to_yaml(OmegaConf.create(asdict(hardware))))


def _check_positive(numbers: Mapping[str, float]) -> None:
    for key, value in numbers.items():
        if not 0 < value < math.inf:
            raise ConfigError(f"{key}={value} is not possible: it takes a positive number")


def interpolated(rates: Mapping[int, float], table_bytes: float) -> float:
    """One of the ``rates`` by bytes, for any number of bytes: on straight lines between the logarithms, level beyond
    the ends."""
    sizes, known = zip(*sorted(rates.items()))
    return math.exp(np.interp(math.log(max(table_bytes, 1)), np.log(sizes), np.log(known)))
