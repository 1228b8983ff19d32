"""Figure 5: what an order of the whole graph does to the blocks of 1.5D, and what one inside each block row does."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from omegaconf import MISSING
from scipy.sparse import csr_array

from fullgnn.partition import Partition
from fullgnn.partition.counts import imbalance
from fullgnn.reproduce import jobs
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.products import kernel_label, time_products
from fullgnn.reproduce.result import Bars, Cell, Labels, Result, Row, bars, over, rows_of, with_label

ORIGINAL, WHOLE, BLOCKWISE = "original", "whole METIS", "blockwise METIS"
SHARE, BALANCE, SLOWEST, FASTEST = "share of the non-zeros", "largest / mean", "slowest", "fastest"

Times = dict[str, list[float]]
"""Milliseconds of each block, by order."""


@dataclass
class Config(TargetConfig):
    layout: Layout = field(default_factory=Layout)
    partition: str = MISSING
    orders: dict[str, dict[str, str]] = field(default_factory=dict)
    """Column -> ``reorder`` and ``scope``."""
    kernels: list[str] = MISSING
    rounds: int = MISSING
    unbalanced: float = MISSING
    paper: dict[str, Any] = field(default_factory=dict)
    """``nnz_millions`` of the blocks, row by row, ``fastest_ms`` and ``slowest_ms``, by order."""


def run(cfg: Config) -> Result:
    """A column for each order; rows of non-zeros and of times, block by block."""
    (case,) = cases(cfg, features=False)
    blocks = {order: _blocks(cfg, case, choice) for order, choice in cfg.orders.items()}
    names = [f"({i},{j})" for i in range(cfg.layout.num_parts) for j in range(cfg.layout.num_parts)]
    nnz = {order: np.array([block.nnz for block in of_order]) for order, of_order in blocks.items()}
    times = {kernel_label(kernel, cfg.torch_device): _times(cfg, case, blocks, kernel) for kernel in cfg.kernels}
    columns: dict[str, dict[Labels, Cell]] = {}
    for order in cfg.orders:
        paper = cfg.paper.get(order, {})
        published = _shares(names, np.array(paper["nnz_millions"])) if paper else {}
        cells: dict[Labels, Cell] = {
            (SHARE, name): Cell(share, published.get(name), "" if name == BALANCE else "%")
            for name, share in _shares(names, nnz[order]).items()
        }
        for label, of_orders in times.items():
            ms = of_orders[order]
            cells |= {(label, name): Cell(one, unit="ms") for name, one in zip(names, ms)}
            cells[label, FASTEST] = Cell(min(ms), paper.get("fastest_ms"), "ms")
            cells[label, SLOWEST] = Cell(max(ms), paper.get("slowest_ms"), "ms")
        columns[order] = cells
    rows = rows_of(columns, ORIGINAL)
    shares = [row for row in with_label(rows, SHARE) if row.labels[1] in names]
    panels = [bars("non-zeros of each block", "% of all", shares, cfg.orders, "ours", group=1)]
    panels += [_panel(label, with_label(rows, label), cfg.orders) for label in times]
    facts = _facts(cfg, nnz, times)
    notes = [*cfg.notes, *(f"{'Yes' if holds else 'No'}: {fact}" for fact, holds in facts.items())]
    details = {"nnz": {order: counts.tolist() for order, counts in nnz.items()}, "times_ms": times, "facts": facts}
    return Result(("what", "block"), tuple(cfg.orders), rows, panels, [case], notes, details)


def _blocks(cfg: Config, case: Case, choice: Mapping[str, str]) -> list[csr_array]:
    """The blocks of A + I in one order, row by row.

    Raises:
        UnsupportedError: METIS is not available.
    """
    own = [
        f"reorder={choice['reorder']}",
        f"reorder.scope={choice['scope']}",
        f"partition={cfg.partition}",
        "normalization=none",
    ]
    prepared, _ = jobs.prepare_job(cfg, case, cfg.layout, own, exact=True)
    return cut(prepared.adj.matrix, prepared.partition)


def cut(matrix: csr_array, partition: Partition) -> list[csr_array]:
    """The ``num_parts ** 2`` blocks of a matrix, row by row."""
    parts = [partition.slice(part) for part in range(partition.num_parts)]
    block_rows = [matrix[rows] for rows in parts]
    return [block_row[:, columns] for block_row in block_rows for columns in parts]


def _times(cfg: Config, case: Case, blocks: Mapping[str, list[csr_array]], kernel: str) -> Times:
    """The blocks of all orders take turns in the same rounds."""
    generator = torch.Generator().manual_seed(cfg.seed)
    operands = {
        f"{order} {k}": (block, torch.randn(block.shape[1], case.hidden, generator=generator).to(cfg.torch_device))
        for order, of_order in blocks.items()
        for k, block in enumerate(of_order)
    }
    times = time_products(cfg, [kernel], operands, cfg.rounds)
    return {
        order: [times[f"{kernel} {order} {k}"].median_ms for k in range(len(of_order))]
        for order, of_order in blocks.items()
    }


def _shares(names: list[str], nnz: np.ndarray) -> dict[str, float]:
    """Per cent of all non-zeros, since the paper's graph is larger, and the balance of the blocks."""
    shares = 100 * nnz / nnz.sum()
    return dict(zip(names, shares.tolist())) | {BALANCE: imbalance(shares)}


def _panel(label: str, rows: list[Row], orders: Iterable[str]) -> Bars:
    """The times of the fastest and the slowest block over the original's slowest."""
    extremes = {name: with_label(rows, name)[0].cells for name in (FASTEST, SLOWEST)}
    unit = extremes[SLOWEST][ORIGINAL]
    scaled = [
        Row(
            (f"{name} block",),
            {order: Cell(over(one.ours, unit.ours), over(one.paper, unit.paper)) for order, one in cells.items()},
        )
        for name, cells in extremes.items()
    ]
    return bars(label, "time / the original's slowest", scaled, orders, "ours")


def _facts(cfg: Config, nnz: Mapping[str, np.ndarray], times: Mapping[str, Times]) -> dict[str, bool]:
    """What the paper's figure shows, and whether it is so here."""
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
