"""Trainings in processes of their own, with the codec and without it: their memory, what they read, hits of caches.

The graph is in a folder, and the processes map it. ``memory`` trains on the graph, and adds up the bytes of the whole
one; ``prepared`` trains from features that an earlier process has prepared.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.result import Bars, Cell, Origin, Result, Series, bars, numbers, with_label
from fullgnn.bench.papers.sparsification.config import Config, batch_size
from fullgnn.bench.papers.sparsification.fresh import Fresh, call_fresh
from fullgnn.bench.papers.sparsification.sizes import EPOCH, ID_BYTES, num_arcs, row_sizes
from fullgnn.config import MinibatchConfig
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import world_of_one
from fullgnn.engine.fit import fit
from fullgnn.engine.run import set_up
from fullgnn.engine.step_runner import StepRunner
from fullgnn.graph import Graph
from fullgnn.partition.folder import open_folder
from fullgnn.prepare.source import Preparation
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.storage.arrays import map_npy, write_npy
from fullgnn.storage.folder import temporary_folder
from fullgnn.telemetry.meter import Meter

GIB = 1 << 30
"""Bytes of what the paper calls a GB: it says that the features of MAG240M are 698 of them."""

WAYS = ("full", "sparse")
ALL, SUBGRAPH, THEIRS, OURS = "features", "features of the sub-graph", "structure, theirs", "structure, ours"
IN_ALL, IN_ALL_SUBGRAPH, HERE, TABLE = "in all", "in all, of the sub-graph", "a process here", "features here"

PEAK, READ, HITS = "peak memory", "read", "hits"
COLUMNS = tuple(f"{what}, {way}" for what in (PEAK, READ, HITS) for way in WAYS)
FULL_BATCH = "full-batch"


@dataclass(frozen=True)
class Reads:
    """What an epoch reads of the features."""

    num_bytes: int  # of the prepared features in full-batch training; else of the rows that an epoch fetches
    hits: float = math.nan  # of the rows that batches read, per cent, those that the cache holds


ARRAYS = ("indptr", "indices", "labels", "train_mask", "val_mask", "test_mask", "features")


Call = Callable[..., Fresh]
"""Calls a function in a process of its own, with the folder of the graph, the number of classes, and its arguments."""


@contextmanager
def graph_in_folder(cfg: Config, case: Case) -> Iterator[Call]:
    """The arrays of the graph of ``case`` in a folder, for the processes that the value calls."""
    with temporary_folder() as folder:
        for name in ARRAYS:
            write_npy(folder / f"{name}.npy", getattr(case.graph, name))

        def call(function: Callable[..., Any], *args: Any) -> Fresh:
            return call_fresh(function, folder, case.graph.num_classes, *args, threads=cfg.threads or 1)

        yield call


def map_graph(folder: Path, num_classes: int) -> Graph:
    """The graph of ``graph_in_folder``. Its arrays stay in the files until they are read."""
    arrays: dict[str, Any] = {name: map_npy(folder / f"{name}.npy", read_only=True) for name in ARRAYS}
    return Graph(**arrays, num_classes=num_classes, name="graph")


def full_batch_keys(cfg: Config, one: Case) -> list[str]:
    """Overrides of a full-batch training of GraphSAGE on the graph of ``one``."""
    return [
        "model=sage",
        f"model.num_layers={len(cfg.fanouts)}",
        f"model.hidden_channels={one.hidden}",
        "model.dropout=0",
        "model.input_dropout=0",
        f"seed={cfg.seed}",
        "runtime.device=cpu",
        f"runtime.threads={cfg.threads or 1}",
    ]


def sampled_keys(cfg: Config, one: Case) -> list[str]:
    """Overrides of a sampled training of the same model."""
    return [
        *full_batch_keys(cfg, one),
        f"sampler.fanouts=[{','.join(map(str, cfg.fanouts))}]",
        f"loader.batch_size={batch_size(cfg, one)}",
    ]


def codec_keys(cfg: Config, one: Case) -> list[str]:
    """Overrides of the paper's codec."""
    return ["codec=topk", f"codec.k={cfg.kinds[one.dataset].k}"]


def memory(result: Result, cfg: Config, case: Case) -> None:
    """Add up the bytes of the whole graph, and measure processes that train on the shrunk one."""
    full, nodes, (row, code) = case.full, case.full.num_nodes, row_sizes(cfg, case)
    structure = 2 * ID_BYTES * num_arcs(full) + ID_BYTES * nodes
    share, here = cfg.subgraph_share, case.graph.num_nodes
    with graph_in_folder(cfg, case) as call:
        codecs: tuple[list[str], ...] = [], codec_keys(cfg, case)
        measured = [call(train, [*sampled_keys(cfg, case), *codec], cfg.batches) for codec in codecs]
    sizes: dict[str, tuple[float, float]] = {
        ALL: (nodes * row, nodes * code),
        SUBGRAPH: (share * nodes * row, nodes * code),
        THEIRS: (structure, structure),
        OURS: (4 * num_arcs(full) + 8 * nodes,) * 2,
        IN_ALL: (nodes * row + structure, nodes * code + structure),
        IN_ALL_SUBGRAPH: (share * nodes * row + structure, nodes * code + structure),
        TABLE: (here * row, here * code),
        HERE: (measured[0].own_bytes, measured[1].own_bytes),
    }
    for what, pair in sizes.items():
        origin: Origin = "measured" if what == HERE else "derived"
        papers = [published(cfg.paper, "memory", graph=case.dataset, what=what, way=way) for way in WAYS]
        cells = {way: Cell(size / GIB, paper, "GiB", origin) for way, size, paper in zip(WAYS, pair, papers)}
        cells["sparse over full"] = Cell(100 * pair[1] / pair[0], unit="%", origin=origin)
        result.add((case.title, what), cells)
    drawn = [row for row in result.rows if row.labels in ((case.title, IN_ALL), (case.title, IN_ALL_SUBGRAPH))]
    result.panels += bars("{0}, full size, derived", "GiB", drawn, WAYS, ("ours", "paper"), group=1)
    result.details[case.title] = {way: vars(fresh) for way, fresh in zip(WAYS, measured)}


def train(folder: Path, num_classes: int, keys: list[str], num_batches: int) -> float:
    """Train so many batches on the graph in ``folder``; returns the last loss.

    The graph and full features are read to memory. Features that a codec compresses are mapped, and are in memory some
    rows at a time.
    """
    run = load_config(compose(*keys, name="minibatch"))
    assert isinstance(run, MinibatchConfig)
    graph = map_graph(folder, num_classes)
    in_memory = ARRAYS if run.codec["name"] == "none" else [name for name in ARRAYS if name != "features"]
    copies: dict[str, Any] = {name: np.array(getattr(graph, name)) for name in in_memory}
    graph = replace(graph, **copies)
    with world_of_one(run.runtime) as world:
        steps = set_up_sampled(run, world, Meter(world.device), graph)
        del graph
        loss = float("nan")
        for batch in itertools.islice(steps.loader.epoch(1), num_batches):
            loss = steps.step(batch).read()[0]
        steps.loader.close()
    return loss


def prepared(result: Result, cfg: Config, case: Case) -> None:
    """Train in processes of their own on what earlier ones have prepared."""
    measured = {way: _trainings(cfg, case, codec) for way, codec in zip(WAYS, ([], codec_keys(cfg, case)))}
    for training in measured[WAYS[0]]:
        cells = {}
        for way in WAYS:
            fresh = measured[way][training]
            cells[f"{PEAK}, {way}"] = Cell(fresh.own_bytes / 1e9, unit="GB")
            cells[f"{READ}, {way}"] = Cell(fresh.value.num_bytes / 1e9, unit="GB")
            if not math.isnan(fresh.value.hits):
                cells[f"{HITS}, {way}"] = Cell(fresh.value.hits, unit="%")
        result.add((case.title, training), cells)
    own = with_label(result.rows, case.title)
    series = [Series(way, [*numbers(own, f"{READ}, {way}")], []) for way in WAYS]
    result.panels.append(Bars(f"{case.title}: features that are read", "GB", [row.labels[1] for row in own], series))
    result.details[case.title] = {
        way: {training: vars(fresh) | {"value": vars(fresh.value)} for training, fresh in processes.items()}
        for way, processes in measured.items()
    }


def _trainings(cfg: Config, case: Case, codec: list[str]) -> dict[str, Fresh]:
    """By training, the process that trains; the features are those that ``codec`` keeps."""
    with graph_in_folder(cfg, case) as call:
        full_batch = [*full_batch_keys(cfg, case), *codec, "train.epochs=1", "train.eval_every=0"]
        sampled = [*sampled_keys(cfg, case), *codec, "loader.map_features=true"]
        call(prepare, full_batch)
        processes = {FULL_BATCH: call(train_full_batch, full_batch)}
        call(train_sampled, sampled, 0)  # leaves the rows in the cache
        processes["sampled"] = call(train_sampled, sampled, EPOCH)
        for share, cache in itertools.product(cfg.cache_shares, cfg.caches):
            megabytes = share / 100 * 4 * case.graph.num_nodes * case.graph.num_features / 1e6
            keys = [*sampled, f"cache={cache}", f"cache.megabytes={megabytes!r}"]
            processes[f"sampled, cache={cache} of {share:g} %"] = call(train_sampled, keys, EPOCH)
        return processes


def prepare(folder: Path, num_classes: int, keys: list[str]) -> None:
    """Write the prepared graph of full-batch training, in one part, to ``folder``."""
    Preparation(load_config(compose(*keys)), 1, map_graph(folder, num_classes)).in_folder(folder / "prepared")


def train_full_batch(folder: Path, num_classes: int, keys: list[str]) -> Reads:
    """Train an epoch on the prepared graph."""
    path, run = folder / "prepared", load_config(compose(*keys))
    with world_of_one(run.runtime) as world:
        fit(StepRunner(set_up(run, world, Meter(world.device), prepared=open_folder(path))))
    return Reads(sum(file.stat().st_size for file in path.glob("part_*/features.npy")))


def train_sampled(folder: Path, num_classes: int, keys: list[str], num_epochs: int) -> Reads:
    """Train so many epochs on features in a file, and count what the last one reads."""
    run = load_config(compose(*keys, f"runtime.cache_dir={folder / 'cache'}", name="minibatch"))
    assert isinstance(run, MinibatchConfig)
    counts: dict[str, int] = {}
    with world_of_one(run.runtime) as world:
        meter = Meter(world.device)
        training = set_up_sampled(run, world, meter, map_graph(folder, num_classes))
        for epoch in range(1, num_epochs + 1):
            meter.take()
            for batch in training.loader.epoch(epoch):
                training.step(batch).read()
            counts = meter.take().counts
        training.loader.close()
    fetched = counts.get("fetched_bytes", 0) + counts.get("filled_bytes", 0)
    has_cache = run.cache["name"] != "none"
    return Reads(fetched, 100 * counts.get("hits", 0) / max(1, counts.get("input_rows", 0)) if has_cache else math.nan)
