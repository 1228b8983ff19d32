"""What is planned: the numbers of a graph, and how its non-zeros and reads fall on the ranks of a run.

For a prepared graph these are counted, so the bytes of a plan are those of a run, and kept for other plans of the same
dataset. A graph given by its numbers is taken to be random: every non-zero off the diagonal may be anywhere, and
training nodes are spread evenly.
"""

import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from fullgnn.config import Config
from fullgnn.config.keys import check_minima
from fullgnn.costs.layout import PlannedLayout, PlannedLinks, planned_links
from fullgnn.engine.run import build_model
from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.graph.labels import LabelFacts
from fullgnn.graph.links import LinkFacts
from fullgnn.nn import contract_of
from fullgnn.nn.contract import block_request, trial_model
from fullgnn.partition import Partition
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.source import Preparation, codec_context
from fullgnn.schemes.base import CHOOSE_SCHEME
from fullgnn.schemes.layout import lay_out
from fullgnn.schemes.options import Grid, SchemeOptions
from fullgnn.schemes.product_layout import RowDistribution, assign_stages, slice_rows, stage_nnz
from fullgnn.storage.cache import Cache
from fullgnn.storage.text import parse_json
from fullgnn.tasks import LinkTask, build_task

KIND = "plan"
"""Folder, in the cache, of planned jobs."""

FORMAT = 4
"""Increase it when what is counted changes, or how it is kept."""


@dataclass(frozen=True)
class GraphStatistics:
    """The numbers of a graph, as it is multiplied.

    Raises:
        ConfigError: a number is out of range.
    """

    num_nodes: int
    nnz: int  # of the matrix that is multiplied, self-loops included
    num_features: int
    num_classes: int  # columns of the model's output
    num_train: int
    symmetric: bool = True  # whether the blocks of the matrix serve its transpose too
    pattern: bool = True  # no value is stored for an edge
    weighted: bool = False  # the graph itself has edge weights
    locality: float = 0.0
    """Fraction of random-order cache misses that the node order turns into hits."""
    links: LinkFacts | None = None  # for a task that finds links

    def __post_init__(self) -> None:
        check_minima(self, {"num_nodes": 1, "nnz": 0, "num_features": 0, "num_classes": 1, "num_train": 0})
        if self.num_train > self.num_nodes:
            raise ConfigError(f"num_train={self.num_train} is more than the {self.num_nodes} nodes")


@dataclass(frozen=True, eq=False)
class PlannedJob:
    """One run on so many ranks."""

    cfg: Config  # ``with_supported_optimizations``
    graph: GraphStatistics
    grid: Grid
    rows: RowDistribution
    products: dict[str, PlannedLayout]  # named as in ``Layout``
    nnz: np.ndarray  # (b, b) int64, of the blocks of A as a run lays it out: they give the replicas their stages
    links: PlannedLinks | None = None  # None: the task does not find links
    local: bool = True  # all ranks are on one machine

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.cfg.runtime.dtype)

    @property
    def folded(self) -> bool:
        """Whether rows are scaled before and after a product, because no values are stored for the edges."""
        return self.graph.pattern and self.cfg.normalization != "none"

    @property
    def num_steps(self) -> int:
        """Steps of an epoch, each of which passes over the whole graph."""
        return 1 if self.links is None else self.links.task.num_steps

    def shares_memory(self, device: str) -> bool:
        """Whether the ranks read each other's rows in shared memory on such a ``device``."""
        may_share = self.grid.shared_memory and self.grid.num_ranks > 1 and not self.grid.packs
        return self.local and device == "cpu" and may_share

    @property
    def num_own_rows(self) -> np.ndarray:
        """(b, r) rows of H that each rank holds."""
        own = np.diff(self.rows.bounds, axis=1)
        return own if own.shape[1] > 1 else np.repeat(own, self.grid.replication, axis=1)

    @property
    def output_row_bytes(self) -> int:
        """Bytes of a row of the model's output."""
        return self.graph.num_classes * self.dtype.itemsize

    def fetching(self, fetch: str, piece_rows: int | None = None) -> "PlannedJob":
        """The same job, whose rows arrive in ``stages``, ``whole`` or ``packed``, see ``Grid``."""
        grid = replace(self.grid, fetch=fetch, piece_rows=piece_rows)
        products = {name: product.arriving(grid) for name, product in self.products.items()}
        return replace(self, grid=grid, products=products)

    def scaled(self, factor: float) -> "PlannedJob":
        """The same job with ``factor`` times the rows, see ``PlannedLayout.scaled``."""
        products = {name: product.scaled(factor) for name, product in self.products.items()}
        links = None if self.links is None else self.links.scaled(factor)
        return replace(self, rows=self.rows.scaled(factor), products=products, links=links)


def why_unplannable(cfg: Config) -> str:
    """Why the planner does not know the cost of the model; empty if it does."""
    for layer in trial_model(cfg).modules():
        contract = contract_of(layer)
        if contract.edge_sets and contract.edge_reads is None:
            return f"reads edges in {type(layer).__name__}, which does not tell the planner what it reads for an edge"
    return ""


def check_plannable(cfg: Config) -> None:
    """Refuse a model whose cost the planner does not know.

    Raises:
        UnsupportedError: one line that names the model.
    """
    if reason := why_unplannable(cfg):
        raise UnsupportedError(f"model={cfg.model['name']} {reason}: {CHOOSE_SCHEME} yourself")


def counted_job(cfg: Config, world_size: int, prepared: PreparedGraph, locality: float = 0.0) -> PlannedJob:
    """The job of ``world_size`` ranks on a prepared graph, whose non-zeros and reads are counted.

    Raises:
        ConfigError: the replication of ``cfg.scheme`` does not divide ``world_size``.
        ConfigError, DataError: the graph lacks what the task or the model needs.
    """
    grid, facts = SchemeOptions.of(cfg.scheme).grid(world_size), prepared.facts
    task = build_task(cfg.task, facts.nodes.labels, facts.nodes.links)
    sizes = facts.nodes.num_features, task.num_outputs
    request = block_request(build_model(cfg, *sizes, torch.device("cpu")), cfg.optimizations)
    layout, halos = lay_out(prepared, grid, request)
    pattern, num_train = request.fold and not layout.weighted, facts.num_split_nodes[0]
    shared = all(propagation.shares_blocks(layout.symmetric, pattern) for propagation in request.propagations)
    numbers = facts.num_nodes, facts.nnz(cfg.self_loops), *sizes, num_train, shared, pattern, layout.weighted, locality
    targets, nnz = {"adj": layout.rows}, {"adj": facts.block_nnz(cfg.self_loops)}
    nnz["stages"] = facts.block_nnz(request.self_loops)
    if "loss" in layout.products:
        targets["loss"], nnz["loss"] = layout.products["loss"].out_rows, facts.counts.train_block_nnz(cfg.self_loops)
    halo = {name: rows_read.counts for name, rows_read in halos.items()}
    return job_of_counts(cfg, world_size, GraphStatistics(*numbers, facts.nodes.links), targets, nnz, halo, prepared)


def estimated_job(cfg: Config, world_size: int, graph: GraphStatistics) -> PlannedJob:
    """The job of ``world_size`` ranks on a random graph with the numbers of ``graph``, in block rows of equal size.

    Raises:
        ConfigError: the replication of ``cfg.scheme`` does not divide ``world_size``.
    """
    grid, n = SchemeOptions.of(cfg.scheme).grid(world_size), graph.num_nodes
    rows = slice_rows(Partition.equal(n, grid.num_parts), grid.num_slices)
    train_rows, diagonal = RowDistribution(rows.bounds * graph.num_train // n), min(n, graph.nnz)
    targets = {"adj": rows, **({"loss": train_rows} if cfg.optimizations.loss_rows_only else {})}

    def expected_nnz(out: np.ndarray, into: np.ndarray) -> np.ndarray:
        anywhere = (graph.nnz - diagonal) * np.outer(out / n, into / n)
        return np.rint(anywhere + np.diag(diagonal * np.minimum(out, into) / n)).astype(np.int64)

    def expected_halo(nnz: np.ndarray, in_rows: RowDistribution) -> np.ndarray:
        """(b, b, m) int64 rows that are read if every non-zero of a block is in a random column of it."""
        sizes = np.diff(in_rows.bounds, axis=1)  # (b, m)
        per_row = nnz / np.maximum(sizes.sum(axis=1), 1)
        return np.rint(sizes * -np.expm1(-per_row[:, :, None])).astype(np.int64)

    nnz = {name: expected_nnz(out_rows.block_sizes, rows.block_sizes) for name, out_rows in targets.items()}
    halo = {}
    if grid.exchange != "broadcast":
        halo = {name: expected_halo(of_blocks, rows) for name, of_blocks in nnz.items()}
        halo |= {f"{name}_t": expected_halo(of_blocks.T, targets[name]) for name, of_blocks in nnz.items()}
    return job_of_counts(cfg, world_size, graph, targets, nnz | {"stages": nnz["adj"]}, halo)


def job_of_counts(
    cfg: Config,
    world_size: int,
    graph: GraphStatistics,
    targets: Mapping[str, RowDistribution],
    nnz: Mapping[str, np.ndarray],
    halo: Mapping[str, np.ndarray],
    prepared: PreparedGraph | None = None,
) -> PlannedJob:
    """The job whose ranks multiply and read as many entries and rows as were counted, or are expected.

    Args:
        targets: the rows of Y of the product ``adj``, and of ``loss`` if there is one.
        nnz: (b, b) int64 non-zeros of the blocks of the same products, and ``nnz`` of the job as ``stages``.
        halo: see ``PlannedLayout``, by product; one that is not named moves whole blocks alone.
        prepared: the graph whose pairs a task that finds links draws; None: they are random.
    """
    grid, products, rows = SchemeOptions.of(cfg.scheme).grid(world_size), dict[str, PlannedLayout](), targets["adj"]
    for name, suffix in itertools.product(targets, ("", "_t")):
        columns_and_rows, of_all, of_blocks = (rows, targets[name]), nnz["stages"], nnz[name]
        if suffix:
            columns_and_rows, of_all, of_blocks = columns_and_rows[::-1], of_all.T, of_blocks.T
        stages, counts = assign_stages(stage_nnz(of_all, grid.stage_order), grid.replication), halo.get(name + suffix)
        layout = grid.product(*columns_and_rows, stages, counts)
        products[name + suffix] = PlannedLayout(**vars(layout), nnz=of_blocks, halo=counts)
    links = None
    if graph.links is not None:
        task = build_task(cfg.task, LabelFacts(graph.num_classes), graph.links)
        assert isinstance(task, LinkTask)
        links = planned_links(rows, task, grid.replication, prepared)
    return PlannedJob(cfg, graph, grid, rows, products, nnz["stages"], links)


def key_of_job(cfg: Config, world_size: int, near_bytes: int, cache: Cache) -> str:
    """The key of a job on a dataset; empty if the dataset does not name its files, or nothing is kept.

    Args:
        near_bytes: see ``Hardware``; the cache for which the order of the nodes was judged.
    """
    num_parts = world_size // cfg.scheme["replication"]
    graph = Preparation(cfg, num_parts, codec_context=codec_context(cfg)).key_of_files(cache)
    run = {key: getattr(cfg, key) for key in ("scheme", "model", "task", "normalization", "self_loops")}
    run |= {"optimizations": asdict(cfg.optimizations), "dtype": cfg.runtime.dtype}
    counted = {"plan_format": FORMAT, "graph": graph, "world_size": world_size, "near_bytes": near_bytes}
    return cache.key(**counted, **run) if graph else ""


def kept_job(cfg: Config, world_size: int, key: str, cache: Cache) -> PlannedJob | None:
    """The job that ``keep_job`` has kept; None if there is none."""

    def of_arrays(arrays: Mapping[str, Any]) -> PlannedJob:
        graph = GraphStatistics(**parse_json(str(arrays["graph"]), "graph"))
        bounds, nnz, halo = (
            {name.removeprefix(kind): array for name, array in arrays.items() if name.startswith(kind)}
            for kind in ("rows.", "nnz.", "halo.")
        )
        targets = {name: RowDistribution(array) for name, array in bounds.items()}
        return job_of_counts(cfg, world_size, graph, targets, nnz, halo)

    return cache.load(KIND, key, of_arrays) if key else None


def keep_job(job: PlannedJob, key: str, cache: Cache) -> None:
    """Keep the numbers of ``job`` that were counted, a table of its block rows for each product, unless it finds
    links."""
    arrays = {"graph": np.array(json.dumps(asdict(job.graph))), "nnz.stages": job.nnz}
    for name, product in job.products.items():
        arrays |= {} if product.halo is None else {f"halo.{name}": product.halo}
        if not name.endswith("_t"):
            arrays |= {f"rows.{name}": product.out_rows.bounds, f"nnz.{name}": product.nnz}
    if key and job.links is None:
        cache.store(KIND, key, arrays)
