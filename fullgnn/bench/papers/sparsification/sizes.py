"""The graphs, the share of their features in all bytes, and hits of a cache of the same bytes, which holds rows of
features as they are, or their codes: counted on the structure alone, without features. And the keys of the targets that
are about bytes and time."""

import functools
import itertools
from dataclasses import dataclass

import numpy as np

from fullgnn.bench.papers.config import NEIGHBOR, Keys, published
from fullgnn.bench.papers.draws import Draws
from fullgnn.bench.papers.graphs import GraphCase, GraphSize, case, full_size
from fullgnn.bench.papers.result import OURS_AND_PAPER, Cell, Result, bars, rows_of
from fullgnn.codecs import Features
from fullgnn.codecs.topk import GROUP, TopK
from fullgnn.errors import ConfigError
from fullgnn.sampling.caches import Accesses, CacheByDegree, CacheByPresampling, CacheExactly, CachePolicy
from fullgnn.sampling.host_graph import HostGraph

FULL, SPARSE = "full", "sparse"
WAYS = (FULL, SPARSE)
"""Features as they are, and as the codec keeps them."""


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


def check(cfg: SparsificationKeys) -> None:
    """Refuse ratios that the codec cannot have.

    Raises:
        ConfigError: one line that names the key.
    """
    for ratio in cfg.ratios:
        if ratio != 1 and (2 * GROUP % ratio or not 4 <= ratio <= 2 * GROUP):
            raise ConfigError(f"ratios has {ratio}: give 1, or powers of two from 4 to {2 * GROUP}, which are 512 / k")


def sparse_cases(cfg: SparsificationKeys, features: bool = True) -> list[GraphCase]:
    """The graphs that ``cfg`` chooses, whose share of training nodes is the real one.

    Args:
        features: see ``graphs.cases``.
    """
    return [case(cfg, name, features, split_of(cfg, name)) for name in cfg.chosen]


def split_of(cfg: SparsificationKeys, name: str) -> list[str]:
    """Overrides of a look-alike with the real share of training nodes."""
    share = cfg.kinds[name].train_nodes / full_size(name).num_nodes
    return [f"dataset.train_fraction={share!r}", f"dataset.val_fraction={min(0.1, 1 - share)!r}"]


def batch_size(cfg: SparsificationKeys, case: GraphCase) -> int:
    """Training nodes of a batch of one rank, which shrinks with the graph."""
    return max(1, min(round(max(cfg.least_batch_size, cfg.batch_size * case.scale)), int(case.graph.train_mask.sum())))


ID_BYTES = 8
"""The libraries that the paper uses store the id of a node in so many bytes."""


@functools.cache
def code_bytes(num_columns: int, k: int) -> int:
    """Bytes that the codec keeps of a node."""
    codec = TopK(k)
    codec.learn(Features(np.zeros((1, num_columns), np.float32), "float32"))
    return codec.encode(np.zeros((1, num_columns), np.float32)).nbytes


def row_sizes(cfg: SparsificationKeys, case: GraphCase) -> tuple[int, int]:
    """Bytes of a row of the features in float32, and of its code."""
    num_columns = case.full.num_features
    return 4 * num_columns, code_bytes(num_columns, cfg.kinds[case.dataset].k)


def num_arcs(full: GraphSize) -> int:
    """Stored arcs of a graph at full size, which has no self-loops."""
    return full.nnz - full.num_nodes


def num_edges(arcs: float, nodes: float, kind: GraphKind) -> float:
    """How many edges the paper counts."""
    return arcs / kind.arcs_of_an_edge + nodes * kind.counts_loops


def graphs(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """A graph at full size, and what the codec makes of it."""
    kind, full = cfg.kinds[case.dataset], case.full
    nodes, arcs = case.graph.num_nodes / case.scale, case.graph.num_edges / case.scale
    row, code = row_sizes(cfg, case)
    cells = {
        "nodes": Cell(nodes),
        "edges": Cell(num_edges(arcs, nodes, kind)),
        "features": Cell(full.num_features, origin="derived"),
        "ratio": Cell(row / code, unit="x", origin="derived"),
        "features in all": Cell(full.num_nodes * row / 1e9, unit="GB", origin="derived"),
        "compressed": Cell(full.num_nodes * code / 1e9, unit="GB", origin="derived"),
    }
    result.add((case.title, f"k={kind.k}"), cells, graph=case.dataset)


def draws_of(cfg: SparsificationKeys, case: GraphCase) -> Draws:
    """The batches of one rank."""
    train = np.flatnonzero(case.graph.train_mask)
    return Draws(case.graph, train, cfg.fanouts, batch_size(cfg, case), cfg.seed)


def shares(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """The share of the features in the data, and in what batches load."""
    full, inputs = case.full, case.full.num_nodes
    row, code = row_sizes(cfg, case)
    edges = num_edges(num_arcs(full), full.num_nodes, cfg.kinds[case.dataset])
    batches = draws_of(cfg, case).batches(1)
    read, drawn = np.mean([(len(hops[-1].sources), sum(hop.num_edges for hop in hops)) for hops in batches], 0).tolist()
    own = {
        "of the data": Cell(_share(inputs * row, ID_BYTES * edges), unit="%", origin="derived"),
        "both directions": Cell(_share(inputs * row, ID_BYTES * num_arcs(full)), unit="%", origin="derived"),
        "of loaded bytes": Cell(_share(read * row, ID_BYTES * drawn), unit="%"),
        "compressed, of loaded bytes": Cell(_share(read * code, ID_BYTES * drawn), unit="%"),
    }
    result.add((case.title,), own, graph=case.dataset)


def _share(features: float, others: float) -> float:
    return 100 * features / (features + others)


_CLASSES: dict[str, type[CachePolicy]] = {
    "degree": CacheByDegree,
    "presample": CacheByPresampling,
    "exact": CacheExactly,
}
EPOCH = 2
"""The epoch whose reads are counted: the rows of an exact cache have changed before it."""


def hits(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """Count the hits of each cache, and the bytes that an epoch fetches beside them."""
    first, draws, sizes = len(result.rows), draws_of(cfg, case), row_sizes(cfg, case)
    reads = {epoch: draws.reads([epoch]) for epoch in range(EPOCH + 1)}
    for share, name in itertools.product(cfg.cache_shares, cfg.caches):
        cells, label = {}, f"{share:g} %"
        megabytes = share / 100 * case.graph.num_nodes * sizes[0] / 1e6
        for way, row_bytes in zip(WAYS, sizes):
            kept, answered, fetched = _count(case, name, megabytes, row_bytes, draws, reads)
            paper = published(cfg.paper, "hits", graph=case.dataset, share=share, way=way)
            cells[f"rows, {way}"] = Cell(100 * kept, unit="%")
            cells[f"hits, {way}"] = Cell(100 * answered, paper, "%")
            cells[f"fetched, {way}"] = Cell(fetched / 1e9, unit="GB")
        result.add((case.title, label, name), cells)
    own = result.rows[first:]
    columns = {
        f"{name}, {way}": {row.labels[1:2]: row.cells[f"hits, {way}"] for row in own if row.labels[2] == name}
        for name, way in itertools.product(cfg.caches, WAYS)
    }
    result.panels += bars(case.title, "hits, %", rows_of(columns), list(columns), OURS_AND_PAPER)


def _count(
    case: GraphCase, name: str, megabytes: float, row_bytes: int, draws: Draws, known: dict[int, np.ndarray]
) -> tuple[float, float, float]:
    """The share of the rows that the cache holds, that of the reads that it answers, and the bytes that an epoch of the
    whole graph fetches, with the rows that change before it.

    Args:
        known: (num_nodes,) how often each epoch reads each row.
    """
    empty = np.empty((draws.num_nodes, 0), np.float32)
    host = HostGraph(draws.indptr, draws.indices, None, empty, case.graph.labels, draws.train)
    accesses = Accesses(host, known.__getitem__, row_bytes)
    chosen = _CLASSES[name](megabytes)  # type: ignore[call-arg]
    before, kept, reads = chosen.rows(accesses, EPOCH - 1), chosen.rows(accesses, EPOCH), known[EPOCH]
    hits = int(reads[kept].sum())
    changed = len(np.setdiff1d(kept, before, assume_unique=True))
    fetched = (int(reads.sum()) - hits + changed) * row_bytes / case.scale
    return len(kept) / draws.num_nodes, hits / max(1, int(reads.sum())), fetched
