"""Hits of a cache of the same bytes, which holds rows of features as they are, or their codes."""

import numpy as np

from fullgnn.reproduce.graphs import Case
from fullgnn.reproduce.result import Bars, Cell, Result, Series, TableRow, number
from fullgnn.reproduce.sparsification.config import Config, cases
from fullgnn.reproduce.sparsification.sizes import Draws, code_bytes
from fullgnn.sampling.caches import Accesses, Cache, CacheByDegree, CacheByPresampling, CacheExactly
from fullgnn.sampling.host_graph import HostGraph

_CLASSES: dict[str, type[Cache]] = {
    "degree": CacheByDegree,
    "presample": CacheByPresampling,
    "exact": CacheExactly,
}
WAYS = ("full", "sparse")
COLUMNS = [f"{what}, {way}" for way in WAYS for what in ("rows", "hits", "fetched")]
EPOCH = 2
"""The epoch whose reads are counted: the rows of an exact cache have changed before it."""


def run(cfg: Config) -> Result:
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
                for way, row_bytes in zip(WAYS, sizes):
                    kept, hits, fetched = _count(one, name, megabytes, row_bytes, draws, known)
                    paper = cfg.published("hits", graph=one.dataset, share=share, way=way)
                    cells[f"rows, {way}"] = Cell(100 * kept, unit="%")
                    cells[f"hits, {way}"] = Cell(100 * hits, paper, "%")
                    cells[f"fetched, {way}"] = Cell(fetched / 1e9, unit="GB")
                own.append(TableRow((one.title, f"{share:g} %", name), cells))
        rows += own
        series = [_series(own, name, way) for name in cfg.caches for way in WAYS]
        panels.append(Bars(one.title, "hits, %", [f"{share:g} %" for share in cfg.cache_shares], series))
    return Result(("graph", "memory of the cache", "cache"), COLUMNS, rows, panels, found, cfg.notes)


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
