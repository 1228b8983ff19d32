"""Figure 5: what an order of the whole graph does to the blocks of 1.5D, and what one inside each block row does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from omegaconf import MISSING
from scipy.sparse import csr_array

from fullgnn.bench.harness import interleaved
from fullgnn.bench.papers import jobs
from fullgnn.bench.papers.config import JobShape, TargetConfig
from fullgnn.bench.papers.graphs import cases
from fullgnn.bench.papers.products import kernel_label, product
from fullgnn.bench.papers.result import OURS_AND_PAPER, Cell, Labels, Result, TableRow, bars, over, rows_of, with_label
from fullgnn.partition import Partition
from fullgnn.partition.partition import imbalance
from fullgnn.prepare.statistics import whole_matrix

ORIGINAL, WHOLE, BLOCKWISE = "original", "whole METIS", "blockwise METIS"
SHARE, BALANCE, SLOWEST, FASTEST = "share of the non-zeros", "largest / mean", "slowest", "fastest"

Times = dict[str, list[float]]
"""Milliseconds of each block, by order."""


@dataclass
class Config(TargetConfig):
    """Keys of ``conf/experiment/reproduce/fig5.yaml``."""

    layout: JobShape = field(default_factory=JobShape)
    partition: str = MISSING
    orders: dict[str, dict[str, str]] = field(default_factory=dict)
    """Column -> ``reorder`` and ``scope``."""
    kernels: list[str] = MISSING
    rounds: int = MISSING
    unbalanced: float = MISSING
    paper: dict[str, Any] = field(default_factory=dict)
    """``nnz_millions`` of the blocks, row by row, ``fastest_ms`` and ``slowest_ms``, by order."""


def run(cfg: Config) -> Result:
    """Count the non-zeros and time the products of every block: a column for each order.

    Raises:
        UnsupportedError: METIS is not available.
    """
    (case,) = cases(cfg, features=False)
    blocks = {}
    for order, choice in cfg.orders.items():
        own = [f"reorder={choice['reorder']}", f"reorder.scope={choice['scope']}", f"partition={cfg.partition}"]
        prepared = jobs.prepare_job(cfg, case, cfg.layout, [*own, "normalization=none"], exact=True)
        blocks[order] = blocks_of(whole_matrix(prepared, self_loops=True), prepared.facts.partition)
    nnz = {order: np.array([block.nnz for block in of_order]) for order, of_order in blocks.items()}
    times = {kernel_label(name, cfg.torch_device): _times(cfg, blocks, name, case.hidden) for name in cfg.kernels}
    names = [f"({i},{j})" for i in range(cfg.layout.num_parts) for j in range(cfg.layout.num_parts)]
    columns: dict[str, dict[Labels, Cell]] = {}
    for order in cfg.orders:
        paper = cfg.paper.get(order, {})
        published = _shares(names, np.array(paper["nnz_millions"])) if paper else {}
        columns[order] = {
            (SHARE, name): Cell(share, published.get(name), "" if name == BALANCE else "%")
            for name, share in _shares(names, nnz[order]).items()
        }
        for label, of_orders in times.items():
            ms = of_orders[order]
            columns[order] |= {(label, name): Cell(one, unit="ms") for name, one in zip(names, ms)}
            columns[order][label, FASTEST] = Cell(min(ms), paper.get("fastest_ms"), "ms")
            columns[order][label, SLOWEST] = Cell(max(ms), paper.get("slowest_ms"), "ms")
    result = Result(("what", "block"), tuple(cfg.orders), rows_of(columns, ORIGINAL), cases=[case])
    shares = [row for row in with_label(result.rows, SHARE) if row.labels[1] in names]
    result.panels += bars("non-zeros of each block", "% of all", shares, [*cfg.orders], OURS_AND_PAPER, group=1)
    extremes = [row for label in times for row in _extremes(with_label(result.rows, label))]
    title = "time / the original's slowest"
    result.panels += bars("{0}", title, extremes, [*cfg.orders], OURS_AND_PAPER, group=1)
    facts = _facts(cfg, nnz, times)
    result.notes = [*cfg.notes, *(f"{'Yes' if holds else 'No'}: {fact}" for fact, holds in facts.items())]
    counts = {order: of_order.tolist() for order, of_order in nnz.items()}
    result.details = {"nnz": counts, "times_ms": times, "facts": facts}
    return result


def blocks_of(matrix: csr_array, partition: Partition) -> list[csr_array]:
    """Return the ``num_parts ** 2`` blocks of a matrix, row by row."""
    parts = [partition.slice(part) for part in range(partition.num_parts)]
    block_rows = [matrix[rows] for rows in parts]
    return [block_row[:, columns] for block_row in block_rows for columns in parts]


def _times(cfg: Config, blocks: Mapping[str, list[csr_array]], kernel: str, width: int) -> Times:
    """Time the blocks of all orders, which take turns in the same rounds."""
    generator, steps = torch.Generator().manual_seed(cfg.seed), {}
    for order, of_order in blocks.items():
        for k, block in enumerate(of_order):
            x = torch.randn(block.shape[1], width, generator=generator).to(cfg.torch_device)
            steps[f"{order} {k}"] = product(kernel, block, x)
    times = interleaved(steps, cfg.torch_device, cfg.rounds)
    return {order: [times[f"{order} {k}"].median_ms for k in range(len(blocks[order]))] for order in blocks}


def _shares(names: list[str], nnz: np.ndarray) -> dict[str, float]:
    """Divide by all non-zeros, in per cent, since the paper's graph is larger; add the balance of the blocks."""
    shares = 100 * nnz / nnz.sum()
    return dict(zip(names, shares.tolist())) | {BALANCE: imbalance(shares)}


def _extremes(rows: list[TableRow]) -> list[TableRow]:
    """Divide the times of the fastest and the slowest block of a kernel by the original's slowest."""
    fastest, slowest = (with_label(rows, name)[0] for name in (FASTEST, SLOWEST))
    unit = slowest.cells[ORIGINAL]
    return [
        TableRow(
            (row.labels[0], f"{row.labels[1]} block"),
            {order: Cell(over(one.ours, unit.ours), over(one.paper, unit.paper)) for order, one in row.cells.items()},
        )
        for row in (fastest, slowest)
    ]


def _facts(cfg: Config, nnz: Mapping[str, np.ndarray], times: Mapping[str, Times]) -> dict[str, bool]:
    """State what the paper's figure shows, and whether it is so here."""
    balance, limit = imbalance(nnz[WHOLE]), cfg.unbalanced
    facts = {
        f"{WHOLE} unbalances the blocks: largest / mean is {balance:.2f}, {limit:g} or more": balance >= limit,
        f"{BLOCKWISE} leaves the non-zeros of every block as they were": np.array_equal(nnz[BLOCKWISE], nnz[ORIGINAL]),
    }
    for label, ms in times.items():
        slowest = {order: max(of_order) for order, of_order in ms.items()}
        numbers = ", ".join(f"{order} {value:.2f} ms" for order, value in slowest.items())
        facts[f"{label}: the slowest block is faster under {BLOCKWISE} than under the others ({numbers})"] = all(
            slowest[BLOCKWISE] < slowest[other] for other in (ORIGINAL, WHOLE)
        )
    return facts
