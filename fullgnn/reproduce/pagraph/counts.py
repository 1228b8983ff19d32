"""What a cache has and what a partition copies, counted on the structure of a graph alone, exactly."""

import time

import numpy as np

from fullgnn.graph import Graph
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.pagraph.config import NEIGHBOR, Config, batch_size, cached_share, most_inputs
from fullgnn.reproduce.result import Cell, Curve, Curves, Origin, Result, TableRow, number, with_label
from fullgnn.sampling.batches import batch_of, epoch_order, num_batches
from fullgnn.sampling.caches import most, num_readers
from fullgnn.sampling.neighbors import NeighborSampler
from fullgnn.sampling.pagraph import CrossFreeParts, cross_partition_free


class Structure:
    """The structure of a graph, its training nodes, and how often epochs read each row."""

    def __init__(self, cfg: Config, case: Case, fanouts: list[int] | None = None):
        graph: Graph = case.graph.symmetrized() if cfg.symmetrize else case.graph
        self.num_nodes, self.is_symmetric = graph.num_nodes, graph.is_symmetric
        self.indptr, self.indices = graph.indptr.astype(np.int64), graph.indices
        random = np.random.default_rng(cfg.seed)
        count = max(1, round(cfg.train_fraction * graph.num_nodes))
        self.train = np.sort(random.choice(graph.num_nodes, count, replace=False))
        self.batch_size = batch_size(cfg, case)
        self._seed = cfg.seed
        self._sampler = NeighborSampler(self.indptr, self.indices, fanouts or cfg.fanouts, seed=cfg.seed)

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

    def reads(self, epochs: range, train: np.ndarray | None = None, batch_size: int | None = None) -> np.ndarray:
        """(num_nodes,) int64: how many batches of these epochs read each row, of some training nodes, or of all."""
        train, batch_size = self.train if train is None else train, batch_size or self.batch_size
        found = np.zeros(self.num_nodes, np.int64)
        for epoch in epochs:
            order = epoch_order(train, self._seed, epoch)
            for turn in range(num_batches(len(train), batch_size)):
                hops = self._sampler.sample(np.sort(batch_of(order, batch_size, turn)), epoch)
                found[hops[-1].sources] += 1
        return found


GRAPHS = ("nodes", "arcs", "arcs of a node", "features", "classes")


def graphs(cfg: Config) -> Result:
    """The graphs that stand for the paper's, at full size: what is counted in them, over the scale."""
    found, rows = cases(cfg, features=False), []
    for case in found:
        nodes, arcs = case.graph.num_nodes / case.scale, case.graph.num_edges / case.scale
        values = nodes, arcs, arcs / nodes, case.full.num_features, case.full.num_classes
        origins: list[Origin] = ["measured"] * 3 + ["derived"] * 2  # type: ignore[assignment]
        cells = {
            name: Cell(value, cfg.published(name, graph=case.dataset), origin=origin)
            for name, value, origin in zip(GRAPHS, values, origins)
        }
        rows.append(TableRow((case.title,), cells))
    return Result(("graph",), GRAPHS, rows, [], found, cfg.notes)


ACCESSES = ("read again", "most often", "reads")


def accesses(cfg: Config) -> Result:
    """How often batches of an epoch read the same row."""
    found, rows, panels = cases(cfg, features=False), [], []
    for case in found:
        one = Structure(cfg, case)
        often = np.mean([_again(one.reads(range(epoch, epoch + 1))) for epoch in range(1, cfg.epochs + 1)], axis=0)
        units = dict(zip(ACCESSES, ("%", "times", "x the nodes")))
        cells = {
            name: Cell(float(value), cfg.published(name, graph=case.dataset), units[name])
            for name, value in zip(ACCESSES, often)
        }
        rows.append(TableRow((case.title,), cells))
        reads = np.sort(one.reads(range(1, 2)))[::-1]
        x = np.unique(np.geomspace(1, one.num_nodes, 60).astype(np.int64))
        heights = 100 * np.cumsum(reads)[x - 1] / max(1, reads.sum())
        panels.append(Curve(case.title, (100 * x / one.num_nodes).tolist(), heights.tolist()))
    curves = [Curves("reads of the rows that are read most often", "rows, %", "reads of an epoch, %", panels)]
    return Result(("graph",), ACCESSES, rows, curves, found, cfg.notes)


def _again(reads: np.ndarray) -> tuple[float, float, float]:
    """The per cent of the rows that more than one batch reads, the most reads of a row, and reads over rows."""
    return 100 * float((reads > 1).mean()), float(reads.max()), float(reads.mean())


SAVED = ("rows on the device", "all reads", "saved")


def saved(cfg: Config) -> Result:
    """The bytes of an epoch that a rank need not fetch, with the cache that fits the device of the paper."""
    found, rows = cases(cfg, features=False), []
    for case in found:
        one, row_bytes = Structure(cfg, case), 4 * case.full.num_features
        share = cached_share(cfg, case, row_bytes, most_inputs(cfg, NEIGHBOR, cfg.fanouts))
        for num_parts in cfg.parts:
            _, reads, rate = _of_parts(cfg, one, num_parts, int(share * one.num_nodes))
            all_bytes = float(np.mean([counts.sum() for counts in reads])) / cfg.epochs * row_bytes
            cells = {
                "rows on the device": Cell(100 * share, unit="%", origin="derived"),
                "all reads": Cell(all_bytes / 1e9, unit="GB"),
                "saved": Cell(rate, cfg.published("saved", graph=case.dataset, parts=num_parts), "%"),
            }
            rows.append(TableRow((case.title, f"K={num_parts}"), cells))
    return Result(("graph", "parts"), SAVED, rows, [], found, cfg.notes)


RULES = ("degree", "random", "AliGraph", "presample", "optimal")


def rules(cfg: Config, one: Structure) -> dict[str, tuple[np.ndarray, ...]]:
    """Rule -> (num_nodes,) scores, by which rows stay; those that ask for no draws."""
    return {
        "degree": (one.num_readers,),
        "random": (np.random.default_rng(cfg.seed + 1).permutation(one.num_nodes),),
        "AliGraph": (np.diff(one.indptr) / np.maximum(1, one.num_readers),),
    }


def hits(cfg: Config) -> Result:
    """The share of rows that are on the device when they are read, by the rule that chooses them."""
    found, rows, panels = cases(cfg, features=False), [], []
    for case in found:
        one = Structure(cfg, case)
        reads = one.reads(range(1, cfg.epochs + 1))
        chosen = rules(cfg, one) | {"presample": (one.reads(range(1)), one.num_readers), "optimal": (reads,)}
        of_case = []
        for share in cfg.shares:
            rates = {name: _rate(reads, most(one.rows(share), *scores)) for name, scores in chosen.items()}
            cells = {name: Cell(rate, unit="%") for name, rate in rates.items()}
            if one.is_symmetric:
                cells["AliGraph"] = Cell("ties", unit="%")
            of_case.append(TableRow((case.title, f"{share:g} % of the rows"), cells))
        rows += of_case
        curves = [
            Curve(name, list(cfg.shares), _heights(of_case, name))
            for name in RULES
            if name != "AliGraph" or not one.is_symmetric
        ]
        panels.append(Curves(case.title, "rows on the device, %", "hits, %", curves))
    return Result(("graph", "cache"), RULES, rows, panels, found, cfg.notes)


PARTS = ("copies", "largest part", "hits by degree", "reads outside")


def parts(cfg: Config) -> Result:
    """Copies, balance and hits of PaGraph's parts, and whether one reads what it does not hold."""
    found, rows = cases(cfg, features=False), []
    for case in found:
        one = Structure(cfg, case)
        room = one.rows(cfg.shares[0])
        for num_parts in cfg.parts:
            split, reads, rate = _of_parts(cfg, one, num_parts, room)
            outside = sum(int(counts.sum() - counts[split.nodes(part)].sum()) for part, counts in enumerate(reads))
            values = {
                "copies": Cell(100 * split.redundancy, unit="%"),
                "largest part": Cell(split.imbalance, unit="x the mean"),
                "hits by degree": Cell(rate, unit="%"),
                "reads outside": Cell(outside),
            }
            rows.append(TableRow((case.title, f"K={num_parts}"), values))
    curves = [
        Curve(f"{case.title}: {name}", list(map(float, cfg.parts)), _heights(with_label(rows, case.title), name))
        for case in found
        for name in ("copies", "hits by degree")
    ]
    return Result(("graph", "parts"), PARTS, rows, [Curves("copies and hits", "parts", "%", curves)], found, cfg.notes)


def partition_time(cfg: Config) -> Result:
    """Seconds of the partition."""
    found, rows = cases(cfg, features=False), []
    tiny = np.array([0, 1, 2]), np.array([1, 0], np.int32), np.array([0, 1])
    cross_partition_free(*tiny, 2, 1)  # compiles
    for case in found:
        one = Structure(cfg, case)
        for num_parts in cfg.parts:
            begin = time.perf_counter()
            split = cross_partition_free(one.indptr, one.indices, one.train, num_parts, len(cfg.fanouts))
            seconds = time.perf_counter() - begin
            cells = {
                "time": Cell(seconds, cfg.published("time", graph=case.dataset), "s"),
                "training nodes a second": Cell(len(one.train) / seconds),
                "copies": Cell(100 * split.redundancy, unit="%"),
            }
            rows.append(TableRow((case.title, f"K={num_parts}"), cells))
    return Result(("graph", "parts"), ("time", "training nodes a second", "copies"), rows, [], found, cfg.notes)


def _heights(rows: list[TableRow], column: str) -> list[float]:
    return [value for row in rows if (value := number(row.cells[column].ours)) is not None]


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
