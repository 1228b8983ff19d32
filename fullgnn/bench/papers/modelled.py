"""Batches of sampled training by step: measured here, and on a modelled machine with GPUs like those of a paper.

Without a GPU nothing travels, so what a cache or a codec saves cannot be measured here. In a simulated batch, drawing
and gathering have the rates of this machine, see ``draw_s`` and ``row_s``; transfers and computing take what the
planner's model of the machine says.
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fullgnn.bench.harness import interleaved
from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.result import Bars, Cell, Labels, Origin, Result, TableRow, bars, speedups
from fullgnn.bench.papers.sampled import Measured
from fullgnn.config import RuntimeConfig
from fullgnn.costs.hardware import Hardware, load_hardware
from fullgnn.sampling.features import FeatureSource
from fullgnn.sampling.neighbors import NeighborSampler

ROUNDS = 5
"""Turns of what is measured in this process."""

MEASURED: Origin = "measured"
SIMULATED: Origin = "simulated"


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Seconds of a batch of one rank, by step."""

    sample: float
    gather: float
    transfer: float
    decode: float = 0.0
    compute: float
    waiting: float = 0.0  # for the gradients of other ranks

    @property
    def loading(self) -> float:
        """Seconds in which the features come to the device."""
        return self.gather + self.transfer + self.decode

    @property
    def in_turn(self) -> float:
        """Seconds, if each step waits for the one before it."""
        return self.sample + self.loading + self.compute + self.waiting

    @property
    def overlapped(self) -> float:
        """Seconds, if a batch is drawn and loaded while the one before it is computed."""
        return max(self.sample + self.loading, self.compute + self.waiting)


def batch_here(times: Measured, name: str) -> Batch:
    """A batch of the shrunk graph on this machine, by the method ``name``. What loads features is its decoding."""
    spent = {key: value / 1e3 for key, value in times.details[name]["steps_ms"].items()}
    return Batch(
        sample=spent["sample"],
        gather=spent.get("gather", 0.0),
        transfer=0.0,
        decode=spent["load"],
        compute=spent["forward"] + spent["backward"] + spent["update"],
        waiting=spent.get("comm", 0.0),
    )


@functools.cache
def modelled(name: str) -> Hardware:
    """The profile of the modelled machine."""
    return load_hardware(name, RuntimeConfig())


def waiting_s(hardware: Hardware, num_ranks: int, details: dict[str, Any]) -> float:
    """Seconds in which the ranks add up the gradients of a batch of ``details``."""
    return hardware.link("all_reduce", num_ranks).time_s(details["parameter_bytes"]) if num_ranks > 1 else 0.0


def layer_widths(case: Case, num_layers: int) -> tuple[list[int], list[int]]:
    """Columns of the features, the hidden layers and the classes; and the numbers of each layer's weight matrix."""
    widths = [case.graph.num_features, *[case.hidden] * (num_layers - 1), case.graph.num_classes]
    return widths, [rows * columns for rows, columns in itertools.pairwise(widths)]


_RATES: dict[tuple[object, ...], float] = {}
"""What this process has measured of this machine: targets of one command share it."""


def row_s(features: np.ndarray, count: int, about: tuple[object, ...]) -> float:
    """Seconds in which this machine gathers a random row of ``features``, in batches of ``count``, in their order.

    Args:
        about: what the time depends on.
    """
    key = "gather", *about
    if key not in _RATES:
        rows, batches = FeatureSource(features, torch.device("cpu")), _random_rows(len(features), count)
        _RATES[key] = _median_s([functools.partial(rows.gather, ids) for ids in batches]) / count
    return _RATES[key]


def draw_s(case: Case, fanouts: Sequence[int], batch_size: int, seed: int) -> float:
    """Seconds in which this machine draws an edge, in batches of so many training nodes."""
    key = "draw", case.dataset, case.scale, case.real, tuple(fanouts)
    if key not in _RATES:
        graph = case.graph
        sampler = NeighborSampler(graph.indptr.astype(np.int64), graph.indices, list(fanouts), seed=seed)
        batches = _random_rows(graph.num_nodes, min(graph.num_nodes, batch_size))
        drawn = [sum(hop.num_edges for hop in sampler.sample(ids, 0)) for ids in batches]
        steps = [functools.partial(sampler.sample, ids, 0) for ids in batches]
        _RATES[key] = _median_s(steps) / float(np.median(drawn))
    return _RATES[key]


def _random_rows(num_rows: int, count: int) -> list[np.ndarray]:
    """Ids of ``count`` rows, a batch for each of the ``ROUNDS``."""
    random = np.random.default_rng(0)
    return [np.sort(random.choice(num_rows, count, replace=False)) for _ in range(ROUNDS)]


def _median_s(steps: Sequence[Callable[[], Any]]) -> float:
    times = interleaved({str(turn): step for turn, step in enumerate(steps)}, torch.device("cpu"), ROUNDS)
    return float(np.median([one.median_ms for one in times.values()])) / 1e3


def add_epochs(
    result: Result,
    labels: Labels,
    here: Mapping[str, Cell],
    seconds: Mapping[str, float | None],
    base: str,
    paper: Sequence[Mapping[str, Any]],
    names: Mapping[str, Mapping[str, Any]],
) -> None:
    """Add rows of an epoch as it is measured here, if it is, and of that of the whole graph on the modelled machine.

    Args:
        seconds: of the simulated epoch, by column.
        base: the column that speed-ups are over.
        names: what the numbers of the ``paper`` call each column.
    """
    simulated = {}
    for name, value in seconds.items():
        own, ratio = (published(paper, what, **names[name]) for what in ("seconds", "speedup"))
        simulated[name] = Cell(value, own, "s", SIMULATED, paper_ratio=ratio)
    for cells in filter(None, (here, simulated)):
        result.add(labels, speedups(cells, base))


def bars_by_origin(
    title: str,
    ylabel: str,
    rows: Sequence[TableRow],
    columns: Sequence[str] = (),
    origins: Sequence[Origin] = (SIMULATED, MEASURED),
    **more: Any,
) -> list[Bars]:
    """The ``bars`` of rows that are simulated as a whole, then those of rows that are measured; titles say which."""
    panels = []
    for origin in origins:
        own = [row for row in rows if {cell.origin for cell in row.cells.values()} == {origin}]
        panels += bars(f"{title}: {origin}", ylabel, own, columns, **more)
    return panels
