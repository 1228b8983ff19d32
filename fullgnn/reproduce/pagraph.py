"""The targets of Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching" (SoCC 2020).

Each target is a row of ``CASES``: a function that fills the table. What a cache has and what a partition copies is
counted on the structure of a graph alone, exactly.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from omegaconf import MISSING

from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.result import Cell, Curve, Curves, Result, TableRow, number, with_label
from fullgnn.sampling.batches import batch_of, epoch_order, num_batches
from fullgnn.sampling.caches import most
from fullgnn.sampling.neighbors import NeighborSampler
from fullgnn.sampling.pagraph import CrossFreeParts, cross_partition_free


@dataclass
class Config(TargetConfig):
    case: str = MISSING
    fanouts: list[int] = field(default_factory=list)
    train_fraction: float = MISSING
    batch_size: int = MISSING
    batch_sizes: dict[str, int] = field(default_factory=dict)
    epochs: int = MISSING
    symmetrize: bool = MISSING
    shares: list[float] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    paper: dict[str, Any] = field(default_factory=dict)


def run(cfg: Config) -> Result:
    """Run the case of ``cfg``.

    Raises:
        ConfigError: there is no such case, or a number is out of range.
    """
    if cfg.case not in CASES:
        raise ConfigError(f"case={cfg.case} is not known: choose one of {', '.join(CASES)}")
    for key, values, least, largest in (("shares", cfg.shares, 0, 100), ("parts", cfg.parts, 1, 1 << 16)):
        if not values:
            raise ConfigError(f"{key}=[] leaves nothing to count: give at least one number")
        for value in values:
            if not least <= value <= largest:
                raise ConfigError(f"{key}={value:g} is out of range: give {least} to {largest}")
    if not 0 < cfg.train_fraction <= 1:
        raise ConfigError(f"train_fraction={cfg.train_fraction:g} is out of range: give more than 0 and at most 1")
    return CASES[cfg.case](cfg)


class Structure:
    """The structure of a graph, its training nodes, and how often epochs read each row."""

    def __init__(self, cfg: Config, case: Case):
        graph: Graph = case.graph.symmetrized() if cfg.symmetrize else case.graph
        self.num_nodes, self.is_symmetric = graph.num_nodes, graph.is_symmetric
        self.indptr, self.indices = graph.indptr.astype(np.int64), graph.indices
        random = np.random.default_rng(cfg.seed)
        count = max(1, round(cfg.train_fraction * graph.num_nodes))
        self.train = np.sort(random.choice(graph.num_nodes, count, replace=False))
        self.batch_size = cfg.batch_sizes.get(case.dataset) or max(1, round(cfg.batch_size * case.scale))
        self._seed, self._sampler = cfg.seed, NeighborSampler(self.indptr, self.indices, cfg.fanouts, seed=cfg.seed)

    @property
    def num_readers(self) -> np.ndarray:
        """(num_nodes,) out-degrees."""
        return np.bincount(self.indices, minlength=self.num_nodes)

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


RULES = ("degree", "random", "AliGraph", "presample", "optimal")


def hits(cfg: Config) -> Result:
    """The share of rows that are on the device when they are read, by the rule that chooses them."""
    found, rows, panels = cases(cfg, features=False), [], []
    for case in found:
        one = Structure(cfg, case)
        reads = one.reads(range(1, cfg.epochs + 1))
        chosen = {
            "degree": (one.num_readers,),
            "random": (np.random.default_rng(cfg.seed + 1).permutation(one.num_nodes),),
            "AliGraph": (np.diff(one.indptr) / np.maximum(1, one.num_readers),),
            "presample": (one.reads(range(1)), one.num_readers),
            "optimal": (reads,),
        }
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
        kept = most(one.rows(cfg.shares[0]), one.num_readers)
        for num_parts in cfg.parts:
            split = cross_partition_free(one.indptr, one.indices, one.train, num_parts, len(cfg.fanouts))
            reads = [_of_part(cfg, one, split, part) for part in range(num_parts)]
            outside = sum(int(counts.sum() - counts[split.nodes(part)].sum()) for part, counts in enumerate(reads))
            values = {
                "copies": Cell(100 * split.redundancy, unit="%"),
                "largest part": Cell(split.imbalance, unit="x the mean"),
                "hits by degree": Cell(float(np.mean([_rate(counts, kept) for counts in reads])), unit="%"),
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
                "time": Cell(seconds, cfg.paper.get(case.dataset), "s"),
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


def _of_part(cfg: Config, one: Structure, split: CrossFreeParts, part: int) -> np.ndarray:
    """How often the batches of a part read each row; a batch is divided among the parts."""
    own, size = split.train[split.part == part], -(-one.batch_size // split.num_parts)
    return one.reads(range(1, cfg.epochs + 1), own, size)


CASES: dict[str, Callable[[Config], Result]] = {"hits": hits, "parts": parts, "partition_time": partition_time}
"""What the targets of this paper count or measure, by their key ``case``."""
