"""Batches of sampled training by step: measured by ``python -m fullgnn.bench``, and on a modelled machine with GPUs
like those of a paper; and what the batches of an epoch read.

Without a GPU nothing travels, so what a cache or a codec saves cannot be measured here. A simulated epoch is that of
the whole graph on the paper's kind of GPU, of whose batches

    sample, gather               take the time that this machine needs for the edges that are drawn, and for the rows
                                 that are fetched, at the rates of ``draw_s`` and ``row_s``
    transfer, decode, compute    take what the planner's model of the machine says of bytes, products and operations

What is counted in a batch of the shrunk graph is multiplied by how many times as large a batch is at full size.
"""

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fullgnn.bench.__main__ import start
from fullgnn.bench.config import load_bench
from fullgnn.bench.harness import interleaved
from fullgnn.bench.papers.config import JobShape, Keys
from fullgnn.bench.papers.graphs import GraphCase
from fullgnn.bench.papers.result import Cell, Origin, Result, bars
from fullgnn.bench.papers.trainings import listed, load_links
from fullgnn.config import RuntimeConfig
from fullgnn.config.overrides import quote
from fullgnn.costs.hardware import Hardware, load_hardware
from fullgnn.graph import Graph
from fullgnn.sampling.batches import batch_of, epoch_order, num_batches
from fullgnn.sampling.features import FeatureSource
from fullgnn.sampling.hop import Hop
from fullgnn.sampling.neighbors import NeighborSampler
from fullgnn.storage.folder import temporary_folder

OURS, DGL, PYG = "ours", "DGL", "PyG"
MEASURED: Origin = "measured"
SIMULATED: Origin = "simulated"


@dataclass(frozen=True)
class MeasuredBatches:
    """What one benchmark has measured."""

    ms: dict[str, float]  # of a batch, by method
    details: dict[str, dict[str, Any]]  # by method
    missing: dict[str, str]  # reason, by method
    num_batches: int  # of an epoch, on each rank
    times_ms: dict[str, list[float]]

    def cell(self, method: str, scale: float = 1.0, unit: str = "ms", origin: Origin = MEASURED) -> Cell:
        """The time of a batch, times ``scale``; or why there is none."""
        missing = self.missing.get(method, "not measured")
        return Cell(self.ms[method] * scale if method in self.ms else missing, None, unit, origin)

    def records(self, presets: Mapping[str, str]) -> dict[str, Any]:
        """What the record of a target keeps of methods of ours, which have the names of their presets."""
        records = {}
        for way, name in presets.items():
            details = {key: value for key, value in self.details.get(name, {}).items() if key != "losses"}
            records[way] = {"preset": name, "times_ms": self.times_ms.get(name), **details}
        return records


_KNOWN: dict[tuple[object, ...], MeasuredBatches] = {}
"""What this process has measured: targets of one command share it."""


def measure(cfg: Keys, case: GraphCase, op: str, presets: Sequence[str] = (), **own: Any) -> MeasuredBatches:
    """Run the benchmark ``op`` on the graph of ``case``, in processes of its own.

    Args:
        presets: of ours, as ``conf/bench.yaml`` explains; the name of each is that of its method.
        own: keys of the benchmark that win over those of ``cfg``: ``nproc``, ``batch_size`` and ``workers``.
    """
    keys: dict[str, Any] = {"op": op, "graph": "npz", "hidden": case.hidden, "nproc": 1, "workers": 0}
    keys |= {name: getattr(cfg, name) for name in ("threads", "device", "seed", "batches", "rounds", "batch_size")}
    keys |= {"presets": listed(map(quote, presets)) if presets else "null"}
    keys |= {"fanouts": listed(cfg.fanouts), "peers": listed(cfg.peers)} | own
    known = (case.dataset, case.real, case.scale, case.degree_scale, *keys.values())
    if known not in _KNOWN:
        with temporary_folder() as folder:
            case.graph.save(folder / "graph.npz")
            path = quote(str(folder / "graph.npz"))
            arguments = [f"{key}={value}" for key, value in keys.items()]
            arguments += [f"overrides=[{quote(f'dataset.path={path}')}]", f"out={quote(str(folder / 'out'))}"]
            start(load_bench(*arguments), arguments)
            record = json.loads((folder / "out" / "record.json").read_text())
        of_methods = ("median_ms", "details", "times_ms")
        ms, details, times_ms = ({own["method"]: own[key] for own in record["measurements"]} for key in of_methods)
        missing = {own["method"]: why_missing(own["reason"]) for own in record["missing"]}
        _KNOWN[known] = MeasuredBatches(ms, details, missing, record["problem"]["num_batches"], times_ms)
    return _KNOWN[known]


def why_missing(reason: str) -> str:
    """The reason why a library has no times, in the words of a table."""
    if "ModuleNotFoundError" in reason:
        return "not installed"
    return "its sampler is not installed" if "requires either 'pyg-lib' or 'torch-sparse'" in reason else reason


def epoch_cells(cfg: Keys, case: GraphCase, p: int, **own: Any) -> dict[str, Cell]:
    """The seconds of an epoch on ``p`` ranks by method, measured up to ``cfg.nproc`` ranks and simulated beyond.

    A simulated rank takes as long for a batch as the only rank of a measured job, and then waits for the AllReduce of
    its gradients, by the planner's model of the links.

    Args:
        own: see ``measure``.
    """
    simulates = p > cfg.most_ranks
    times = measure(cfg, case, "minibatch", nproc=1 if simulates else p, **own)
    num_batches, origin = times.num_batches, MEASURED
    if simulates:
        num_batches, origin = math.ceil(times.num_batches / p), SIMULATED
        hardware = load_links(cfg, [JobShape("1d", p, 1)])
        assert hardware is not None
        waiting_ms = 1e3 * waiting_s(replace(hardware, ranks_per_node=p), p, times.details[OURS])
        times = replace(times, ms={name: ms + waiting_ms for name, ms in times.ms.items()})
    return {name: times.cell(name, num_batches / 1e3, "s", origin) for name in (DGL, PYG, OURS)}


@dataclass(frozen=True, eq=False)
class Draws:
    """The batches of sampled training, drawn on the structure of a graph alone; what they read is counted exactly."""

    graph: Graph
    train: np.ndarray  # (num_train,) int64, the training nodes, ascending
    fanouts: list[int]  # from the targets outwards
    batch_size: int  # training nodes of a batch
    seed: int

    @functools.cached_property
    def indptr(self) -> np.ndarray:
        """(num_nodes + 1,) int64."""
        return self.graph.indptr.astype(np.int64)

    @functools.cached_property
    def sampler(self) -> NeighborSampler:
        """Draws the hops of all batches."""
        return NeighborSampler(self.indptr, self.graph.indices, self.fanouts, seed=self.seed)

    def batches(self, epoch: int) -> Iterator[Sequence[Hop[np.ndarray]]]:
        """The hops of each batch of ``epoch``, from the targets outwards."""
        order = epoch_order(self.train, self.seed, epoch)
        for turn in range(num_batches(len(self.train), self.batch_size)):
            yield self.sampler.sample(np.sort(batch_of(order, self.batch_size, turn)), epoch)

    def reads(self, epochs: Iterable[int]) -> np.ndarray:
        """(num_nodes,) int64: how many batches of these epochs read the row of each node."""
        counts = np.zeros(self.graph.num_nodes, np.int64)
        for epoch in epochs:
            for hops in self.batches(epoch):
                counts[hops[-1].sources] += 1
        return counts


@dataclass(frozen=True, kw_only=True)
class BatchSeconds:
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


@dataclass(frozen=True)
class Comparison:
    """A job that is trained in several ways, each a column of a table."""

    labels: tuple[str, ...]  # the cells that name its rows
    names: dict[str, Any]  # what the paper's numbers call its rows
    presets: dict[str, str]  # of the benchmark, by way; speed-ups are over the first one
    times: MeasuredBatches
    whole: dict[str, BatchSeconds | None]  # a batch of the whole graph on the modelled machine; None: it has not run
    num_here: float  # batches of an epoch here; 0: too many ranks for this machine
    num_whole: float  # batches of an epoch of the whole graph, of one rank

    def add_epochs(self, result: Result, columns: Iterable[str], by: str, *what: str, overlapped: str = "") -> None:
        """Add rows of an epoch as it is measured here, if it is, and of that of the whole graph, simulated.

        Args:
            by: what the paper's numbers call the columns.
            what: further labels of the rows.
            overlapped: the way in which batches are loaded while others are computed.
        """
        base, labels, here, whole = next(iter(self.presets)), (*self.labels, *what), {}, {}
        for name in columns:
            batch, here[name] = self.whole[name], self.times.cell(self.presets[name], self.num_here / 1e3, "s")
            seconds = batch and self.num_whole * (batch.overlapped if name == overlapped else batch.in_turn)
            whole[name] = Cell(seconds or None, unit="s", origin=SIMULATED)
        if self.num_here:
            result.add(labels, here, base)
        result.add(labels, whole, base, by=by, value="seconds", **self.names)
        result.details[", ".join(self.labels)] = self.times.records(self.presets)


def batch_here(times: MeasuredBatches, name: str) -> BatchSeconds:
    """A batch of the shrunk graph on this machine, by the method ``name``. What loads features is its decoding."""
    spent = {key: value / 1e3 for key, value in times.details[name]["steps_ms"].items()}
    return BatchSeconds(
        sample=spent["sample"],
        gather=spent.get("gather", 0.0),
        transfer=0.0,
        decode=spent["load"],
        compute=spent["forward"] + spent["backward"] + spent["update"],
        waiting=spent.get("comm", 0.0),
    )


modelled = functools.cache(functools.partial(load_hardware, runtime=RuntimeConfig()))
"""The profile of the modelled machine, by its name."""


def waiting_s(hardware: Hardware, num_ranks: int, details: dict[str, Any]) -> float:
    """Seconds in which the ranks add up the gradients of a batch of ``details``."""
    return hardware.link("all_reduce", num_ranks).time_s(details["parameter_bytes"]) if num_ranks > 1 else 0.0


def compute_s(
    hardware: Hardware,
    case: GraphCase,
    details: dict[str, Any],
    up: float,
    *,
    edges: Sequence[float] = (),
    transforms_first: bool = False,
    update_passes: int = 0,
    one_table: bool = False,
) -> float:
    """Seconds of the products, the reads of neighbours and the other operations of a batch of the whole graph.

    Args:
        details: what the benchmark has counted of a batch of the shrunk graph.
        up: how many times as large a batch is at full size.
        edges: that each layer reads; empty: as many as ``details`` has.
        transforms_first: whether a layer multiplies its input by the weights before it reads neighbours.
        update_passes: arrays as large as the parameters that a step goes through, whatever its batch.
        one_table: whether every layer gathers at the rate of the features, and not at that of its own table.
    """
    layers, operations = details["layers"], details["operations"]
    widths = [case.graph.num_features, *[case.hidden] * (len(layers) - 1), case.graph.num_classes]
    of_weights = [rows * columns for rows, columns in itertools.pairwise(widths)]
    num_matrices = details["parameter_bytes"] / 4 / sum(of_weights)  # of each layer
    fixed = min(operations["bytes"], update_passes * details["parameter_bytes"])
    passes = fixed + up * (operations["bytes"] - fixed)
    seconds = operations["count"] * hardware.op_s + passes / hardware.copy_bytes_per_s
    for index, layer in enumerate(layers):
        num_rows, width = layer["targets"], widths[index]
        if transforms_first:
            num_rows, width = layer["sources"], widths[index + 1]
        has_gradient = index > 0  # the features have none
        seconds += up * 2 * num_rows * of_weights[index] * num_matrices * (2 + has_gradient) / hardware.gemm_flops_per_s
        num_edges = edges[index] if edges else layer["edges"]
        edge_bytes = 4 * num_edges * width * (1 + (transforms_first or has_gradient))
        table = layers[0]["sources"] * widths[0] if one_table else layer["sources"] * width
        seconds += up * edge_bytes / hardware.gather_rate(4 * table * up)
    return seconds


ROUNDS = 5
"""Turns of what is measured in this process."""

_RATES: dict[tuple[object, ...], float] = {}
"""What this process has measured of this machine: targets of one command share it."""


def row_s(features: np.ndarray, count: int, about: tuple[object, ...]) -> float:
    """Seconds in which this machine gathers a random row of ``features``, in batches of ``count``, in their order.

    Args:
        about: what the time depends on.
    """
    key = "gather", *about
    if key not in _RATES:
        rows = FeatureSource(features, torch.device("cpu"))
        _RATES[key] = _median_s(rows.gather, _random_rows(len(features), count)) / count
    return _RATES[key]


def draw_s(case: GraphCase, fanouts: Sequence[int], batch_size: int, seed: int) -> float:
    """Seconds in which this machine draws an edge, in batches of so many training nodes."""
    key = "draw", case.dataset, case.scale, case.real, tuple(fanouts)
    if key not in _RATES:
        graph = case.graph
        sampler = NeighborSampler(graph.indptr.astype(np.int64), graph.indices, list(fanouts), seed=seed)
        batches = _random_rows(graph.num_nodes, min(graph.num_nodes, batch_size))
        drawn = [sum(hop.num_edges for hop in sampler.sample(ids, 0)) for ids in batches]
        _RATES[key] = _median_s(lambda ids: sampler.sample(ids, 0), batches) / float(np.median(drawn))
    return _RATES[key]


def _random_rows(num_rows: int, count: int) -> list[np.ndarray]:
    """Ids of ``count`` rows, a batch for each of the ``ROUNDS``."""
    random = np.random.default_rng(0)
    return [np.sort(random.choice(num_rows, count, replace=False)) for _ in range(ROUNDS)]


def _median_s(step: Callable[[np.ndarray], Any], batches: Sequence[np.ndarray]) -> float:
    steps = {str(turn): functools.partial(step, ids) for turn, ids in enumerate(batches)}
    times = interleaved(steps, torch.device("cpu"), ROUNDS)
    return float(np.median([times_of_step.median_ms for times_of_step in times.values()])) / 1e3


bars_by_origin = functools.partial(bars, origins=(SIMULATED, MEASURED))
"""The ``bars`` of rows that are simulated as a whole, then those of rows that are measured; titles say which."""
