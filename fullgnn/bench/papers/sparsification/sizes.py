"""The graphs, the share of their features in all bytes, and hits of a cache of the same bytes, which holds rows of
features as they are, or their codes: counted on the structure alone, without features. First, the keys of all targets
about bytes and time."""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fullgnn.bench.papers.batches import Draws
from fullgnn.bench.papers.config import NEIGHBOR, Keys, published
from fullgnn.bench.papers.graphs import GraphCase, GraphSize, case, full_size
from fullgnn.bench.papers.result import OURS_AND_PAPER, Cell, Result, TableRow, bars, cells
from fullgnn.codecs.topk import GROUP, TopK
from fullgnn.errors import ConfigError
from fullgnn.sampling.caches import Accesses, CacheByDegree, CacheByPresampling, CacheExactly
from fullgnn.sampling.host_graph import HostGraph


@dataclass
class GraphKind:
    """What a target must know of a graph beside its sizes."""

    k: int
    """The paper's k."""
    train_nodes: int
    """At full size."""
    arcs_of_an_edge: int
    """How many stored arcs the paper counts as one edge."""
    counts_loops: bool
    """Whether the paper counts a self-loop of each node too."""


@dataclass
class SparsificationModel:
    """A model of the paper."""

    title: str
    keys: list[str]
    """Overrides that choose it."""
    sampler: str = NEIGHBOR
    transforms_first: bool = False
    """Whether a layer multiplies its input by the weights before it reads neighbours."""


@dataclass
class SparsificationKeys(Keys):
    """The keys of ``conf/reproduce_sparsification.yaml``, which explains them."""

    kinds: dict[str, GraphKind]
    least_batch_size: int
    models: dict[str, SparsificationModel]
    cluster_nodes: int
    least_cluster_nodes: int
    group_size: int
    gather_megabytes: float
    file_megabytes: float
    limit_megabytes: float
    cache_shares: list[float]
    caches: list[str]
    subgraph_share: float


def check_ratios(cfg: SparsificationKeys) -> None:
    """Refuse ratios that the codec cannot have.

    Raises:
        ConfigError: one line that names the key.
    """
    for ratio in cfg.ratios:
        if ratio != 1 and (2 * GROUP % ratio or not 4 <= ratio <= 2 * GROUP):
            raise ConfigError(f"ratios has {ratio}: give 1, or powers of two from 4 to {2 * GROUP}, which are 512 / k")


FULL, SPARSE = "full", "sparse"
WAYS = (FULL, SPARSE)
"""Features as they are, and as the codec keeps them."""


def sparse_cases(cfg: SparsificationKeys, features: bool = True) -> list[GraphCase]:
    """The graphs that ``cfg`` chooses, whose share of training nodes is the real one.

    Args:
        features: see ``graphs.cases``.
    """
    made = []
    for name in cfg.chosen:
        share = cfg.kinds[name].train_nodes / full_size(name).num_nodes
        split = [f"dataset.train_fraction={share!r}", f"dataset.val_fraction={min(0.1, 1 - share)!r}"]
        made.append(case(cfg, name, features, split))
    return made


def batch_size(cfg: SparsificationKeys, case: GraphCase) -> int:
    """Training nodes of a batch of one rank, which shrinks with the graph."""
    return max(1, min(round(max(cfg.least_batch_size, cfg.batch_size * case.scale)), int(case.graph.train_mask.sum())))


ID_BYTES = 8
"""The libraries that the paper uses store the id of a node in so many bytes."""


@functools.cache
def row_bytes(num_columns: int, k: int | None) -> int:
    """Bytes that are kept of a node.

    Args:
        k: of the codec; None: features in float32, as they are.
    """
    row = np.zeros((1, num_columns), np.float32)
    return row.nbytes if k is None else TopK(k).encode(row).nbytes


def k_by_way(cfg: SparsificationKeys, case: GraphCase) -> dict[str, int | None]:
    """The paper's k of the codec by way; None: features as they are."""
    return {FULL: None, SPARSE: cfg.kinds[case.dataset].k}


def row_sizes(cfg: SparsificationKeys, case: GraphCase) -> list[int]:
    """Bytes of a node by way: of its features in float32, and of its code."""
    return [row_bytes(case.full.num_features, k) for k in k_by_way(cfg, case).values()]


def num_arcs(full: GraphSize) -> int:
    """Stored arcs of a graph at full size, which has no self-loops."""
    return full.nnz - full.num_nodes


def num_edges(arcs: float, nodes: float, kind: GraphKind) -> float:
    """How many edges the paper counts."""
    return arcs / kind.arcs_of_an_edge + nodes * kind.counts_loops


def graphs(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """A graph at full size, and what the codec makes of it."""
    kind, full, (row, code) = cfg.kinds[case.dataset], case.full, row_sizes(cfg, case)
    nodes, arcs = case.graph.num_nodes / case.scale, case.graph.num_edges / case.scale
    counted = cells({"nodes": nodes, "edges": num_edges(arcs, nodes, kind)})
    derived = cells({"features": full.num_features}, origin="derived") | cells({"ratio": row / code}, "x", "derived")
    gigabytes = {"features in all": full.num_nodes * row / 1e9, "compressed": full.num_nodes * code / 1e9}
    result.add((case.title, f"k={kind.k}"), counted | derived | cells(gigabytes, "GB", "derived"), graph=case.dataset)


def draws_of(cfg: SparsificationKeys, case: GraphCase) -> Draws:
    """The batches of one rank."""
    return Draws(case.graph, np.flatnonzero(case.graph.train_mask), cfg.fanouts, batch_size(cfg, case), cfg.seed)


def shares(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """The share of the features in the data, and in what batches load."""
    full, (row, code) = case.full, row_sizes(cfg, case)
    edges = num_edges(num_arcs(full), full.num_nodes, cfg.kinds[case.dataset])
    batches = draws_of(cfg, case).batches(1)
    read, drawn = np.mean([(len(hops[-1].sources), sum(hop.num_edges for hop in hops)) for hops in batches], 0).tolist()
    directions = {"of the data": edges, "both directions": num_arcs(full)}
    data = {name: _share(full.num_nodes * row, ID_BYTES * ids) for name, ids in directions.items()}
    sizes = {"of loaded bytes": row, "compressed, of loaded bytes": code}
    loaded = {name: _share(read * size, ID_BYTES * drawn) for name, size in sizes.items()}
    result.add((case.title,), cells(data, "%", "derived") | cells(loaded, "%"), graph=case.dataset)


def _share(features: float, others: float) -> float:
    return 100 * features / (features + others)


CACHES = {"degree": CacheByDegree, "presample": CacheByPresampling, "exact": CacheExactly}
EPOCH = 2
"""The epoch whose reads are counted: the rows of an exact cache have changed before it."""


def caches_of(cfg: SparsificationKeys, case: GraphCase) -> Iterator[tuple[float, str, float]]:
    """For each cache: its memory in per cent of the features as they are, its kind, and its megabytes here."""
    for share, name in itertools.product(cfg.cache_shares, cfg.caches):
        yield share, name, share / 100 * case.graph.num_nodes * row_bytes(case.full.num_features, None) / 1e6


def hits(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """Count the hits of each cache, and the bytes that an epoch of the whole graph fetches beside them, with the rows
    that change before it."""
    draws, drawn = draws_of(cfg, case), dict[str, TableRow]()
    reads = {epoch: draws.reads([epoch]) for epoch in range(EPOCH + 1)}
    num_reads, empty = int(reads[EPOCH].sum()), np.empty((case.graph.num_nodes, 0), np.float32)
    host = HostGraph(draws.indptr, case.graph.indices, None, empty, case.graph.labels, draws.train)
    for share, name, megabytes in caches_of(cfg, case):
        counted, label = dict[str, Cell](), f"{share:g} %"
        for way, size in zip(WAYS, row_sizes(cfg, case)):
            accesses = Accesses(host, reads.__getitem__, size)
            before, kept = (CACHES[name](megabytes).rows(accesses, epoch) for epoch in (EPOCH - 1, EPOCH))
            num_hits, num_changed = int(reads[EPOCH][kept].sum()), len(np.setdiff1d(kept, before, assume_unique=True))
            fetched = (num_reads - num_hits + num_changed) * size / case.scale
            paper = published(cfg.paper, "hits", graph=case.dataset, share=share, way=way)
            counted[f"rows, {way}"] = Cell(100 * (len(kept) / case.graph.num_nodes), unit="%")
            counted[f"hits, {way}"] = Cell(100 * (num_hits / max(1, num_reads)), paper, "%")
            counted[f"fetched, {way}"] = Cell(fetched / 1e9, unit="GB")
            drawn.setdefault(label, TableRow((label,), {})).cells[f"{name}, {way}"] = counted[f"hits, {way}"]
        result.add((case.title, label, name), counted)
    result.panels += bars(case.title, "hits, %", drawn.values(), heights=OURS_AND_PAPER)
