"""Figure 5: what an order of the whole graph does to the blocks of 1.5D, and what one inside each block row does."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from omegaconf import MISSING
from scipy.sparse import csr_array

from fullgnn.partition import Partition
from fullgnn.reorder.measure import imbalance
from fullgnn.reproduce import jobs
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.products import kernel_label, time_products
from fullgnn.reproduce.result import Bars, Cell, Result, Row, bars, cells, over, speedups

ORIGINAL, WHOLE, BLOCKWISE = "original", "whole METIS", "blockwise METIS"
SHARE, BALANCE, SLOWEST, FASTEST = "share of the non-zeros", "largest / mean", "slowest", "fastest"

Times = dict[str, list[float]]
"""Milliseconds of each block, by order."""


@dataclass
class OrderChoice:
    reorder: str = MISSING
    scope: str = MISSING


@dataclass
class PaperBlocks:
    nnz_millions: list[float] = field(default_factory=list)
    """Row by row."""
    fastest_ms: float = MISSING
    slowest_ms: float = MISSING


@dataclass
class Config(TargetConfig):
    layout: Layout = field(default_factory=Layout)
    partition: str = MISSING
    orders: dict[str, OrderChoice] = field(default_factory=dict)
    kernels: list[str] = MISSING
    rounds: int = MISSING
    unbalanced: float = MISSING
    paper: dict[str, PaperBlocks] = field(default_factory=dict)


def run(cfg: Config) -> Result:
    """A column for each order; rows of non-zeros and of times, block by block."""
    (case,) = cases(cfg, features=False)
    blocks = {order: _blocks(cfg, case, choice) for order, choice in cfg.orders.items()}
    names = [f"({i},{j})" for i in range(cfg.layout.num_parts) for j in range(cfg.layout.num_parts)]
    nnz = {order: np.array([block.nnz for block in of_order]) for order, of_order in blocks.items()}
    ours, paper = _percent(nnz), _percent({order: np.array(one.nnz_millions) for order, one in cfg.paper.items()})
    rows = [
        _row(SHARE, name, "%", _each(itemgetter(k), ours), _each(itemgetter(k), paper)) for k, name in enumerate(names)
    ]
    panels = [bars("non-zeros of each block", "% of all", rows, cfg.orders, "ours", group=1)]
    rows.append(_row(SHARE, BALANCE, "", _each(imbalance, ours), _each(imbalance, paper)))
    times: dict[str, Times] = {}
    for kernel in cfg.kernels:
        label = kernel_label(kernel, cfg.torch_device)
        ms = times[label] = _times(cfg, case, blocks, kernel)
        rows += [_row(label, name, "ms", _each(itemgetter(k), ms)) for k, name in enumerate(names)]
        extremes = [
            _row(label, FASTEST, "ms", _each(min, ms), {order: one.fastest_ms for order, one in cfg.paper.items()}),
            _row(label, SLOWEST, "ms", _each(max, ms), {order: one.slowest_ms for order, one in cfg.paper.items()}),
        ]
        rows += extremes
        panels.append(_panel(label, extremes, cfg.orders))
    facts = _facts(cfg, nnz, times)
    notes = [*cfg.notes, *(f"{'Yes' if holds else 'No'}: {fact}" for fact, holds in facts.items())]
    details = {"nnz": {order: counts.tolist() for order, counts in nnz.items()}, "times_ms": times, "facts": facts}
    return Result(("what", "block"), tuple(cfg.orders), rows, panels, [case], notes, details)


def _blocks(cfg: Config, case: Case, choice: OrderChoice) -> list[csr_array]:
    """The blocks of A + I in one order, row by row.

    Raises:
        UnsupportedError: METIS is not available.
    """
    own = [f"reorder={choice.reorder}", f"reorder.scope={choice.scope}", f"partition={cfg.partition}"]
    prepared, _ = jobs.prepare_ordered(cfg, case, cfg.layout, *own, "normalization=none")
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


def _percent(counts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Shares of all non-zeros: the paper's graph is larger."""
    return {order: 100 * of_order / of_order.sum() for order, of_order in counts.items()}


def _each(reduce: Callable[[Any], float], values: Mapping[str, Any]) -> dict[str, float]:
    """``reduce`` of the values of each order."""
    return {order: float(reduce(of_order)) for order, of_order in values.items()}


def _row(what: str, block: str, unit: str, ours: Mapping[str, float], paper: Mapping[str, float] | None = None) -> Row:
    made = cells(ours, paper, unit)
    return Row((what, block), speedups(made, ORIGINAL) if unit == "ms" else made)


def _panel(label: str, extremes: list[Row], orders: Iterable[str]) -> Bars:
    """The times in ``extremes`` over the last of them in the original order."""
    unit = extremes[-1].cells[ORIGINAL]
    scaled = [
        Row(
            (f"{row.labels[1]} block",),
            {
                order: Cell(over(cell.ours, unit.ours), over(cell.paper, unit.paper))
                for order, cell in row.cells.items()
            },
        )
        for row in extremes
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
        slowest = _each(max, ms)
        numbers = ", ".join(f"{order} {value:.2f} ms" for order, value in slowest.items())
        facts[f"{label}: the slowest block is faster under {BLOCKWISE} than under the others ({numbers})"] = all(
            slowest[BLOCKWISE] < slowest[other] for other in (ORIGINAL, WHOLE)
        )
    return facts
