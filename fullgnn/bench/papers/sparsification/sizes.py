"""The graphs, the share of their features in all bytes, and hits of a cache of the same bytes, which holds rows of
features as they are, or their codes: counted on the structure alone, without features."""

import numpy as np

from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.draws import Draws
from fullgnn.bench.papers.graphs import Case, GraphSize
from fullgnn.bench.papers.result import OURS_AND_PAPER, Cell, Result, TableRow, bars, rows_of
from fullgnn.bench.papers.sparsification.config import Config, Kind, batch_size
from fullgnn.codecs import Features
from fullgnn.codecs.topk import TopK
from fullgnn.sampling.caches import Accesses, CacheByDegree, CacheByPresampling, CacheExactly, CachePolicy
from fullgnn.sampling.host_graph import HostGraph

ID_BYTES = 8
"""The libraries that the paper uses store the id of a node in so many bytes."""


def code_bytes(num_columns: int, k: int) -> int:
    """Bytes that the codec keeps of a node."""
    codec = TopK(k)
    codec.learn(Features(np.zeros((1, num_columns), np.float32), "float32"))
    return codec.encode(np.zeros((1, num_columns), np.float32)).nbytes


def row_sizes(cfg: Config, case: Case) -> tuple[int, int]:
    """Bytes of a row of the features in float32, and of its code."""
    num_columns = case.full.num_features
    return 4 * num_columns, code_bytes(num_columns, cfg.kinds[case.dataset].k)


def num_arcs(full: GraphSize) -> int:
    """Stored arcs of a graph at full size, which has no self-loops."""
    return full.nnz - full.num_nodes


def num_edges(arcs: float, nodes: float, kind: Kind) -> float:
    """How many edges the paper counts."""
    return arcs / kind.arcs_of_an_edge + nodes * kind.counts_loops


def graphs(result: Result, cfg: Config, case: Case) -> None:
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
    result.add((case.title, f"k={kind.k}"), cells, cfg.paper, graph=case.dataset)


def draws_of(cfg: Config, case: Case) -> Draws:
    """The batches of one rank."""
    train = np.flatnonzero(case.graph.train_mask)
    return Draws(case.graph, train, cfg.fanouts, batch_size(cfg, case), cfg.seed)


def shares(result: Result, cfg: Config, case: Case) -> None:
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
    result.add((case.title,), own, cfg.paper, graph=case.dataset)


def _share(features: float, others: float) -> float:
    return 100 * features / (features + others)


_CLASSES: dict[str, type[CachePolicy]] = {
    "degree": CacheByDegree,
    "presample": CacheByPresampling,
    "exact": CacheExactly,
}
CACHED = ("full", "sparse")
EPOCH = 2
"""The epoch whose reads are counted: the rows of an exact cache have changed before it."""


def hits(result: Result, cfg: Config, case: Case) -> None:
    """Count the hits of each cache, and the bytes that an epoch fetches beside them."""
    own, draws, sizes = [], draws_of(cfg, case), row_sizes(cfg, case)
    known = {epoch: draws.reads([epoch]) for epoch in range(EPOCH + 1)}
    for share in cfg.cache_shares:
        for name in cfg.caches:
            cells = {}
            megabytes = share / 100 * case.graph.num_nodes * sizes[0] / 1e6
            for way, row_bytes in zip(CACHED, sizes):
                kept, hits, fetched = _count(case, name, megabytes, row_bytes, draws, known)
                paper = published(cfg.paper, "hits", graph=case.dataset, share=share, way=way)
                cells[f"rows, {way}"] = Cell(100 * kept, unit="%")
                cells[f"hits, {way}"] = Cell(100 * hits, paper, "%")
                cells[f"fetched, {way}"] = Cell(fetched / 1e9, unit="GB")
            own.append(TableRow((case.title, f"{share:g} %", name), cells))
    result.rows += own
    columns = {
        f"{name}, {way}": {row.labels[1:2]: row.cells[f"hits, {way}"] for row in own if row.labels[2] == name}
        for name in cfg.caches
        for way in CACHED
    }
    result.panels += bars(case.title, "hits, %", rows_of(columns), list(columns), OURS_AND_PAPER)


def _count(
    case: Case, name: str, megabytes: float, row_bytes: int, draws: Draws, known: dict[int, np.ndarray]
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
