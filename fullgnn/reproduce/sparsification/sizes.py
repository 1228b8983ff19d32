"""The graphs, and the share of their features in all bytes: counted on the structure alone, without features."""

from functools import cached_property

import numpy as np

from fullgnn.codecs import Features
from fullgnn.codecs.topk import TopK
from fullgnn.reproduce.graphs import Case, GraphSize
from fullgnn.reproduce.result import Bars, Cell, Result, Series, TableRow, number
from fullgnn.reproduce.sparsification.config import Config, Kind, batch_size, cases
from fullgnn.sampling.batches import batch_of, epoch_order, num_batches
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
        self.grows = cfg.batch_size / self.batch_size
        """How many times as large a batch is at full size."""
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
    series = [
        Series(name, [number(row.cells[name].ours) for row in rows], [number(row.cells[name].paper) for row in rows])
        for name in SHARES
    ]
    panels = [Bars("share of the features", "% of bytes", [row.labels[0] for row in rows], series)]
    return Result(("graph",), SHARES, rows, panels, found, cfg.notes)


def _share(features: float, others: float) -> float:
    return 100 * features / (features + others)
