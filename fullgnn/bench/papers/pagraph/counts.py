"""What a cache has and what a partition copies, counted on the structure of a graph alone, exactly."""

import time

import numpy as np

from fullgnn.bench.papers.draws import Draws
from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.pagraph.config import NEIGHBOR, Config, batch_size, cached_share, most_inputs
from fullgnn.bench.papers.result import Cell, Curve, Result, numbers, with_label
from fullgnn.sampling.caches import most, num_readers
from fullgnn.sampling.pagraph import CrossFreeParts, cross_partition_free


class Structure(Draws):
    """The structure of a graph, its training nodes, and how often epochs read each row."""

    def __init__(self, cfg: Config, case: Case, fanouts: list[int] | None = None):
        graph = case.graph.symmetrized() if cfg.symmetrize else case.graph
        random = np.random.default_rng(cfg.seed)
        count = max(1, round(cfg.train_fraction * graph.num_nodes))
        train = np.sort(random.choice(graph.num_nodes, count, replace=False))
        super().__init__(graph, train, fanouts or cfg.fanouts, batch_size(cfg, case), cfg.seed)
        self.is_symmetric = graph.is_symmetric

    @property
    def num_readers(self) -> np.ndarray:
        """(num_nodes,) out-degrees."""
        return num_readers(self.indptr, self.indices)

    def readers_in(self, nodes: np.ndarray) -> np.ndarray:
        """(num_nodes,) how many of ``nodes`` read each of them; -1 for other nodes."""
        held = np.zeros(self.num_nodes, bool)
        held[nodes] = True
        return num_readers(self.indptr, self.indices, held)

    def rows(self, share: float) -> int:
        """How many rows are ``share`` per cent of all nodes'."""
        return int(self.num_nodes * share / 100)


def graphs(result: Result, cfg: Config, case: Case) -> None:
    """A graph that stands for the paper's, at full size: what is counted in it, over the scale."""
    nodes, arcs = case.graph.num_nodes / case.scale, case.graph.num_edges / case.scale
    cells = {
        "nodes": Cell(nodes),
        "arcs": Cell(arcs),
        "arcs of a node": Cell(arcs / nodes),
        "features": Cell(case.full.num_features, origin="derived"),
        "classes": Cell(case.full.num_classes, origin="derived"),
    }
    result.add((case.title,), cells, cfg.paper, graph=case.dataset)


def accesses(result: Result, cfg: Config, case: Case) -> None:
    """How often batches of an epoch read the same row."""
    structure = Structure(cfg, case)
    by_epoch = [structure.reads([epoch]) for epoch in range(1, cfg.epochs + 1)]
    often = [(100 * float((reads > 1).mean()), reads.max(), reads.mean()) for reads in by_epoch]
    again, largest, mean = np.mean(often, axis=0).tolist()
    cells = {
        "read again": Cell(again, unit="%"),
        "most often": Cell(largest, unit="times"),
        "reads": Cell(mean, unit="x the nodes"),
    }
    result.add((case.title,), cells, cfg.paper, graph=case.dataset)
    reads = np.sort(by_epoch[0])[::-1]
    x = np.unique(np.geomspace(1, structure.num_nodes, 60).astype(np.int64))
    heights = 100 * np.cumsum(reads)[x - 1] / max(1, reads.sum())
    curve = Curve(case.title, (100 * x / structure.num_nodes).tolist(), heights.tolist())
    result.draw("reads of the rows that are read most often", "rows, %", "reads of an epoch, %", [curve])


def saved(result: Result, cfg: Config, case: Case) -> None:
    """The bytes of an epoch that a rank need not fetch, with the cache that fits the device of the paper."""
    structure, row_bytes = Structure(cfg, case), 4 * case.full.num_features
    share = cached_share(cfg, case, row_bytes, most_inputs(cfg, NEIGHBOR, cfg.fanouts))
    for num_parts in cfg.parts:
        _, reads, rate = _of_parts(cfg, structure, num_parts, int(share * structure.num_nodes))
        all_bytes = float(np.mean([counts.sum() for counts in reads])) / cfg.epochs * row_bytes
        cells = {
            "rows on the device": Cell(100 * share, unit="%", origin="derived"),
            "all reads": Cell(all_bytes / 1e9, unit="GB"),
            "saved": Cell(rate, unit="%"),
        }
        result.add((case.title, f"K={num_parts}"), cells, cfg.paper, graph=case.dataset, parts=num_parts)


def rules(cfg: Config, one: Structure) -> dict[str, tuple[np.ndarray, ...]]:
    """Rule -> (num_nodes,) scores, by which rows stay; those that ask for no draws."""
    return {
        "degree": (one.num_readers,),
        "random": (np.random.default_rng(cfg.seed + 1).permutation(one.num_nodes),),
        "AliGraph": (np.diff(one.indptr) / np.maximum(1, one.num_readers),),
    }


def hits(result: Result, cfg: Config, case: Case) -> None:
    """The share of rows that are on the device when they are read, by the rule that chooses them."""
    structure = Structure(cfg, case)
    reads = structure.reads(range(1, cfg.epochs + 1))
    presampled = structure.reads([0]), structure.num_readers
    chosen = rules(cfg, structure) | {"presample": presampled, "optimal": (reads,)}
    for share in cfg.shares:
        rates = {name: _rate(reads, most(structure.rows(share), *scores)) for name, scores in chosen.items()}
        cells = {name: Cell(rate, unit="%") for name, rate in rates.items()}
        if structure.is_symmetric:
            cells["AliGraph"] = Cell("ties", unit="%")
        result.add((case.title, f"{share:g} % of the rows"), cells)
    own = with_label(result.rows, case.title)
    drawn = [name for name in chosen if name != "AliGraph" or not structure.is_symmetric]
    curves = [Curve(name, list(cfg.shares), numbers(own, name)) for name in drawn]
    result.draw(case.title, "rows on the device, %", "hits, %", curves)


def parts(result: Result, cfg: Config, case: Case) -> None:
    """Copies, balance and hits of PaGraph's parts, and whether one reads what it does not hold."""
    structure = Structure(cfg, case)
    for num_parts in cfg.parts:
        split, reads, rate = _of_parts(cfg, structure, num_parts, structure.rows(cfg.shares[0]))
        outside = sum(int(counts.sum() - counts[split.nodes(part)].sum()) for part, counts in enumerate(reads))
        cells = {
            "copies": Cell(100 * split.redundancy, unit="%"),
            "largest part": Cell(split.imbalance, unit="x the mean"),
            "hits by degree": Cell(rate, unit="%"),
            "reads outside": Cell(outside),
        }
        result.add((case.title, f"K={num_parts}"), cells)
    own, x = with_label(result.rows, case.title), list(map(float, cfg.parts))
    curves = [Curve(f"{case.title}: {name}", x, numbers(own, name)) for name in ("copies", "hits by degree")]
    result.draw("copies and hits", "parts", "%", curves)


def partition_time(result: Result, cfg: Config, case: Case) -> None:
    """Seconds of the partition."""
    tiny = np.array([0, 1, 2]), np.array([1, 0], np.int32), np.array([0, 1])
    cross_partition_free(*tiny, 2, 1)  # compiles
    structure = Structure(cfg, case)
    for num_parts in cfg.parts:
        begin = time.perf_counter()
        split = cross_partition_free(structure.indptr, structure.indices, structure.train, num_parts, len(cfg.fanouts))
        seconds = time.perf_counter() - begin
        cells = {
            "time": Cell(seconds, unit="s"),
            "training nodes a second": Cell(len(structure.train) / seconds),
            "copies": Cell(100 * split.redundancy, unit="%"),
        }
        result.add((case.title, f"K={num_parts}"), cells, cfg.paper, graph=case.dataset)


def _rate(reads: np.ndarray, kept: np.ndarray) -> float:
    """The per cent of ``reads`` that find their row among those that are ``kept``."""
    return float(100 * reads[kept].sum() / max(1, reads.sum()))


def _of_parts(
    cfg: Config, structure: Structure, num_parts: int, room: int
) -> tuple[CrossFreeParts, list[np.ndarray], float]:
    """PaGraph's parts, how often the batches of each read each row, and the hits of a cache in per cent, in the mean.

    Args:
        room: rows of the cache, which are those with the most readers in a part.
    """
    split = cross_partition_free(structure.indptr, structure.indices, structure.train, num_parts, len(cfg.fanouts))
    reads = [_of_part(cfg, structure, split, part) for part in range(num_parts)]
    kept = [most(room, structure.readers_in(split.nodes(part))) for part in range(num_parts)]
    return split, reads, float(np.mean(list(map(_rate, reads, kept))))


def _of_part(cfg: Config, one: Structure, split: CrossFreeParts, part: int) -> np.ndarray:
    """How often the batches of a part read each row; a batch is divided among the parts."""
    own, size = split.train[split.part == part], -(-one.batch_size // split.num_parts)
    return one.reads(range(1, cfg.epochs + 1), own, size)
