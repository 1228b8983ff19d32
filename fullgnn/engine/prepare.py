"""Turn a graph into the ordered graph: partition, reorder. Runs on rank 0."""

import hashlib
import logging
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch

from fullgnn.config import Config, build
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph, Propagation, check_entries, row_sums, transpose
from fullgnn.graph.checks import check_range
from fullgnn.graph.labels import LabelFacts
from fullgnn.graph.links import LinkFacts, LinkPairs, link_facts
from fullgnn.kernels.spmm.tiles import DENSITY_BINS, tile_density
from fullgnn.partition import Partition, contiguous, nnz, random
from fullgnn.partition.counts import halo_share, off_diagonal_share, rows_read
from fullgnn.reorder import check_order, two_level
from fullgnn.reorder.blockwise import base_function, name_of
from fullgnn.reorder.structure import cell_nnz
from fullgnn.reorder.two_level import NodeOrder, UsedMethods
from fullgnn.schemes.base import Needs, PreparedGraph
from fullgnn.storage.cache import Cache
from fullgnn.tasks import build_task, takes_links

log = logging.getLogger(__name__)


SAMPLE = 1 << 20
"""How many elements of a large array a ``Fingerprint`` reads."""


@dataclass(frozen=True)
class Fingerprint:
    """What identifies a graph in its original order, whatever its name is."""

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    digest: str  # SHA-256 of all arrays; of large ones, of every k-th element

    @classmethod
    def of(cls, graph: Graph) -> "Fingerprint":
        digest = hashlib.sha256()
        masks = graph.train_mask, graph.val_mask, graph.test_mask
        arrays = [graph.indptr, graph.indices, graph.weight, graph.features, graph.labels, *masks]
        if graph.num_users is not None:
            arrays.append(np.array([graph.num_users]))
        arrays += [links for links in (graph.val_links, graph.test_links) if links is not None]
        for array in arrays:
            flat = np.empty(0) if array is None else array.reshape(-1)
            digest.update(f"{flat.dtype.str} {len(flat)} ".encode())
            digest.update(np.ascontiguousarray(flat[:: -(-len(flat) // SAMPLE) or 1]).view(np.uint8).data)
        sizes = graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes
        return cls(*sizes, digest.hexdigest())


@dataclass(frozen=True)
class NodeFacts:
    """What every rank knows of a graph before it is prepared: what the model, the task and checkpoints need."""

    name: str
    num_features: int
    labels: LabelFacts
    fingerprint: Fingerprint
    load_time_s: float = 0.0
    links: LinkFacts | None = None  # None: the task does not ask for them

    @classmethod
    def of(cls, graph: Graph, with_links: bool = False) -> "NodeFacts":
        links = link_facts(graph) if with_links else None
        return cls(graph.name, graph.num_features, graph.label_facts(), Fingerprint.of(graph), links=links)


@dataclass(frozen=True)
class GraphSizes:
    """The sizes of a prepared graph."""

    dataset: str
    num_nodes: int
    num_edges: int  # stored non-zeros before self-loops are added
    nnz: int  # stored non-zeros of the adjacency, with its self-loops if self_loops
    symmetric: bool  # whether the adjacency equals its transpose
    num_features: int
    num_classes: int


@dataclass(frozen=True)
class BlockStatistics:
    """Where the non-zeros of a prepared graph are. Only ``record.json`` and reports use these numbers."""

    edge_cut: float  # fraction of the non-zeros that join two block rows
    needed_row_ratio: float | None  # rows that block rows read of each other / all; None with one block row
    tile_density: dict[str, float]  # see RunRecord


@dataclass(frozen=True)
class Preparation:
    """What every rank knows about the prepared graph. The fields of the parts have their names in ``RunRecord``."""

    sizes: GraphSizes
    methods: UsedMethods
    statistics: BlockStatistics
    prepare_time_s: float  # load, partition, reorder, permute, count
    aggregation_key: str  # key of A @ H0 in the cache; empty: not stored


Prepared = tuple[PreparedGraph, Preparation]
"""The result of ``prepare``: the whole graph, which stays on rank 0, and its description, which every rank receives."""


def check_preparation(cfg: Config) -> None:
    """Refuse an invalid model or task, or a partition and an order that contradict each other; loads nothing.

    Raises:
        ConfigError: one line, the same in every process that calls this function.
    """
    check_order(build(cfg.partition), cfg.reorder.scope, cfg.reorder.num_blocks)
    model = build(cfg.model, in_channels=1, out_channels=1, seed=cfg.seed)  # raises if a size or a rate is wrong
    _check_task(cfg)
    check_goal(cfg, model)


def check_goal(cfg: Config, model: torch.nn.Module) -> None:
    """Refuse a task of nodes for a model that is made for links.

    Raises:
        ConfigError: one line that names both.
    """
    if getattr(model, "finds_links", False) and not takes_links(cfg.task):
        raise ConfigError(
            f"model={cfg.model['name']} learns links, and task={cfg.task['name']} does not: choose task=link_ranking or"
            " task=link_prediction"
        )


def _check_task(cfg: Config) -> None:
    """Refuse a task whose keys are out of range for any graph."""
    if takes_links(cfg.task):
        build_task(cfg.task, LabelFacts(0), LinkFacts(2, 1))
        return
    given = cfg.task.get("class_weight")
    num_classes = len(given) if isinstance(given, list) else 2
    counts = (1,) * num_classes
    one_class = LabelFacts(num_classes, train_known=(num_classes,), class_counts=counts)
    several = LabelFacts(num_classes, num_classes, binary=True, train_known=counts, train_sum=counts)
    refused: list[ConfigError] = []
    for labels in (one_class, several):
        try:
            build_task(cfg.task, labels, None)
        except ConfigError as error:
            refused.append(error)
        except Exception:  # a task of a user may want other labels
            continue
    if len(refused) == 2:
        raise refused[0]


def prepare(cfg: Config, needs: Needs, num_parts: int, graph: Graph, cache: Cache | None = None) -> Prepared:
    """Cut ``graph`` into ``num_parts`` block rows, and order it.

    The weights of its edges are checked for the matrices that a model with these ``needs`` multiplies by. The order is
    loaded from the ``cache`` if it is stored there.

    Raises:
        DataError, ConfigError, PartitionError: see the packages ``graph``, ``partition`` and ``reorder``.
    """
    begin = time.perf_counter()
    num_edges, dtype = graph.num_edges, np.dtype(cfg.runtime.dtype)
    check_range(graph.features, dtype)
    propagations = needs.propagations
    sums = {one.self_loops: row_sums(graph, one.self_loops) for one in propagations if one.needs_row_sums}
    for one in propagations:
        check_entries(graph, one, sums.get(one.self_loops) if one.needs_row_sums else None, dtype)
    for edge_set in needs.edges:
        check_entries(graph, Propagation("none", edge_set.self_loops), None, dtype)
    cache = cache or Cache(None)
    adjacency_key = cache.key(indptr=graph.indptr, indices=graph.indices, weight=graph.weight)
    order = _order(cfg, num_parts, graph, cache, adjacency_key)
    aggregation_key = (
        _aggregation_key(cfg, graph, order, cache, adjacency_key) if cfg.optimizations.cache_aggregation else ""
    )
    nnz_before = cell_nnz(graph)
    pairs = LinkPairs.of(graph) if needs.pairs else None
    graph = graph.permute(order.perm)
    sums = {self_loops: row_sum[order.perm] for self_loops, row_sum in sums.items()}
    stored = graph.adjacency(np.int8 if graph.weight is None else graph.weight.dtype)
    prepared = PreparedGraph(
        graph, stored, transpose(stored), order.perm, order.partition, dtype, cfg.self_loops, sums, nnz_before, pairs
    )
    sizes = GraphSizes(
        graph.name,
        graph.num_nodes,
        num_edges,
        prepared.matrix.nnz,
        prepared.stored_t is None,
        graph.num_features,
        graph.num_classes,
    )
    statistics = block_statistics(prepared)
    return prepared, Preparation(sizes, order.used, statistics, time.perf_counter() - begin, aggregation_key)


def block_statistics(prepared: PreparedGraph) -> BlockStatistics:
    """Count what reports show about the blocks of ``prepared``. It takes two passes over the non-zeros."""
    matrix, partition = prepared.matrix, prepared.partition
    indptr, indices = (torch.from_numpy(array) for array in (matrix.indptr, matrix.indices))
    density = tile_density(indptr, indices, matrix.shape[1])
    ratio = halo_share(rows_read(matrix, partition), partition.num_nodes) if partition.num_parts > 1 else None
    return BlockStatistics(off_diagonal_share(prepared.block_nnz), ratio, dict(zip(DENSITY_BINS, density)))


def _order(cfg: Config, num_parts: int, graph: Graph, cache: Cache, adjacency_key: str) -> NodeOrder:
    """Load the order of ``graph`` from the ``cache``, or compute and store it.

    An order from a fallback method is not stored, so that the next run tries the requested method again.
    """
    partitioner, method = build(cfg.partition), build(cfg.reorder.method)
    looks_at_mask = base_function(partitioner) not in (contiguous, nnz, random)
    key = cache.key(
        adjacency=adjacency_key,
        train_mask=graph.train_mask if looks_at_mask else None,
        partition=cfg.partition,
        reorder=asdict(cfg.reorder),
        num_parts=num_parts,
        seed=cfg.seed,
    )
    stored = cache.load("order", key)
    if stored is not None:
        log.info(
            "the order of the nodes (%s, %s) is loaded from %s", cfg.partition["name"], cfg.reorder.name, cache.folder
        )
        used = UsedMethods(name_of(partitioner), name_of(method), int(stored["num_blocks"]))
        return NodeOrder(stored["perm"], Partition(stored["bounds"]), used)
    order = two_level(
        graph.adjacency(np.float32),
        graph.train_mask,
        partitioner,
        method,
        cfg.reorder.scope,
        num_parts,
        cfg.reorder.num_blocks,
        cfg.seed,
    )
    used = order.used
    if (used.partition, used.reorder) == (name_of(partitioner), name_of(method)):
        num_blocks = np.array(used.reorder_num_blocks)
        cache.store("order", key, {"perm": order.perm, "bounds": order.partition.bounds, "num_blocks": num_blocks})
    return order


def _aggregation_key(cfg: Config, graph: Graph, order: NodeOrder, cache: Cache, adjacency_key: str) -> str:
    """Key of A @ H0: a hash of the two factors and of scheme and kernel, whose results differ in the last bits.

    Args:
        graph: the graph before ``order`` is applied.
    """
    return cache.key(
        adjacency=adjacency_key,
        features=graph.features,
        perm=order.perm,
        bounds=order.partition.bounds,
        normalization=cfg.normalization,
        self_loops=cfg.self_loops,
        dtype=cfg.runtime.dtype,
        fold_normalization=cfg.optimizations.fold_normalization,
        scheme=cfg.scheme,
        kernel=cfg.kernel,
    )
