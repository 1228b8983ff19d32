"""Processes of their own, with the codec and without it: their memory, what they read, hits of caches, the time of
compressing.

A graph is in a folder, and the processes map it. ``memory`` trains on the graph, and adds up the bytes of the whole
one; ``prepared`` trains from features that an earlier process has prepared. ``compress`` has a file of
Gaussian features that is larger than the memory of a process, which learns the codebook, encodes some megabytes at a
time and writes the codes to another file, as ``loader.map_features`` does."""

import itertools
import logging
import math
import re
import resource
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.bench.papers import result as results
from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.graphs import GraphCase, configured, full_size
from fullgnn.bench.papers.result import Bars, BarSeries, Cell, Origin, Result, cells
from fullgnn.bench.papers.sparsification import sizes
from fullgnn.bench.papers.sparsification.sizes import EPOCH, ID_BYTES, WAYS, SparsificationKeys
from fullgnn.bench.papers.trainings import fit_here, listed, place
from fullgnn.codecs import EncodedRows, Features
from fullgnn.codecs.topk import TopK
from fullgnn.distributed import world_of_one
from fullgnn.distributed.launch import environment
from fullgnn.distributed.worker import Worker, answer_calls
from fullgnn.errors import UnsupportedError, reason_of
from fullgnn.graph import Graph
from fullgnn.partition.folder import open_folder
from fullgnn.prepare.source import Preparation
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.storage.arrays import map_npy, row_blocks, write_npy
from fullgnn.storage.folder import temporary_folder
from fullgnn.telemetry.log import setup_logging
from fullgnn.telemetry.meter import Cost, Meter

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FreshCall:
    """What a call in a process of its own has returned."""

    value: Any
    before_bytes: int  # what the libraries take before the call
    peak_bytes: int

    @property
    def own_bytes(self) -> int:
        """What the call itself takes."""
        return self.peak_bytes - self.before_bytes


def call_fresh(function: Callable[..., Any], *args: Any, threads: int = 1, limit_bytes: int | None = None) -> FreshCall:
    """Return ``function(*args)`` of a new Python, and its peak memory.

    Memory is what the process has written itself. Pages of files that it has mapped do not count: the system takes them
    away when it is short of memory.

    Args:
        function: of a module.
        threads: that it may use.
        limit_bytes: of memory that it may write; None: there is no limit.

    Raises:
        UnsupportedError: the function failed, or its process ended.
    """
    with environment({f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "NUMBA", "MKL")}):
        worker = Worker.started(answer_calls)
    try:
        return worker.call(_watched, function, args, limit_bytes)
    except Exception as error:
        raise UnsupportedError(f"{function.__name__}: {reason_of(error)}") from error
    finally:
        worker.close()


def _watched(function: Callable[..., Any], args: tuple[Any, ...], limit_bytes: int | None) -> FreshCall:
    setup_logging(0)
    if limit_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    before, done = _written_bytes(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        peak = threads.submit(_peak_bytes, done)
        try:
            value = function(*args)
        finally:
            done.set()
        return FreshCall(value, before, max(before, peak.result()))


def _peak_bytes(done: threading.Event) -> int:
    """The most memory that the process has written, every few milliseconds until ``done``, and then."""
    peak = 0
    while not done.wait(0.005):
        peak = max(peak, _written_bytes())
    return max(peak, _written_bytes())


def _written_bytes() -> int:
    """Bytes of memory that belong to no file."""
    written = re.search(r"RssAnon:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(written[1]) if written else 0


GIB = 1 << 30
"""Bytes of what the paper calls a GB: it says that the features of MAG240M are 698 of them."""

STRUCTURE = ("indptr", "indices", "labels", "train_mask", "val_mask", "test_mask", "num_classes")
FEATURES = "features"
"""The fields of a graph that are files of a folder."""


@contextmanager
def graph_in_folder(cfg: SparsificationKeys, case: GraphCase) -> Iterator[Callable[..., FreshCall]]:
    """The graph of ``case`` in a folder. The value calls a function of this folder and of further arguments in a
    process of its own."""
    with temporary_folder() as folder:
        for name in (*STRUCTURE, FEATURES):
            np.save(folder / f"{name}.npy", getattr(case.graph, name))
        yield lambda function, *args: call_fresh(function, folder, *args, threads=cfg.threads or 1)


def map_graph(folder: Path, in_memory: Collection[str] = ()) -> Graph:
    """The graph of ``graph_in_folder``. Its arrays stay in the files until they are read, but for ``in_memory``."""
    arrays = {name: map_npy(folder / f"{name}.npy", read_only=True) for name in (*STRUCTURE, FEATURES)}
    fields: dict[str, Any] = arrays | {name: np.array(arrays[name]) for name in in_memory}
    return Graph(**fields, name="graph")


def trainings_of(cfg: SparsificationKeys, case: GraphCase) -> list[tuple[list[str], list[str]]]:
    """By way, the overrides of a full-batch training of GraphSAGE, and of a sampled training of the same model."""
    plain = ["model=sage", f"model.num_layers={len(cfg.fanouts)}", f"model.hidden_channels={case.hidden}"]
    plain += ["model.dropout=0", "model.input_dropout=0", *place(cfg, 1, cfg.seed, cfg.threads), "runtime.device=cpu"]
    batches = [f"sampler.fanouts={listed(cfg.fanouts)}", f"loader.batch_size={sizes.batch_size(cfg, case)}"]
    codecs = ([] if k is None else ["codec=topk", f"codec.k={k}"] for k in sizes.k_by_way(cfg, case).values())
    return [([*plain, *codec], [*plain, *codec, *batches]) for codec in codecs]


def _train(keys: list[str], graph: Graph, num_epochs: int, num_batches: int | None = None) -> tuple[float, Cost]:
    """Train by batches in this process; returns the last loss, and the cost of the last epoch.

    Args:
        num_batches: of an epoch; None: all.
    """
    run = configured(*keys, name="minibatch")
    with world_of_one(run.runtime) as world:
        meter = Meter(world.device)
        steps = set_up_sampled(run, world, meter, graph)
        del graph
        loss, cost = math.nan, meter.take()
        for epoch in range(1, num_epochs + 1):
            for batch in itertools.islice(steps.loader.epoch(epoch), num_batches):
                loss = float(steps.step(batch).read()[0])
            cost = meter.take()
        steps.loader.close()
    return loss, cost


HERE = "a process here"


def memory(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """Add up the bytes of the whole graph, and measure processes that train on the shrunk one."""
    nodes, arcs, (row, code) = case.full.num_nodes, sizes.num_arcs(case.full), sizes.row_sizes(cfg, case)
    structure, part, here = ID_BYTES * (2 * arcs + nodes), cfg.subgraph_share * nodes * row, case.graph.num_nodes
    with graph_in_folder(cfg, case) as call:
        measured = [call(train_in_memory, sampled, cfg.batches) for _, sampled in trainings_of(cfg, case)]
    by_way: dict[str, tuple[float, ...]] = {
        "features": (nodes * row, nodes * code),
        "features of the sub-graph": (part, nodes * code),
        "structure, theirs": (structure, structure),
        "structure, ours": (4 * arcs + 8 * nodes,) * 2,
        "in all": (nodes * row + structure, nodes * code + structure),
        "in all, of the sub-graph": (part + structure, nodes * code + structure),
        "features here": (here * row, here * code),
        HERE: tuple(call.own_bytes for call in measured),
    }
    for what, (full, sparse) in by_way.items():
        origin: Origin = "measured" if what == HERE else "derived"
        papers = [published(cfg.paper, "memory", graph=case.dataset, what=what, way=way) for way in WAYS]
        pair = {way: Cell(size / GIB, paper, "GiB", origin) for way, size, paper in zip(WAYS, (full, sparse), papers)}
        result.add((case.title, what), pair | cells({"sparse over full": 100 * sparse / full}, "%", origin))
    drawn = [row for row in results.with_label(result.rows, case.title) if row.labels[1].startswith("in all")]
    result.panels += results.bars("{0}, full size, derived", "GiB", drawn, WAYS, results.OURS_AND_PAPER, group=1)
    result.details[case.title] = {way: vars(call) for way, call in zip(WAYS, measured)}


def train_in_memory(folder: Path, keys: list[str], num_batches: int) -> float:
    """Train so many batches on the graph in ``folder``; returns the last loss.

    The graph and full features are read to memory. Features that a codec compresses are mapped, and are in memory some
    rows at a time.
    """
    in_memory = STRUCTURE if "codec=topk" in keys else (*STRUCTURE, FEATURES)
    return _train(keys, map_graph(folder, in_memory), 1, num_batches)[0]


PEAK, READ, HITS = "peak memory", "read", "hits"
COLUMNS = tuple(f"{what}, {way}" for what in (PEAK, READ, HITS) for way in WAYS)


@dataclass(frozen=True)
class FeatureReads:
    """What an epoch reads of the features."""

    num_bytes: int  # of the prepared features in full-batch training; else of the rows that an epoch fetches
    hits: float = math.nan  # of the rows that batches read, per cent, those that the cache holds


def prepared(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """Train in processes of their own on what earlier ones have prepared."""
    measured = {way: _trainings(cfg, case, keys) for way, keys in zip(WAYS, trainings_of(cfg, case))}
    for training in measured[WAYS[0]]:
        row = dict[str, Cell]()
        for way, calls in measured.items():
            call, reads = calls[training], calls[training].value
            row |= cells({f"{PEAK}, {way}": call.own_bytes / 1e9, f"{READ}, {way}": reads.num_bytes / 1e9}, "GB")
            row |= {} if math.isnan(reads.hits) else cells({f"{HITS}, {way}": reads.hits}, "%")
        result.add((case.title, training), row)
    own = results.with_label(result.rows, case.title)
    series = [BarSeries(way, [*results.numbers(own, f"{READ}, {way}")]) for way in WAYS]
    result.panels.append(Bars(f"{case.title}: features that are read", "GB", [row.labels[1] for row in own], series))
    result.details[case.title] = {
        way: {training: asdict(call) for training, call in calls.items()} for way, calls in measured.items()
    }


def _trainings(cfg: SparsificationKeys, case: GraphCase, keys: tuple[list[str], list[str]]) -> dict[str, FreshCall]:
    """By training, the process that trains, with these overrides of full-batch and of sampled training."""
    full_batch, sampled = [*keys[0], "train.epochs=1", "train.eval_every=0"], [*keys[1], "loader.map_features=true"]
    with graph_in_folder(cfg, case) as call:
        call(prepare, full_batch)
        calls = {"full-batch": call(train_full_batch, full_batch)}
        call(train_sampled, sampled, 0)  # leaves the rows in the cache
        calls["sampled"] = call(train_sampled, sampled, EPOCH)
        for share, cache, megabytes in sizes.caches_of(cfg, case):
            cached = [*sampled, f"cache={cache}", f"cache.megabytes={megabytes!r}"]
            calls[f"sampled, cache={cache} of {share:g} %"] = call(train_sampled, cached, EPOCH)
        return calls


def prepare(folder: Path, keys: list[str]) -> None:
    """Write the prepared graph of full-batch training, in one part, to ``folder``."""
    Preparation(configured(*keys), 1, map_graph(folder)).in_folder(folder / "prepared")


def train_full_batch(folder: Path, keys: list[str]) -> FeatureReads:
    """Train an epoch on the prepared graph."""
    fit_here(keys, open_folder(folder / "prepared"))
    return FeatureReads(sum(file.stat().st_size for file in folder.glob("prepared/part_*/features.npy")))


def train_sampled(folder: Path, keys: list[str], num_epochs: int) -> FeatureReads:
    """Train so many epochs on features in a file, and count what the last one reads."""
    counts = _train([*keys, f"runtime.cache_dir={folder / 'cache'}"], map_graph(folder), num_epochs)[1].counts
    fetched = counts.get("fetched_bytes", 0) + counts.get("filled_bytes", 0)
    has_cache = any(key.startswith("cache=") for key in keys)
    return FeatureReads(fetched, 100 * counts["hits"] / max(1, counts["input_rows"]) if has_cache else math.nan)


_ROWS = 1 << 14
"""Rows of features that are made at a time."""


def compress(result: Result, cfg: SparsificationKeys) -> None:
    """Compress a file of Gaussian features, as wide as those of each graph, which is not made."""
    for name in cfg.chosen:
        full, k, title = full_size(name), cfg.kinds[name].k, cfg.graphs[name].title
        row_bytes, limit = sizes.row_bytes(full.num_features, None), round(cfg.limit_megabytes * 1e6)
        with temporary_folder() as folder:
            source, target = folder / "features.npy", folder / "codes.npy"
            num_rows = max(1, round(cfg.file_megabytes * 1e6 / row_bytes))
            write_gaussian(source, (num_rows, full.num_features), cfg.seed)
            call = call_fresh(compressed, source, target, k, threads=cfg.threads or 1, limit_bytes=limit)
            size, codes = num_rows * row_bytes, map_npy(target, read_only=True).nbytes
        seconds, whole = call.value, full.num_nodes * row_bytes
        row = cells({"file": size / 1e9}, "GB") | cells({"time": seconds}, "s")
        row |= cells({"rate": size / seconds / 1e9}, "GB/s")
        row |= cells({"peak memory": call.peak_bytes / 1e9, "compressed": codes / 1e9}, "GB")
        row |= cells({"full size": whole * seconds / size}, "s", "simulated")
        result.add((title, f"k={k}"), row, graph=name)
        result.details[title] = {"libraries_bytes": call.before_bytes, "full_bytes": whole}
        log.info("%s: %.1f s", title, seconds)


def write_gaussian(file: Path, shape: tuple[int, int], seed: int) -> None:
    """Write standard normal features. Blocks of rows are shuffled copies of one block, which is faster to make."""
    random, features = np.random.default_rng(seed), np.lib.format.open_memmap(file, "w+", np.float32, shape)
    known = random.standard_normal((_ROWS, shape[1]), np.float32)
    for rows in row_blocks(features):
        features[rows] = known[random.integers(_ROWS, size=len(features[rows]))]


def compressed(source: Path, target: Path, k: int) -> float:
    """Write the codes of the features in the file ``source`` to ``target``; returns the seconds that it took.

    The loops are compiled before.
    """
    TopK(k).learn(Features(np.zeros((2, 8), np.float32), "float32"))
    features, begin = Features(map_npy(source, read_only=True), "float32"), time.perf_counter()
    rows = EncodedRows.of(TopK(k), features)
    assert rows is not None
    write_npy(target, rows)
    return time.perf_counter() - begin
