"""Table 2: blocks by scheme, as each scheme itself says. Table 3: statistics of the graphs. Figures 5 and 8: what
orders of the nodes do to the blocks of 1.5D, to the cache that holds rows of H, and to the time of a product."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array

from fullgnn.bench.harness import interleaved
from fullgnn.bench.papers import trainings
from fullgnn.bench.papers.config import JobShape, Keys, published
from fullgnn.bench.papers.graphs import GraphCase, GraphSize, configured
from fullgnn.bench.papers.products import kernel_label, l2_hit_rates, product
from fullgnn.bench.papers.result import OURS_AND_PAPER, Cell, Result, TableRow, Value, bars, cells, over, with_label
from fullgnn.distributed import dry_world
from fullgnn.engine import make_scheme
from fullgnn.errors import UnsupportedError
from fullgnn.partition import Partition
from fullgnn.partition.partition import imbalance
from fullgnn.prepare.statistics import whole_matrix
from fullgnn.reorder.cache_model import hit_rate
from fullgnn.schemes.product_layout import assign_stages, rank_sums, stage_nnz
from fullgnn.telemetry.meter import Meter

BLOCK_COLUMNS = ("block rows", "block columns", "blocks per rank")


def schemes(result: Result, cfg: Keys) -> None:
    """Fill a row for each scheme; nothing is multiplied."""
    for shape in cfg.layouts:
        name = f"{shape.scheme.upper()} p={shape.p} r={shape.r}"
        result.add((name,), cells(blocks(shape), origin="derived"), scheme=shape.scheme, p=shape.p, r=shape.r)


def blocks(shape: JobShape) -> dict[str, int]:
    """Count blocks by ``BLOCK_COLUMNS``: b block rows of b blocks, and the largest number that a rank multiplies.

    Rank 0 of the job builds the scheme, in a world that moves nothing.
    """
    runtime = ["runtime.device=cpu", f"runtime.threads={torch.get_num_threads()}"]  # as many as there were
    cfg = configured(*shape.overrides(), *runtime)
    with dry_world(cfg.runtime, 0, shape.p) as world:
        scheme = make_scheme(cfg, world, Meter(world.device))
    b = scheme.num_parts
    of_stage = stage_nnz(np.ones((b, b), np.int64), "diagonal")  # every block counts as one non-zero
    per_rank = rank_sums(of_stage, assign_stages(of_stage, scheme.replication))
    return dict(zip(BLOCK_COLUMNS, (b, of_stage.shape[1], int(per_rank.max()))))


ORIGINAL, WHOLE, BLOCKWISE = "original", "whole METIS", "blockwise METIS"
SHARE, BALANCE, SLOWEST, FASTEST = "share of the non-zeros", "largest / mean", "slowest", "fastest"


@dataclass
class Figure5Keys(Keys):
    """Figure 5 names its orders by the heads of their columns."""

    orders: dict[str, dict[str, str]]
    """Column -> ``reorder`` and ``scope``."""


def orders_of_blocks(result: Result, cfg: Figure5Keys, case: GraphCase) -> None:
    """Count the non-zeros and time the products of every block: a column for each order.

    Raises:
        UnsupportedError: METIS is not available.
    """
    blocks = {}
    for order, choice in cfg.orders.items():
        own = [f"reorder={choice['reorder']}", f"reorder.scope={choice['scope']}", f"partition={cfg.partition}"]
        prepared = trainings.prepare_job(cfg, case, cfg.layout, [*own, "normalization=none"], exact=True)
        blocks[order] = blocks_of(whole_matrix(prepared, self_loops=True), prepared.facts.partition)
    nnz = {order: np.array([block.nnz for block in of_order]) for order, of_order in blocks.items()}
    times = {kernel_label(name, cfg.torch_device): _times(cfg, blocks, name, case.hidden) for name in cfg.kernels}
    names = [f"({i},{j})" for i in range(cfg.layout.num_parts) for j in range(cfg.layout.num_parts)]
    ours = {order: _shares(names, of_order) for order, of_order in nnz.items()}
    counted = {order: published(cfg.paper, "nnz_millions", order=order) for order in cfg.orders}
    paper = {order: _shares(names, np.array(counts)) if counts else {} for order, counts in counted.items()}
    for name in (*names, BALANCE):
        unit = "" if name == BALANCE else "%"
        result.add((SHARE, name), {order: Cell(of[name], paper[order].get(name), unit) for order, of in ours.items()})
    for label, of_orders in times.items():
        for k, name in enumerate(names):
            result.add((label, name), cells({order: ms[k] for order, ms in of_orders.items()}, "ms"), ORIGINAL)
        for name, extreme in ((FASTEST, min), (SLOWEST, max)):
            row = cells({order: extreme(ms) for order, ms in of_orders.items()}, "ms")
            result.add((label, name), row, ORIGINAL, by="order", value=f"{name}_ms", block=name)
    result.columns = tuple(cfg.orders)
    shares = [row for row in with_label(result.rows, SHARE) if row.labels[1] in names]
    result.panels += bars("non-zeros of each block", "% of all", shares, [*cfg.orders], OURS_AND_PAPER, group=1)
    extremes = [row for label in times for row in _extremes(with_label(result.rows, label))]
    title = "time / the original's slowest"
    result.panels += bars("{0}", title, extremes, [*cfg.orders], OURS_AND_PAPER, group=1)
    result.details = {"nnz": {order: of_order.tolist() for order, of_order in nnz.items()}, "times_ms": times}


def blocks_of(matrix: csr_array, partition: Partition) -> list[csr_array]:
    """Return the ``num_parts ** 2`` blocks of a matrix, row by row."""
    parts = [partition.slice(part) for part in range(partition.num_parts)]
    return [block_row[:, columns] for block_row in (matrix[rows] for rows in parts) for columns in parts]


def _times(cfg: Keys, blocks: Mapping[str, list[csr_array]], kernel: str, width: int) -> dict[str, list[float]]:
    """Milliseconds of each block, by order; the blocks of all orders take turns in the same rounds."""
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


def _extremes(of_kernel: list[TableRow]) -> list[TableRow]:
    """Divide the times of the fastest and the slowest block of a kernel by the original's slowest."""
    fastest, slowest = (with_label(of_kernel, name)[0] for name in (FASTEST, SLOWEST))
    rows, unit = [], slowest.cells[ORIGINAL]
    for row in (fastest, slowest):
        own = {name: Cell(over(cell.ours, unit.ours), over(cell.paper, unit.paper)) for name, cell in row.cells.items()}
        rows.append(TableRow((row.labels[0], f"{row.labels[1]} block"), own))
    return rows


def say_facts(result: Result, cfg: Figure5Keys) -> None:
    """Say below the table what the paper's figure shows, and whether it is so here."""
    nnz, times = result.details["nnz"], result.details["times_ms"]
    balance, limit = imbalance(np.array(nnz[WHOLE])), cfg.unbalanced
    facts = {
        f"{WHOLE} unbalances the blocks: largest / mean is {balance:.2f}, {limit:g} or more": balance >= limit,
        f"{BLOCKWISE} leaves the non-zeros of every block as they were": nnz[BLOCKWISE] == nnz[ORIGINAL],
    }
    for label, ms in times.items():
        slowest = {order: max(of_order) for order, of_order in ms.items()}
        numbers = ", ".join(f"{order} {value:.2f} ms" for order, value in slowest.items())
        facts[f"{label}: the slowest block is faster under {BLOCKWISE} than under the others ({numbers})"] = all(
            slowest[BLOCKWISE] < slowest[other] for other in (ORIGINAL, WHOLE)
        )
    result.details["facts"] = facts
    result.notes += [f"{'Yes' if holds else 'No'}: {fact}" for fact, holds in facts.items()]


STATISTICS = ("nodes", "edges", "features", "classes", "mean degree", "density")


def statistics(result: Result, cfg: Keys, case: GraphCase) -> None:
    """Add two rows: as the target runs the graph, and the full size that its look-alike has with ``scale=1``."""
    result.add((case.title, "real" if case.real else "look-alike, as run here"), cells(_statistics(case.size)))
    result.add((case.title, "full size"), cells(_statistics(case.full), origin="derived"), graph=case.dataset)


def _statistics(size: GraphSize) -> dict[str, Value]:
    """Count by ``STATISTICS``; edges are counted without self-loops."""
    num_edges = size.nnz - size.num_nodes
    counts = (size.num_nodes, num_edges, size.num_features, size.num_classes, num_edges / size.num_nodes, size.density)
    return dict(zip(STATISTICS, counts))


def draw_densities(result: Result, cfg: Keys) -> None:
    """Draw the densities of both rows of each graph."""
    both = [
        TableRow(here.labels[:1], {"as run here": here.cells["density"], "full size": full.cells["density"]})
        for here, full in zip(result.rows[::2], result.rows[1::2])
    ]
    result.panels += bars("density: nnz / nodes²", "density", both, heights=("ours",))


NO_ORDER, BEST = "none", "best"
MODEL, PROFILER = "hit rate, model", "hit rate, profiler"


@dataclass
class OrdersKeys(Keys):
    """Keys of targets that compare orders of the nodes."""

    orders: list[str]


def orders(result: Result, cfg: OrdersKeys, case: GraphCase) -> None:
    """Fill a row of times for each kernel, and rows of hit rates by the model and by the profiler."""
    result.columns, device = (*cfg.orders, BEST), cfg.torch_device
    matrices, missing = ordered(cfg, case)
    x = torch.randn(case.graph.num_nodes, case.hidden, generator=torch.Generator().manual_seed(cfg.seed)).to(device)
    pairs = itertools.product(matrices.items(), cfg.kernels)
    steps = {f"{kernel} {name}": product(kernel, matrix, x) for (name, matrix), kernel in pairs}
    times = interleaved(steps, device, cfg.rounds)
    records = {f"{case.dataset}, {key}": of_step.record() for key, of_step in times.items()}
    result.details.setdefault("times", {}).update(records)
    for kernel in cfg.kernels:
        ms = {name: times[f"{kernel} {name}"].median_ms for name in matrices}
        row = cells({**ms, BEST: min(ms.values()), **missing}, "ms")
        label = kernel_label(kernel, device)
        result.add((case.title, label), row, NO_ORDER, by="order", value="ms", graph=case.dataset)
    modelled: dict[str, Value] = {
        name: 100 * hit_rate(matrix.indptr, matrix.indices, matrix.shape[1], case.modelled_cache_rows)
        for name, matrix in matrices.items()
    }
    profiled = l2_hit_rates(matrices, case.hidden, device)
    for label, rates in ((MODEL, modelled), (PROFILER, profiled)):
        best = max((rate for rate in rates.values() if not isinstance(rate, str | None)), default=None)
        row = cells({**rates, **missing, BEST: best}, "%", "simulated" if label == MODEL else "measured")
        result.add((case.title, label), row, by="order", value="hit_rate", graph=case.dataset)


def draw_orders(result: Result, cfg: OrdersKeys) -> None:
    """Draw the modelled hit rates, and the speed-ups of the products."""
    title, hit_rates = "hit rate of H (ours: model, paper: profiler)", with_label(result.rows, MODEL)
    result.panels += bars(title, "%", hit_rates, cfg.orders, OURS_AND_PAPER)
    products = [row for row in result.rows if row.labels[1] not in (MODEL, PROFILER)]
    result.panels += bars("{1}: speed-up over the original order", "speed-up", products, cfg.orders)


def ordered(cfg: OrdersKeys, case: GraphCase) -> tuple[dict[str, csr_array], dict[str, Value]]:
    """Return the pattern of A + I in each order, and why an order is missing."""
    matrices, missing = dict[str, csr_array](), dict[str, Value]()
    for name in cfg.orders:
        own = [f"reorder={name}", "reorder.scope=whole", "normalization=none"]
        try:
            prepared = trainings.prepare_job(cfg, case, trainings.ONE_RANK, own, exact=True)
            matrices[name] = whole_matrix(prepared, self_loops=True)
        except UnsupportedError as error:
            missing[name] = str(error)
    return matrices, missing
