"""Figure 5: what an order of the whole graph does to the blocks of 1.5D, and what one inside each block row does."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from omegaconf import MISSING
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.config import build
from fullgnn.config.compose import compose, load_config
from fullgnn.errors import UnsupportedError
from fullgnn.graph import adjacency_operator
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.partition import Partition
from fullgnn.reorder import two_level
from fullgnn.reorder.measure import imbalance
from fullgnn.reproduce.config import Layout, TargetConfig
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.result import Bars, Cell, Result, Row, Series, Value, speedups
from fullgnn.reproduce.timing import interleaved

ORIGINAL, WHOLE, BLOCKWISE = "original", "whole METIS", "blockwise METIS"
SHARE, BALANCE, SLOWEST, FASTEST = "share of the non-zeros", "largest / mean", "slowest", "fastest"


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
    (found,) = cases(cfg, features=False)
    num_parts = cfg.layout.num_parts
    blocks = {order: _blocks(cfg, found, choice, num_parts) for order, choice in cfg.orders.items()}
    names = [f"({i},{j})" for i in range(num_parts) for j in range(num_parts)]
    nnz = {order: np.array([block.nnz for block in of_order]) for order, of_order in blocks.items()}
    published = {order: np.array(of_order.nnz_millions) for order, of_order in cfg.paper.items()}
    rows = _count_rows(names, nnz, published)
    times: dict[str, dict[str, list[float]]] = {}
    for kernel in cfg.kernels:
        label = f"SpMM, kernel={build(_kernel(kernel)).name_for(cfg.torch_device, torch.float32)}"
        times[label] = _times(cfg, found, blocks, kernel)
        rows += _time_rows(label, names, times[label], cfg.paper)
    facts = _facts(cfg, nnz, times)
    notes = [
        "Block (i,j): what the rows of block row i read from those of block column j. Each is prepared and multiplied "
        "as its rank would, one after another on this device, H float32 of the hidden layer's width; medians of "
        "interleaved rounds. Speed-ups are over the original order.",
        *(f"{'Yes' if holds else 'No'}: {fact}" for fact, holds in facts.items()),
    ]
    details = {"nnz": {order: counts.tolist() for order, counts in nnz.items()}, "times_ms": times, "facts": facts}
    return Result(("what", "block"), tuple(cfg.orders), rows, _panels(cfg, names, rows), [found], notes, details)


def _blocks(cfg: Config, case: Case, choice: OrderChoice, num_parts: int) -> list[csr_array]:
    """The blocks of A + I in one order, row by row.

    Raises:
        UnsupportedError: another order took the place of METIS.
    """
    run_cfg = load_config(
        compose(f"reorder={choice.reorder}", f"reorder.scope={choice.scope}", f"partition={cfg.partition}")
    )
    graph, reorder = case.graph, run_cfg.reorder
    partitioner, method = build(run_cfg.partition), build(reorder.method)
    common = reorder.scope, num_parts, reorder.num_blocks, cfg.seed
    order = two_level(graph.adjacency(np.float32), graph.train_mask, partitioner, method, *common)
    if order.reorder_used != reorder.name:
        raise UnsupportedError(f"reorder={reorder.name} cannot be had here, the figure needs it: pip install pymetis")
    return cut(adjacency_operator(graph.permute(order.perm)).matrix, order.partition)


def cut(matrix: csr_array, partition: Partition) -> list[csr_array]:
    """The ``num_parts ** 2`` blocks of a matrix, row by row."""
    parts = [partition.slice(part) for part in range(partition.num_parts)]
    block_rows = [matrix[rows] for rows in parts]
    return [block_row[:, columns] for block_row in block_rows for columns in parts]


def _times(cfg: Config, case: Case, blocks: Mapping[str, list[csr_array]], kernel: str) -> dict[str, list[float]]:
    """Milliseconds of each block by order, all of them in the same rounds."""
    generator = torch.Generator().manual_seed(cfg.seed)
    steps: dict[str, Callable[[], Tensor]] = {}
    for order, of_order in blocks.items():
        for place, block in enumerate(of_order):
            x = torch.randn(block.shape[1], case.hidden, generator=generator).to(cfg.torch_device)
            steps[f"{order} {place}"] = functools.partial(_product(kernel, block, cfg.torch_device), x)
    medians = {name: one.median_ms for name, one in interleaved(steps, cfg.torch_device, cfg.rounds).items()}
    return {
        order: [medians[f"{order} {place}"] for place in range(len(of_order))] for order, of_order in blocks.items()
    }


def _product(kernel: str, block: csr_array, device: torch.device) -> Callable[[Tensor], Tensor]:
    """x -> block @ x, written where that of the last call was."""
    indptr, indices = (torch.from_numpy(array).int().to(device) for array in (block.indptr, block.indices))
    built = build(_kernel(kernel))
    prepared = built.prepare(LocalCSR(indptr, indices, None, *block.shape), torch.float32)
    out: list[Tensor] = []

    def multiply(x: Tensor) -> Tensor:
        if not out:
            out.append(x.new_empty(block.shape[0], x.shape[1]))
        built.spmm(prepared, x, out[0], accumulate=False)
        return out[0]

    return multiply


def _kernel(name: str) -> dict:
    return load_config(compose(f"kernel={name}")).kernel


def _count_rows(names: list[str], nnz: Mapping[str, np.ndarray], published: Mapping[str, np.ndarray]) -> list[Row]:
    """Shares of all non-zeros, ours and the paper's, whose graph is larger; and their balance."""
    ours, paper = ({order: 100 * of / of.sum() for order, of in counts.items()} for counts in (nnz, published))
    shares = [_row(SHARE, name, "%", _at(ours, place), _at(paper, place)) for place, name in enumerate(names)]
    return [*shares, _row(SHARE, BALANCE, "", _each(imbalance, ours), _each(imbalance, paper))]


def _time_rows(
    label: str, names: list[str], times: Mapping[str, list[float]], paper: Mapping[str, PaperBlocks]
) -> list[Row]:
    fastest, slowest = (
        {order: getattr(one, key) for order, one in paper.items()} for key in ("fastest_ms", "slowest_ms")
    )
    return [
        *(_row(label, name, "ms", _at(times, place), {}) for place, name in enumerate(names)),
        _row(label, FASTEST, "ms", _each(min, times), fastest),
        _row(label, SLOWEST, "ms", _each(max, times), slowest),
    ]


def _row(what: str, block: str, unit: str, ours: Mapping[str, float], paper: Mapping[str, float]) -> Row:
    cells = {order: Cell(value, paper.get(order), unit) for order, value in ours.items()}
    return Row((what, block), speedups(cells, ORIGINAL) if unit == "ms" else cells)


def _at(values: Mapping[str, Sequence[float] | np.ndarray], place: int) -> dict[str, float]:
    return {order: float(of_order[place]) for order, of_order in values.items()}


def _each(reduce: Callable[[Any], float], values: Mapping[str, Any]) -> dict[str, float]:
    return {order: reduce(of_order) for order, of_order in values.items()}


def _facts(
    cfg: Config, nnz: Mapping[str, np.ndarray], times: Mapping[str, Mapping[str, list[float]]]
) -> dict[str, bool]:
    """What the paper's figure shows, and whether it is so here."""
    balance, limit = imbalance(nnz[WHOLE]), cfg.unbalanced
    facts = {
        f"{WHOLE} unbalances the blocks: largest / mean is {balance:.2f}, {limit:g} or more": balance >= limit,
        f"{BLOCKWISE} leaves the non-zeros of every block as they were": np.array_equal(nnz[BLOCKWISE], nnz[ORIGINAL]),
    }
    for label, by_order in times.items():
        slowest = _each(max, by_order)
        numbers = ", ".join(f"{order} {ms:.2f} ms" for order, ms in slowest.items())
        facts[f"{label}: the slowest block is faster under {BLOCKWISE} than under the others ({numbers})"] = all(
            slowest[BLOCKWISE] < slowest[other] for other in (ORIGINAL, WHOLE)
        )
    return facts


def _panels(cfg: Config, names: list[str], rows: list[Row]) -> list[Bars]:
    """The shares of the non-zeros, and for each kernel the times of the blocks over that of the original's slowest."""
    shares = [row for row in rows if row.labels[0] == SHARE and row.labels[1] in names]
    series = [
        Series(order, *([getattr(row.cells[order], key) for row in shares] for key in ("ours", "paper")))
        for order in cfg.orders
    ]
    panels = [Bars("non-zeros of each block", "% of all", names, series)]
    for label in dict.fromkeys(row.labels[0] for row in rows if row.labels[0] != SHARE):
        chosen = [row for row in rows if row.labels[0] == label and row.labels[1] in (FASTEST, SLOWEST)]
        unit = chosen[-1].cells[ORIGINAL]
        series = [
            Series(
                order,
                [_over(row.cells[order].ours, unit.ours) for row in chosen],
                [_over(row.cells[order].paper, unit.paper) for row in chosen],
            )
            for order in cfg.orders
        ]
        panels.append(
            Bars(label, "time / the original's slowest", [f"{row.labels[1]} block" for row in chosen], series)
        )
    return panels


def _over(value: Value, unit: Value) -> float | None:
    return value / unit if isinstance(value, (int, float)) and isinstance(unit, (int, float)) else None
