"""What a machine can do, in the few numbers that a prediction needs.

A profile is a YAML: those in ``conf/hardware/`` are made of published numbers and name their sources; that of this
machine is measured (``measure.py``), once for each number of ranks and threads, and kept.
"""

import json
import logging
import math
import os
import re
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

from fullgnn.config import RuntimeConfig, conf_dir
from fullgnn.distributed import launch_workers
from fullgnn.distributed.mesh import num_threads
from fullgnn.errors import ConfigError
from fullgnn.telemetry.machine import hardware as machine

log = logging.getLogger(__name__)

DEFAULT_CACHE = "~/.cache/fullgnn"
"""Where measured profiles are kept if ``runtime.cache_dir`` is null."""

_MESSAGES = {"gather": "exchange", "reduce_scatter": "exchange"}
"""Collectives that are made of the messages of another (``Axis.exchange``)."""


@dataclass(frozen=True)
class Link:
    """The time of a collective in which a rank receives n bytes: latency_s + n / bytes_per_s.

    Bytes are those that the meter counts (``distributed/collectives.py``): an all-reduce over g ranks receives
    2 (g-1)/g of its tensor.
    """

    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        _check("latency_s", self.latency_s, least=0)
        _check("bytes_per_s", self.bytes_per_s)

    def time_s(self, num_bytes: float) -> float:
        return self.latency_s + num_bytes / self.bytes_per_s


@dataclass(frozen=True)
class Hardware:
    """One kind of machine, as one of its ranks sees it while all of them do the same.

    Raises:
        ConfigError: a value is not possible.
    """

    name: str
    source: str
    """Where the numbers come from: when and how they were measured, or the data sheets."""
    device: str
    """``cpu`` or ``cuda``."""
    ranks_per_node: int
    """Ranks that share a machine and talk over ``links``; a job of more uses ``network``."""
    memory_bytes: int
    """For one rank."""
    cache_bytes: int
    """Of the last-level cache, one rank's share."""
    copy_bytes_per_s: float
    """Of a stream larger than the cache, bytes read plus bytes written."""
    gemm_flops_per_s: float
    """Of X W in float32, X tall; a multiplication and an addition are two."""
    op_s: float
    """Cost of an operator that does nothing, as its launch or dispatch."""
    gather: dict[int, float]
    """Bytes of a table -> bytes of its rows that a sparse product reads in a second (nnz x width x itemsize / time),
    if its columns are uniformly random; measured with rows of 64 float32."""
    links: dict[str, Link]
    """``exchange``, ``broadcast`` and ``all_reduce`` as the meter names them, and ``shared``: an exchange between ranks
    that read each other's rows in place (``distributed/shared_memory.py``). Empty on a machine of one rank."""
    network: Link | None
    """Any collective between machines, for each rank of the machine; None: there is one machine."""

    def __post_init__(self) -> None:
        if self.device not in ("cpu", "cuda"):
            raise ConfigError(f"device={self.device} is not known: choose one of cpu, cuda")
        for key in ("ranks_per_node", "memory_bytes", "cache_bytes"):
            _check(key, getattr(self, key), integer=True)
        for key in ("copy_bytes_per_s", "gemm_flops_per_s", "op_s"):
            _check(key, getattr(self, key))
        if not self.gather:
            raise ConfigError("gather is empty: give at least one rate")
        for table_bytes, rate in self.gather.items():
            _check("a table of gather", table_bytes, integer=True)
            _check(f"gather[{table_bytes}]", rate)

    def gather_rate(self, table_bytes: float) -> float:
        """``gather`` for a table of any size: on straight lines between the logarithms, level beyond the ends."""
        sizes, rates = zip(*sorted(self.gather.items()))
        return math.exp(np.interp(math.log(max(table_bytes, 1)), np.log(sizes), np.log(rates)))

    def link(self, collective: str, world_size: int) -> Link:
        """That of a ``collective``, as the meter names it, in a job of ``world_size`` ranks.

        Raises:
            ConfigError: this profile does not know it.
        """
        if world_size > self.ranks_per_node:
            if self.network is None:
                raise ConfigError(
                    f"hardware={self.name} is one machine of {self.ranks_per_node} ranks, not {world_size}: "
                    "give a profile with a network"
                )
            return self.network
        link = self.links.get(collective) or self.links.get(_MESSAGES.get(collective, ""))
        if link is None:
            known = ", ".join(sorted(self.links)) or "none"
            raise ConfigError(f"hardware={self.name} has no link for {collective}: it has {known}")
        return link


def load_hardware(name: str, runtime: RuntimeConfig, nproc: int = 1) -> Hardware:
    """The profile ``name``: a choice of ``conf/hardware/``, a file ``*.yaml`` of the same keys, or ``auto``.

    ``auto`` is this machine with ``nproc`` ranks. What was measured before is read again; otherwise ranks are started,
    which measure it in some ten seconds, and it is kept in ``runtime.cache_dir``, or ``~/.cache/fullgnn`` where that is
    null, until its file is deleted. Not for the ranks of a job: they call ``measure.measured_hardware``.

    Raises:
        ConfigError: there is no such profile, or it is wrong.
        WorkerError: it could not be measured.
    """
    if name != "auto":
        return _given(name)
    found = cached_hardware(runtime, nproc)
    if found is not None:
        return found
    log.info("hardware=auto: measuring this machine, for %s", cache_path(runtime, nproc))
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
        path = Path(folder) / "hardware.yaml"
        launch_workers(["-m", "fullgnn.plan.measure", str(path), json.dumps(asdict(runtime))], nproc, runtime)
        measured = read_hardware(path)
    keep_hardware(measured, runtime, nproc)
    return measured


def cached_hardware(runtime: RuntimeConfig, nproc: int = 1) -> Hardware | None:
    """What ``auto`` has measured of this machine before; None if it has not. A damaged file counts as none."""
    path = cache_path(runtime, nproc)
    try:
        return read_hardware(path)
    except FileNotFoundError:
        return None
    except (ConfigError, OSError) as error:
        log.warning("%s: it is not used", " ".join(str(error).split()))
        return None


def keep_hardware(measured: Hardware, runtime: RuntimeConfig, nproc: int) -> None:
    """Keep it for ``cached_hardware``, whole or not at all; with a warning if that is not possible."""
    path = cache_path(runtime, nproc)
    temporary = path.with_name(f"{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_hardware(measured, temporary)
        os.replace(temporary, path)
    except OSError as error:
        log.warning("%s cannot be written (%s): the profile is not kept", path, error.strerror or error)


def cache_path(runtime: RuntimeConfig, nproc: int) -> Path:
    """The file of this machine's profile: its processor, and the number of ranks and of threads, are the name."""
    folder = Path(DEFAULT_CACHE if runtime.cache_dir is None else runtime.cache_dir).expanduser().absolute()
    return folder / "hardware" / f"{profile_name(runtime, nproc)}.yaml"


def profile_name(runtime: RuntimeConfig, nproc: int) -> str:
    """As ``amd-epyc-2-cores-1x2``: the GPU or CPU, how many there are, and ranks x threads."""
    threads = num_threads(runtime, nproc)
    num_gpus = torch.cuda.device_count() if runtime.device != "cpu" else 0
    here = machine(torch.device("cuda", 0) if num_gpus else torch.device("cpu"))
    units = (
        f"{here['gpu']} {num_gpus} gpus {runtime.backend}" if num_gpus else f"{here['cpu']} {here['num_cores']} cores"
    )
    return re.sub(r"[^a-z0-9]+", "-", f"{units} {nproc}x{threads}".lower())


def read_hardware(path: Path) -> Hardware:
    """The profile in a YAML.

    Raises:
        ConfigError: it is not a profile; one line.
        OSError: there is no such file, or it cannot be read.
    """
    try:
        values = OmegaConf.to_container(OmegaConf.load(path))
    except OSError:
        raise
    except Exception as error:  # YAML's and OmegaConf's, of many kinds
        raise ConfigError(f"{path} cannot be read as YAML ({type(error).__name__})") from error
    try:
        return _hardware(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def write_hardware(hardware: Hardware, path: Path) -> None:
    path.write_text(OmegaConf.to_yaml(OmegaConf.create(asdict(hardware))))


def _given(name: str) -> Hardware:
    if name.endswith(".yaml"):
        try:
            return read_hardware(Path(name).expanduser())
        except OSError as error:
            raise ConfigError(f"hardware={name} cannot be read ({error.strerror})") from error
    shipped = {path.stem: path for path in (conf_dir() / "hardware").glob("*.yaml")}
    if name not in shipped:
        raise ConfigError(f"hardware={name} is not known: choose one of auto, {', '.join(sorted(shipped))}, or a .yaml")
    return read_hardware(shipped[name])


def _hardware(values: Any) -> Hardware:
    _check_keys(values, Hardware, "the profile")
    for key in ("gather", "links"):
        if not isinstance(values[key], Mapping):
            raise ConfigError(f"{key} must be keys and values")
    links = {name: _link(link, f"links.{name}") for name, link in values["links"].items()}
    network = None if values["network"] is None else _link(values["network"], "network")
    return Hardware(**{**values, "links": links, "network": network})


def _link(values: Any, where: str) -> Link:
    _check_keys(values, Link, where)
    return Link(**values)


def _check_keys(values: Any, schema: type, where: str) -> None:
    keys = {field.name for field in fields(schema)}
    given = set(values) if isinstance(values, Mapping) else set()
    if unknown := sorted(map(str, given - keys)):
        raise ConfigError(f"{where} has an unknown key {unknown[0]}: its keys are {', '.join(sorted(keys))}")
    if missing := sorted(keys - given):
        raise ConfigError(f"{where} lacks {', '.join(missing)}")


def _check(key: str, value: Any, least: float | None = None, integer: bool = False) -> None:
    """Refuse what is not a finite number, positive or at least ``least``."""
    number = isinstance(value, int if integer else (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not (value > 0 if least is None else value >= least):
        wanted = "a positive" if least is None else "a non-negative"
        raise ConfigError(f"{key}={value} is not possible: it takes {wanted} {'integer' if integer else 'number'}")
