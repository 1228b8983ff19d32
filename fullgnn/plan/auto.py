"""``scheme=auto``: the planner chooses the scheme of a run, and says afterwards how far off it was."""

import logging
from dataclasses import asdict, replace
from typing import Any, NoReturn

from fullgnn.config import Config
from fullgnn.distributed import World, broadcast_object, from_rank0
from fullgnn.engine.job import with_allowed_work
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph, load_dataset
from fullgnn.kernels.spmm import Kernel
from fullgnn.plan.grids import grid_of, replications
from fullgnn.plan.hardware import Hardware, load_hardware
from fullgnn.plan.measure import measured_hardware
from fullgnn.plan.predict import Prediction
from fullgnn.plan.search import Option, best, from_graph, kernel_of, locality, options, prediction_of
from fullgnn.plan.statistics import counted_traffic, statistics_of
from fullgnn.schemes.base import PreparedGraph
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.meter import Meter
from fullgnn.telemetry.table import format_table, num_bytes

log = logging.getLogger(__name__)


def undecided(
    world: World,
    kernel: Kernel,
    meter: Meter,
    hardware: str = "auto",
    stage_order: str = "diagonal",
    exchange: str = "auto",
    split_rows: bool = True,
    shared_memory: bool = True,
    wire_dtype: str | None = None,
) -> NoReturn:
    """What ``conf/scheme/auto.yaml`` names: the scheme before it is chosen."""
    raise ConfigError("scheme=auto is for training, where it is chosen: name a scheme here, as scheme=1d")


class Planned:
    """The scheme of a run; where the planner chose it, what it expects of it.

    ``cfg`` has a scheme, and ``graph`` is what was loaded for the choice on rank 0.
    """

    def __init__(self, cfg: Config, world: World, graph: Graph | None = None, hardware: Hardware | None = None):
        self.cfg, self.graph = cfg, graph
        self._world, self._hardware = world, hardware
        self._expected: dict[str, Any] | None = None

    def look(self, cfg: Config, prepared: PreparedGraph) -> None:
        """Predict the run from its own blocks, on rank 0; see ``set_up``."""
        if self._hardware is not None:
            self._expected = as_recorded(predicted_run(cfg, prepared, self._world, self._hardware))

    def expected(self) -> dict[str, Any] | None:
        """``RunRecord.predicted``, the same on every rank, which call this together."""
        return None if self._hardware is None else broadcast_object(self._expected)


def planned(cfg: Config, world: World) -> Planned:
    """``cfg`` with a scheme; called on every rank, the same on each.

    Where it is auto: the lowest predicted time of those that fit; if none does, that which holds least, with a warning.
    The order is the run's own, and is computed for each number of block rows.
    """
    if cfg.scheme["name"] != "auto":
        return Planned(cfg, world)
    name = cfg.scheme["hardware"]
    if name == "auto":
        hardware = measured_hardware(world, cfg.runtime)
    else:
        hardware = broadcast_object(from_rank0(lambda: load_hardware(name, cfg.runtime)))
    graph = from_rank0(lambda: load_dataset(cfg.dataset))
    chosen = broadcast_object(from_rank0(lambda: _choose(cfg, world.size, hardware, graph)))
    return Planned(_with_replication(cfg, chosen), world, graph, hardware)


def predicted_run(cfg: Config, prepared: PreparedGraph, world: World, hardware: Hardware) -> Prediction:
    """Of a run from its own blocks.

    Args:
        cfg: with the work that its model allows.
    """
    graph = statistics_of(prepared, locality(prepared, cfg, min(hardware.gather)))
    traffic = counted_traffic(prepared, grid_of(cfg, world.size), cfg.optimizations.loss_rows_only)
    local = world.size == world.local_size
    return prediction_of(cfg, graph, traffic, hardware, kernel_of(cfg, hardware), local)


def _choose(cfg: Config, world_size: int, hardware: Hardware, graph: Graph | None) -> int:
    """The replication."""
    assert graph is not None
    candidates = replications(world_size)
    if len(candidates) == 1:
        return candidates[0]
    run = with_allowed_work(_with_replication(cfg, 1))
    source = from_graph(graph, min(hardware.gather))
    runs = {(cfg.reorder.name, cfg.kernel["name"]): run}
    found = list(options(runs, source, lambda _: hardware, [world_size], [cfg.scheme["exchange"]], candidates))
    chosen = choose(found)
    log.info("scheme=auto: %s, predicted %.2f ms an epoch", chosen.overrides, chosen.prediction.epoch_time_ms)
    return chosen.replication


def choose(found: list[Option]) -> Option:
    """The lowest predicted time of those that fit, else the smallest, with a warning."""
    chosen = best(found)
    if chosen is not None:
        return chosen
    smallest = min(found, key=lambda option: option.prediction.peak_tensor_bytes)
    log.warning(
        "scheme=auto: nothing fits %s of memory by prediction; the smallest is tried, of %s",
        num_bytes(smallest.prediction.memory_bytes),
        num_bytes(smallest.prediction.peak_tensor_bytes),
    )
    return smallest


def _with_replication(cfg: Config, replication: int) -> Config:
    """``cfg`` with 1D or 1.5D."""
    scheme: dict[str, Any] = {key: value for key, value in cfg.scheme.items() if key != "hardware"}
    kind = {"_target_": "fullgnn.schemes.one_and_half_d", "name": "1d" if replication == 1 else "1.5d"}
    return replace(cfg, scheme=scheme | kind | {"replication": replication})


def as_recorded(prediction: Prediction) -> dict[str, Any]:
    """``RunRecord.predicted``."""
    kept = ("hardware", "time_ms", "comm_bytes_per_epoch", "peak_tensor_bytes")
    return {key: asdict(prediction)[key] for key in kept} | {"epoch_time_ms": prediction.epoch_time_ms}


def comparison_table(record: RunRecord) -> str:
    """What was predicted beside what was measured, and their ratio."""
    predicted = record.predicted
    assert predicted is not None

    def line(title: str, expected: float, measured: float, text: Any) -> list[str]:
        ratio = f"{expected / measured:.2f}" if measured else "-"
        return [title, text(expected), text(measured), ratio]

    def ms(value: float) -> str:
        return f"{value:.2f} ms"

    rows = [line("epoch", predicted["epoch_time_ms"], record.epoch_time_ms["median"], ms)]
    for phase, value in predicted["time_ms"].items():
        rows.append(line(f"  {phase}", value, getattr(record, f"{phase}_time_ms"), ms))
    for name in sorted({*predicted["comm_bytes_per_epoch"], *record.comm_bytes_per_epoch}):
        expected, measured = predicted["comm_bytes_per_epoch"].get(name, 0), record.comm_bytes_per_epoch.get(name, 0)
        rows.append(line(f"received per rank and epoch, {name}", expected, measured, num_bytes))
    rows.append(line("peak tensor memory", predicted["peak_tensor_bytes"], record.peak_tensor_bytes, num_bytes))
    return format_table((f"by hardware={predicted['hardware']}", "predicted", "measured", "ratio"), rows)
