"""Processes of their own, with the codec and without it: their memory, what they read, hits of caches, the time of
compressing.

A graph is in a folder, and the processes map it. ``memory`` trains on the graph, and adds up the bytes of the whole
one; ``prepared`` trains from features that an earlier process has prepared. ``compress`` has a file of
Gaussian features that is larger than the memory of a process, which learns the codebook, encodes some megabytes at a
time and writes the codes to another file, as ``loader.map_features`` does."""

import itertools
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.graphs import GraphCase, full_size
from fullgnn.bench.papers.result import Bars, Cell, Origin, Result, Series, bars, numbers, with_label
from fullgnn.bench.papers.sparsification.fresh import FreshCall, call_fresh
from fullgnn.bench.papers.sparsification.sizes import (
    EPOCH,
    ID_BYTES,
    WAYS,
    SparsificationKeys,
    batch_size,
    num_arcs,
    row_sizes,
)
from fullgnn.bench.papers.trainings import fan_outs, fit_here, place
from fullgnn.codecs import EncodedRows, Features
from fullgnn.codecs.topk import TopK
from fullgnn.config import MinibatchConfig
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import world_of_one
from fullgnn.graph import Graph
from fullgnn.partition.folder import open_folder
from fullgnn.prepare.source import Preparation
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.storage.arrays import map_npy, write_npy
from fullgnn.storage.folder import temporary_folder
from fullgnn.telemetry.meter import Meter
from fullgnn.telemetry.timing import wall_ms

GIB = 1 << 30
"""Bytes of what the paper calls a GB: it says that the features of MAG240M are 698 of them."""

ALL, SUBGRAPH, THEIRS, OURS = "features", "features of the sub-graph", "structure, theirs", "structure, ours"
IN_ALL, IN_ALL_SUBGRAPH, HERE, TABLE = "in all", "in all, of the sub-graph", "a process here", "features here"

PEAK, READ, HITS = "peak memory", "read", "hits"
COLUMNS = tuple(f"{what}, {way}" for what in (PEAK, READ, HITS) for way in WAYS)
FULL_BATCH = "full-batch"


@dataclass(frozen=True)
class FeatureReads:
    """What an epoch reads of the features."""

    num_bytes: int  # of the prepared features in full-batch training; else of the rows that an epoch fetches
    hits: float = math.nan  # of the rows that batches read, per cent, those that the cache holds


ARRAYS = ("indptr", "indices", "labels", "train_mask", "val_mask", "test_mask", "features")

CallInFolder = Callable[..., FreshCall]
"""Calls a function in a process of its own, with the folder of the graph, the number of classes, and its arguments."""


@contextmanager
def graph_in_folder(cfg: SparsificationKeys, case: GraphCase) -> Iterator[CallInFolder]:
    """The arrays of the graph of ``case`` in a folder, for the processes that the value calls."""
    with temporary_folder() as folder:
        for name in ARRAYS:
            write_npy(folder / f"{name}.npy", getattr(case.graph, name))

        def call(function: Callable[..., Any], *args: Any) -> FreshCall:
            return call_fresh(function, folder, case.graph.num_classes, *args, threads=cfg.threads or 1)

        yield call


def map_graph(folder: Path, num_classes: int, in_memory: tuple[str, ...] = ()) -> Graph:
    """The graph of ``graph_in_folder``. Its arrays stay in the files until they are read, but for ``in_memory``."""
    arrays: dict[str, Any] = {name: map_npy(folder / f"{name}.npy", read_only=True) for name in ARRAYS}
    arrays |= {name: np.array(arrays[name]) for name in in_memory}
    return Graph(**arrays, num_classes=num_classes, name="graph")


def trainings_of(cfg: SparsificationKeys, case: GraphCase, has_codec: bool) -> tuple[list[str], list[str]]:
    """Overrides of a full-batch training of GraphSAGE, and of a sampled training of the same model."""
    full_batch = [
        "model=sage",
        f"model.num_layers={len(cfg.fanouts)}",
        f"model.hidden_channels={case.hidden}",
        "model.dropout=0",
        "model.input_dropout=0",
        *place(cfg, 1, cfg.seed, cfg.threads),
        "runtime.device=cpu",
        *(["codec=topk", f"codec.k={cfg.kinds[case.dataset].k}"] if has_codec else []),
    ]
    return full_batch, [*full_batch, fan_outs(cfg.fanouts), f"loader.batch_size={batch_size(cfg, case)}"]


def memory(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """Add up the bytes of the whole graph, and measure processes that train on the shrunk one."""
    full, nodes, (row, code) = case.full, case.full.num_nodes, row_sizes(cfg, case)
    structure = 2 * ID_BYTES * num_arcs(full) + ID_BYTES * nodes
    share, here = cfg.subgraph_share, case.graph.num_nodes
    with graph_in_folder(cfg, case) as call:
        keys = [trainings_of(cfg, case, has_codec)[1] for has_codec in (False, True)]
        measured = [call(train_in_memory, own, cfg.batches) for own in keys]
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
    result.details[case.title] = {way: vars(call) for way, call in zip(WAYS, measured)}


@contextmanager
def _sampled_steps(keys: list[str], graph: Graph) -> Iterator[tuple[Any, Meter]]:
    """The steps of a sampled training in this process, and what counts them."""
    run = cast(MinibatchConfig, load_config(compose(*keys, name="minibatch")))
    with world_of_one(run.runtime) as world:
        meter = Meter(world.device)
        steps = set_up_sampled(run, world, meter, graph)
        del graph
        yield steps, meter
        steps.loader.close()


def train_in_memory(folder: Path, num_classes: int, keys: list[str], num_batches: int) -> float:
    """Train so many batches on the graph in ``folder``; returns the last loss.

    The graph and full features are read to memory. Features that a codec compresses are mapped, and are in memory some
    rows at a time.
    """
    in_memory = ARRAYS[:-1] if "codec=topk" in keys else ARRAYS
    with _sampled_steps(keys, map_graph(folder, num_classes, in_memory)) as (steps, _):
        losses = [steps.step(batch).read()[0] for batch in itertools.islice(steps.loader.epoch(1), num_batches)]
    return float(losses[-1])


def prepared(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """Train in processes of their own on what earlier ones have prepared."""
    measured = {way: _trainings(cfg, case, has_codec) for way, has_codec in zip(WAYS, (False, True))}
    for training in measured[WAYS[0]]:
        cells = {}
        for way in WAYS:
            call = measured[way][training]
            cells[f"{PEAK}, {way}"] = Cell(call.own_bytes / 1e9, unit="GB")
            cells[f"{READ}, {way}"] = Cell(call.value.num_bytes / 1e9, unit="GB")
            if not math.isnan(call.value.hits):
                cells[f"{HITS}, {way}"] = Cell(call.value.hits, unit="%")
        result.add((case.title, training), cells)
    own = with_label(result.rows, case.title)
    series = [Series(way, [*numbers(own, f"{READ}, {way}")], []) for way in WAYS]
    result.panels.append(Bars(f"{case.title}: features that are read", "GB", [row.labels[1] for row in own], series))
    result.details[case.title] = {
        way: {training: vars(call) | {"value": vars(call.value)} for training, call in calls.items()}
        for way, calls in measured.items()
    }


def _trainings(cfg: SparsificationKeys, case: GraphCase, has_codec: bool) -> dict[str, FreshCall]:
    """By training, the process that trains, with the codec or without it."""
    with graph_in_folder(cfg, case) as call:
        full_batch, sampled = trainings_of(cfg, case, has_codec)
        full_batch += ["train.epochs=1", "train.eval_every=0"]
        sampled.append("loader.map_features=true")
        call(prepare, full_batch)
        calls = {FULL_BATCH: call(train_full_batch, full_batch)}
        call(train_sampled, sampled, 0)  # leaves the rows in the cache
        calls["sampled"] = call(train_sampled, sampled, EPOCH)
        for share, cache in itertools.product(cfg.cache_shares, cfg.caches):
            megabytes = share / 100 * 4 * case.graph.num_nodes * case.graph.num_features / 1e6
            keys = [*sampled, f"cache={cache}", f"cache.megabytes={megabytes!r}"]
            calls[f"sampled, cache={cache} of {share:g} %"] = call(train_sampled, keys, EPOCH)
        return calls


def prepare(folder: Path, num_classes: int, keys: list[str]) -> None:
    """Write the prepared graph of full-batch training, in one part, to ``folder``."""
    Preparation(load_config(compose(*keys)), 1, map_graph(folder, num_classes)).in_folder(folder / "prepared")


def train_full_batch(folder: Path, num_classes: int, keys: list[str]) -> FeatureReads:
    """Train an epoch on the prepared graph."""
    fit_here(keys, open_folder(folder / "prepared"))
    return FeatureReads(sum(file.stat().st_size for file in folder.glob("prepared/part_*/features.npy")))


def train_sampled(folder: Path, num_classes: int, keys: list[str], num_epochs: int) -> FeatureReads:
    """Train so many epochs on features in a file, and count what the last one reads."""
    counts: dict[str, int] = {}
    own = [*keys, f"runtime.cache_dir={folder / 'cache'}"]
    with _sampled_steps(own, map_graph(folder, num_classes)) as (steps, meter):
        for epoch in range(1, num_epochs + 1):
            meter.take()
            for batch in steps.loader.epoch(epoch):
                steps.step(batch).read()
            counts = meter.take().counts
    fetched = counts.get("fetched_bytes", 0) + counts.get("filled_bytes", 0)
    has_cache = any(key.startswith("cache=") for key in keys)
    hits = 100 * counts.get("hits", 0) / max(1, counts.get("input_rows", 0))
    return FeatureReads(fetched, hits if has_cache else math.nan)


log = logging.getLogger(__name__)

_ROWS = 1 << 14
"""Rows of features that are made at a time."""


class Gaussian:
    """Rows of standard normal features, which are made when they are asked for."""

    dtype = np.dtype(np.float32)

    def __init__(self, num_rows: int, num_columns: int, seed: int):
        self.shape, self._random = (num_rows, num_columns), np.random.default_rng(seed)
        self._known = self._random.standard_normal((_ROWS, num_columns), np.float32)

    def __getitem__(self, rows: slice) -> np.ndarray:
        """See ``storage.arrays.SomeRows``. Blocks of rows are shuffled copies of one block, which is faster to make."""
        count = len(range(*rows.indices(self.shape[0])))
        return self._known[self._random.integers(len(self._known), size=count)]


COMPRESSED = ("file", "time", "rate", "peak memory", "compressed", "full size")


def compress(result: Result, cfg: SparsificationKeys) -> None:
    """Compress a file of the features of each graph, which is not made."""
    for name in cfg.chosen:
        full, k, title = full_size(name), cfg.kinds[name].k, cfg.graphs[name].title
        with temporary_folder() as folder:
            source, target = folder / "features.npy", folder / "codes.npy"
            num_rows = max(1, round(cfg.file_megabytes * 1e6 / (4 * full.num_features)))
            write_npy(source, Gaussian(num_rows, full.num_features, cfg.seed))
            limit = round(cfg.limit_megabytes * 1e6)
            call = call_fresh(compressed, source, target, k, threads=cfg.threads or 1, limit_bytes=limit)
            size, codes = 4 * num_rows * full.num_features, map_npy(target, read_only=True).nbytes
        seconds, whole = call.value, 4 * full.num_nodes * full.num_features
        cells = {
            "file": Cell(size / 1e9, unit="GB"),
            "time": Cell(seconds, unit="s"),
            "rate": Cell(size / seconds / 1e9, unit="GB/s"),
            "peak memory": Cell(call.peak_bytes / 1e9, unit="GB"),
            "compressed": Cell(codes / 1e9, unit="GB"),
            "full size": Cell(whole * seconds / size, unit="s", origin="simulated"),
        }
        result.add((title, f"k={k}"), cells, graph=name)
        result.details[title] = {"libraries_bytes": call.before_bytes, "full_bytes": whole}
        log.info("%s: %.1f s", title, seconds)


def compressed(source: Path, target: Path, k: int) -> float:
    """Write the codes of the features in the file ``source`` to ``target``; returns the seconds that it took.

    The loops are compiled before.
    """
    TopK(k).learn(Features(np.zeros((2, 8), np.float32), "float32"))
    features = Features(map_npy(source, read_only=True), "float32")

    def encode() -> None:
        rows = EncodedRows.of(TopK(k), features)
        assert rows is not None
        write_npy(target, rows)

    return wall_ms(encode, torch.device("cpu")) / 1e3
