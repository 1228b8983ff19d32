"""What a cache has and what a partition copies, counted on the structure of a graph alone, exactly; and the keys of all
targets of PaGraph."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from fullgnn.bench.papers.batches import Draws
from fullgnn.bench.papers.config import LAYER, NEIGHBOR, Keys
from fullgnn.bench.papers.graphs import GraphCase
from fullgnn.bench.papers.result import Cell, Curve, Result, Value, cells, numbers, with_label
from fullgnn.errors import ConfigError
from fullgnn.sampling.caches import most, num_readers
from fullgnn.sampling.pagraph import CrossFreeParts, cross_partition_free


@dataclass
class PagraphModel:
    """A model of the paper."""

    title: str
    keys: list[str]
    """Overrides that choose it."""
    precomputed: list[str]
    """Overrides, behind those, where its first product is precomputed."""
    products: int
    """How many of X and A X a precomputed first layer reads."""


@dataclass
class PagraphKeys(Keys):
    """The keys of ``conf/reproduce_pagraph.yaml``, which explains them."""

    epochs: int
    models: dict[str, PagraphModel]
    batch_sizes: dict[str, int]
    symmetrize: bool
    shares: list[float]
    parts: list[int]
    samplers: list[str]
    all_fanouts: list[list[int]]
    layer_sizes: list[int]
    chosen_ways: list[str]
    device_gigabytes: float
    reserve_gigabytes: float
    data: list[str]


def check(cfg: PagraphKeys) -> None:
    """Refuse draws that no model can have.

    Raises:
        ConfigError: one line that names the key.
    """
    for fanouts in cfg.all_fanouts:
        if len(fanouts) < 2 or min(fanouts) < 1:
            raise ConfigError(f"all_fanouts has {list(fanouts)}: give two numbers or more, each at least 1")
    if len(cfg.layer_sizes) < 2:
        raise ConfigError(f"layer_sizes={list(cfg.layer_sizes)} is too short: give two numbers or more")


@dataclass(frozen=True)
class PagraphJob:
    """What a target trains on a graph by batches: a row of its table."""

    cfg: PagraphKeys
    case: GraphCase
    model: str
    ranks: int
    sampler: str
    draws: tuple[int, ...]  # fan-outs, or sizes of layers, at full size, from the targets outwards

    @property
    def name(self) -> str:
        """What the rows of a table call the sampler and the ranks."""
        draws = "layer-wise" if self.sampler == LAYER else "-".join(map(str, self.draws))
        return draws if self.ranks == 1 else f"{draws}, p={self.ranks}"

    @property
    def labels(self) -> tuple[str, str, str]:
        """The cells that name a row of a table: the graph, the model and the draws."""
        return self.case.title, self.cfg.models[self.model].title, self.name

    @property
    def paper_names(self) -> dict[str, Any]:
        """What the paper's numbers name a row by."""
        about = {"graph": self.case.dataset, "model": self.model, "sampler": self.sampler, "ranks": self.ranks}
        return about | {"draws": self.draws[-1]}

    def draws_of(self, precomputed: bool) -> list[int]:
        """What is drawn of each layer: of all but the last, the outermost one, where its product is ``precomputed``."""
        return list(self.draws[:-1] if precomputed else self.draws)

    def row_bytes(self, precomputed: bool) -> int:
        """Bytes of the features of a node at full size."""
        return 4 * self.case.full.num_features * (self.cfg.models[self.model].products if precomputed else 1)

    def most_inputs(self, precomputed: bool = False) -> int:
        """Inputs of a batch of one rank at full size, if no two of its nodes are the same."""
        draws = self.draws_of(precomputed)
        if self.sampler == LAYER:
            return self.cfg.batch_size + sum(draws)
        return self.cfg.batch_size * math.prod(1 + fanout for fanout in draws)

    def cached_share(self, precomputed: bool = False) -> float:
        """The share of all rows that fits the paper's device: its memory without a batch's features and the reserve."""
        row_bytes, gigabytes = self.row_bytes(precomputed), self.cfg.device_gigabytes - self.cfg.reserve_gigabytes
        free = 1e9 * gigabytes - self.most_inputs(precomputed) * row_bytes
        return min(1.0, max(0.0, free / (self.case.full.num_nodes * row_bytes)))


def sampled_jobs(cfg: PagraphKeys, case: GraphCase) -> Iterator[PagraphJob]:
    """All that a target trains on a graph."""
    for model, sampler in product(cfg.chosen_models, cfg.samplers):
        for draws, ranks in product([cfg.layer_sizes] if sampler == LAYER else cfg.all_fanouts, cfg.ranks):
            yield PagraphJob(cfg, case, model, ranks, sampler, tuple(draws))


def batch_size(cfg: PagraphKeys, case: GraphCase) -> int:
    """Training nodes of a batch of one rank, which shrinks with the graph."""
    return cfg.batch_sizes.get(case.dataset) or max(1, round(cfg.batch_size * case.scale))


class PagraphDraws(Draws):
    """The draws on a graph of which a part trains, and its partition."""

    @classmethod
    def of(cls, cfg: PagraphKeys, case: GraphCase, fanouts: Sequence[int] = ()) -> "PagraphDraws":
        """Choose the training nodes at random; ``fanouts``: empty: those of ``cfg``."""
        graph = case.graph.symmetrized() if cfg.symmetrize else case.graph
        random = np.random.default_rng(cfg.seed)
        count = max(1, round(cfg.train_fraction * graph.num_nodes))
        train = np.sort(random.choice(graph.num_nodes, count, replace=False))
        return cls(graph, train, list(fanouts or cfg.fanouts), batch_size(cfg, case), cfg.seed)

    def num_readers(self, nodes: np.ndarray | None = None) -> np.ndarray:
        """(num_nodes,) out-degrees; or how many of ``nodes`` read each of them, and -1 for other nodes."""
        held = None if nodes is None else np.isin(np.arange(self.graph.num_nodes), nodes)
        return num_readers(self.indptr, self.graph.indices, held)

    def split(self, num_parts: int) -> CrossFreeParts:
        """PaGraph's parts."""
        return cross_partition_free(self.indptr, self.graph.indices, self.train, num_parts, len(self.fanouts))

    def rows(self, share: float) -> int:
        """How many rows are ``share`` per cent of all nodes'."""
        return int(self.graph.num_nodes * share / 100)


def graphs(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """A graph that stands for the paper's, at full size: what is counted in it, over the scale."""
    nodes, arcs = case.graph.num_nodes / case.scale, case.graph.num_edges / case.scale
    counted = cells({"nodes": nodes, "arcs": arcs, "arcs of a node": arcs / nodes})
    derived = cells({"features": case.full.num_features, "classes": case.full.num_classes}, origin="derived")
    result.add((case.title,), counted | derived, graph=case.dataset)


def accesses(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """How often batches of an epoch read the same row."""
    structure = PagraphDraws.of(cfg, case)
    by_epoch = [structure.reads([epoch]) for epoch in range(1, cfg.epochs + 1)]
    often = [(100 * float((reads > 1).mean()), reads.max(), reads.mean()) for reads in by_epoch]
    again, largest, mean = np.mean(often, axis=0).tolist()
    result.add((case.title,), {"read again": again, "most often": largest, "reads": mean}, graph=case.dataset)
    reads = np.sort(by_epoch[0])[::-1]
    x = np.unique(np.geomspace(1, structure.graph.num_nodes, 60).astype(np.int64))
    heights = 100 * np.cumsum(reads)[x - 1] / max(1, reads.sum())
    curve = Curve(case.title, (100 * x / structure.graph.num_nodes).tolist(), heights.tolist())
    result.draw("reads of the rows that are read most often", "rows, %", "reads of an epoch, %", [curve])


def saved(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """The bytes of an epoch that a rank need not fetch, with the cache that fits the device of the paper."""
    structure, row_bytes = PagraphDraws.of(cfg, case), 4 * case.full.num_features
    share = PagraphJob(cfg, case, "", 1, NEIGHBOR, tuple(cfg.fanouts)).cached_share()
    for num_parts in cfg.parts:
        _, reads, rate = _of_parts(cfg, structure, num_parts, int(share * structure.graph.num_nodes))
        all_bytes = float(np.mean([counts.sum() for counts in reads])) / cfg.epochs * row_bytes
        row: dict[str, Cell | Value] = {"rows on the device": Cell(100 * share, unit="%", origin="derived")}
        row |= {"all reads": all_bytes / 1e9, "saved": rate}
        result.add((case.title, f"K={num_parts}"), row, graph=case.dataset, parts=num_parts)


def rules(cfg: PagraphKeys, structure: PagraphDraws) -> dict[str, tuple[np.ndarray, ...]]:
    """Rule -> (num_nodes,) scores, by which rows stay; those that ask for no draws."""
    return {
        "degree": (structure.num_readers(),),
        "random": (np.random.default_rng(cfg.seed + 1).permutation(structure.graph.num_nodes),),
        "AliGraph": (np.diff(structure.indptr) / np.maximum(1, structure.num_readers()),),
    }


def hits(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """The share of rows that are on the device when they are read, by the rule that chooses them."""
    structure = PagraphDraws.of(cfg, case)
    reads = structure.reads(range(1, cfg.epochs + 1))
    presampled = structure.reads([0]), structure.num_readers()
    chosen = rules(cfg, structure) | {"presample": presampled, "optimal": (reads,)}
    for share in cfg.shares:
        rates = {name: _rate(reads, most(structure.rows(share), *scores)) for name, scores in chosen.items()}
        ties = {"AliGraph": "ties"} if structure.graph.is_symmetric else {}
        result.add((case.title, f"{share:g} % of the rows"), cells({**rates, **ties}, "%"))
    own = with_label(result.rows, case.title)
    drawn = [name for name in chosen if name != "AliGraph" or not structure.graph.is_symmetric]
    curves = [Curve(name, list(cfg.shares), numbers(own, name)) for name in drawn]
    result.draw(case.title, "rows on the device, %", "hits, %", curves)


def parts(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """Copies, balance and hits of PaGraph's parts, and whether one reads what it does not hold."""
    structure = PagraphDraws.of(cfg, case)
    for num_parts in cfg.parts:
        split, reads, rate = _of_parts(cfg, structure, num_parts, structure.rows(cfg.shares[0]))
        outside = sum(int(counts.sum() - counts[split.nodes(part)].sum()) for part, counts in enumerate(reads))
        balance = {"copies": 100 * split.redundancy, "largest part": split.imbalance}
        result.add((case.title, f"K={num_parts}"), balance | {"hits by degree": rate, "reads outside": outside})
    own, x = with_label(result.rows, case.title), list(map(float, cfg.parts))
    curves = [Curve(f"{case.title}: {name}", x, numbers(own, name)) for name in ("copies", "hits by degree")]
    result.draw("copies and hits", "parts", "%", curves)


def partition_time(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """Seconds of the partition."""
    tiny = np.array([0, 1, 2]), np.array([1, 0], np.int32), np.array([0, 1])
    cross_partition_free(*tiny, 2, 1)  # compiles
    structure = PagraphDraws.of(cfg, case)
    for num_parts in cfg.parts:
        begin = time.perf_counter()
        split = structure.split(num_parts)
        seconds = time.perf_counter() - begin
        rate, copies = len(structure.train) / seconds, 100 * split.redundancy
        row = {"time": seconds, "training nodes a second": rate, "copies": copies}
        result.add((case.title, f"K={num_parts}"), row, graph=case.dataset)


def _rate(reads: np.ndarray, kept: np.ndarray) -> float:
    """The per cent of ``reads`` that find their row among those that are ``kept``."""
    return float(100 * reads[kept].sum() / max(1, reads.sum()))


def _of_parts(
    cfg: PagraphKeys, structure: PagraphDraws, num_parts: int, room: int
) -> tuple[CrossFreeParts, list[np.ndarray], float]:
    """PaGraph's parts, how often the batches of each read each row, and the hits of a cache in per cent, in the mean.

    Args:
        room: rows of the cache, which are those with the most readers in a part.
    """
    split = structure.split(num_parts)
    reads = [_of_part(cfg, structure, split, part) for part in range(num_parts)]
    kept = [most(room, structure.num_readers(split.nodes(part))) for part in range(num_parts)]
    return split, reads, float(np.mean(list(map(_rate, reads, kept))))


def _of_part(cfg: PagraphKeys, structure: PagraphDraws, split: CrossFreeParts, part: int) -> np.ndarray:
    """How often the batches of a part read each row; a batch is divided among the parts."""
    own, size = split.train[split.part == part], -(-structure.batch_size // split.num_parts)
    return replace(structure, train=own, batch_size=size).reads(range(1, cfg.epochs + 1))
