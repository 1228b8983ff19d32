"""The graphs, the share of their features in all bytes, and hits of a cache of the same bytes, which holds rows of
features as they are, or their codes: counted on the structure alone, without features."""

from functools import cached_property

import numpy as np

from fullgnn.codecs import Features
from fullgnn.codecs.topk import TopK
from fullgnn.reproduce.graphs import Case, GraphSize
from fullgnn.reproduce.result import Bars, Cell, Result, Series, TableRow, bars, number
from fullgnn.reproduce.sparsification.config import Config, Kind, batch_size, cases
from fullgnn.sampling.batches import batch_of, epoch_order, num_batches
from fullgnn.sampling.caches import Accesses, Cache, CacheByDegree, CacheByPresampling, CacheExactly
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.neighbors import NeighborSampler

ID_BYTES = 8
"""The libraries that the paper uses store the id of a node in so many bytes."""


def code_bytes(num_columns: int, k: int) -> int:
    """Bytes that the codec keeps of a node."""
    codec = TopK(k)
    codec.learn(Features(np.zeros((1, num_columns), np.float32), "float32"))
    return codec.encode(np.zeros((1, num_columns), np.float32)).nbytes


def num_arcs(full: GraphSize) -> int:
    """Stored arcs of a graph at full size, which has no self-loops."""
    return full.nnz - full.num_nodes


def num_edges(arcs: float, nodes: float, kind: Kind) -> float:
    """How many edges the paper counts."""
    return arcs / kind.arcs_of_an_edge + nodes * kind.counts_loops


GRAPHS = ("nodes", "edges", "features", "ratio", "features in all", "compressed")


def graphs(cfg: Config) -> Result:
    """The graphs at full size, and what the codec makes of them."""
    found, rows = cases(cfg, features=False), []
    for one in found:
        kind, full = cfg.kinds[one.dataset], one.full
        nodes, arcs = one.graph.num_nodes / one.scale, one.graph.num_edges / one.scale
        row, code = 4 * full.num_features, code_bytes(full.num_features, kind.k)
        paper = {name: cfg.published(name, graph=one.dataset) for name in GRAPHS}
        cells = {
            "nodes": Cell(nodes, paper["nodes"]),
            "edges": Cell(num_edges(arcs, nodes, kind), paper["edges"]),
            "features": Cell(full.num_features, paper["features"], origin="derived"),
            "ratio": Cell(row / code, paper["ratio"], "x", "derived"),
            "features in all": Cell(full.num_nodes * row / 1e9, unit="GB", origin="derived"),
            "compressed": Cell(full.num_nodes * code / 1e9, unit="GB", origin="derived"),
        }
        rows.append(TableRow((one.title, f"k={kind.k}"), cells))
    return Result(("graph", "codec"), GRAPHS, rows, [], found, cfg.notes)


class Draws:
    """What the batches of an epoch read, counted exactly."""

    def __init__(self, cfg: Config, one: Case):
        graph = one.graph
        self.indptr, self.indices = graph.indptr.astype(np.int64), graph.indices
        self.num_nodes, self.train = graph.num_nodes, np.flatnonzero(graph.train_mask)
        self.batch_size, self._seed = batch_size(cfg, one), cfg.seed
        self._sampler = NeighborSampler(self.indptr, self.indices, cfg.fanouts, seed=cfg.seed)

    def epoch(self, epoch: int) -> tuple[np.ndarray, int]:
        """(num_nodes,) int64, how many batches of ``epoch`` read the row of each node; and how many edges they draw."""
        reads, edges, order = np.zeros(self.num_nodes, np.int64), 0, epoch_order(self.train, self._seed, epoch)
        for turn in range(self.num_batches):
            hops = self._sampler.sample(np.sort(batch_of(order, self.batch_size, turn)), epoch)
            reads[hops[-1].sources] += 1
            edges += sum(hop.num_edges for hop in hops)
        return reads, edges

    @property
    def num_batches(self) -> int:
        return num_batches(len(self.train), self.batch_size)

    @cached_property
    def of_a_batch(self) -> tuple[float, float]:
        """Mean rows that a batch of the first epoch reads, and edges that it draws."""
        reads, edges = self.epoch(1)
        return float(reads.sum()) / self.num_batches, edges / self.num_batches


SHARES = ("of the data", "both directions", "of loaded bytes", "compressed, of loaded bytes")


def shares(cfg: Config) -> Result:
    """The share of the features in the data, and in what batches load."""
    found, rows = cases(cfg, features=False), []
    for one in found:
        kind, full = cfg.kinds[one.dataset], one.full
        row, code = 4 * full.num_features, code_bytes(full.num_features, kind.k)
        edges, inputs = num_edges(num_arcs(full), full.num_nodes, kind), full.num_nodes
        read, drawn = Draws(cfg, one).of_a_batch
        values = {
            "of the data": (_share(inputs * row, ID_BYTES * edges), "derived"),
            "both directions": (_share(inputs * row, ID_BYTES * num_arcs(full)), "derived"),
            "of loaded bytes": (_share(read * row, ID_BYTES * drawn), "measured"),
            "compressed, of loaded bytes": (_share(read * code, ID_BYTES * drawn), "measured"),
        }
        cells = {
            name: Cell(value, cfg.published(name, graph=one.dataset), "%", origin)  # type: ignore[arg-type]
            for name, (value, origin) in values.items()
        }
        rows.append(TableRow((one.title,), cells))
    panels = bars("share of the features", "% of bytes", rows, SHARES, ("ours", "paper"))
    return Result(("graph",), SHARES, rows, panels, found, cfg.notes)


def _share(features: float, others: float) -> float:
    return 100 * features / (features + others)


_CLASSES: dict[str, type[Cache]] = {
    "degree": CacheByDegree,
    "presample": CacheByPresampling,
    "exact": CacheExactly,
}
CACHED = ("full", "sparse")
HITS = [f"{what}, {way}" for way in CACHED for what in ("rows", "hits", "fetched")]
EPOCH = 2
"""The epoch whose reads are counted: the rows of an exact cache have changed before it."""


def hits(cfg: Config) -> Result:
    """Count the hits of each cache, and the bytes that an epoch fetches beside them."""
    found, rows, panels = cases(cfg, features=False), [], []
    for one in found:
        own, draws = [], Draws(cfg, one)
        sizes = 4 * one.full.num_features, code_bytes(one.full.num_features, cfg.kinds[one.dataset].k)
        known = {epoch: draws.epoch(epoch)[0] for epoch in range(EPOCH + 1)}
        for share in cfg.cache_shares:
            for name in cfg.caches:
                cells = {}
                megabytes = share / 100 * one.graph.num_nodes * sizes[0] / 1e6
                for way, row_bytes in zip(CACHED, sizes):
                    kept, hits, fetched = _count(one, name, megabytes, row_bytes, draws, known)
                    paper = cfg.published("hits", graph=one.dataset, share=share, way=way)
                    cells[f"rows, {way}"] = Cell(100 * kept, unit="%")
                    cells[f"hits, {way}"] = Cell(100 * hits, paper, "%")
                    cells[f"fetched, {way}"] = Cell(fetched / 1e9, unit="GB")
                own.append(TableRow((one.title, f"{share:g} %", name), cells))
        rows += own
        series = [_series(own, name, way) for name in cfg.caches for way in CACHED]
        panels.append(Bars(one.title, "hits, %", [f"{share:g} %" for share in cfg.cache_shares], series))
    return Result(("graph", "memory of the cache", "cache"), HITS, rows, panels, found, cfg.notes)


def _series(rows: list[TableRow], name: str, way: str) -> Series:
    """The hits of a cache by its memory."""
    cells = [row.cells[f"hits, {way}"] for row in rows if row.labels[2] == name]
    return Series(f"{name}, {way}", [number(cell.ours) for cell in cells], [number(cell.paper) for cell in cells])


def _count(
    one: Case, name: str, megabytes: float, row_bytes: int, draws: Draws, known: dict[int, np.ndarray]
) -> tuple[float, float, float]:
    """The share of the rows that the cache holds, that of the reads that it answers, and the bytes that an epoch of the
    whole graph fetches, with the rows that change before it.

    Args:
        known: (num_nodes,) how often each epoch reads each row.
    """
    empty = np.empty((draws.num_nodes, 0), np.float32)
    host = HostGraph(draws.indptr, draws.indices, None, empty, one.graph.labels, draws.train)
    accesses = Accesses(host, known.__getitem__, row_bytes)
    chosen = _CLASSES[name](megabytes)  # type: ignore[call-arg]
    before, kept, reads = chosen.rows(accesses, EPOCH - 1), chosen.rows(accesses, EPOCH), known[EPOCH]
    hits = int(reads[kept].sum())
    changed = len(np.setdiff1d(kept, before, assume_unique=True))
    fetched = (int(reads.sum()) - hits + changed) * row_bytes / one.scale
    return len(kept) / draws.num_nodes, hits / max(1, int(reads.sum())), fetched
