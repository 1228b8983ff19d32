"""Order a graph, and cut it into block rows, in the memory of this process.

    order      partition and reorder number the nodes (``reorder/two_level.py``)
    permute    the rows of A, and of its transpose where they differ, in the new order
    count      what each block row has and reads: one pass over the non-zeros of each part

Features, labels and masks are permuted part by part, when a part is asked for.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from fullgnn.codecs import CodecContext, Features, State, build_codec, encoded, num_bytes, packed
from fullgnn.config import Config, build, is_encoded
from fullgnn.graph import Graph
from fullgnn.graph.csr import csr_from_arrays
from fullgnn.graph.links import LinkPairs
from fullgnn.graph.node_names import NodeNames, names_to_arrays
from fullgnn.graph.remarks import is_nearly_symmetric, noted, of_classes
from fullgnn.graph.sparse_features import NodeFeatures, features_to_arrays
from fullgnn.partition import Partition, contiguous, nnz, random
from fullgnn.partition.facts import BlockCounts, GraphFacts, NodeFacts
from fullgnn.partition.partition import UsedMethods, base_function, name_of
from fullgnn.partition.prepared import LISTS, LazyArrays, Part, PreparedGraph, StoredRows, TakenRows
from fullgnn.reorder import two_level
from fullgnn.reorder.two_level import NodeOrder
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.log import announce

if TYPE_CHECKING:
    from fullgnn.prepare.source import Preparation

log = logging.getLogger(__name__)


def arrange(preparation: "Preparation", graph: Graph, load_time_s: float) -> PreparedGraph:
    """Order ``graph``, and cut it into block rows. The order is loaded from the cache if it is there.

    Args:
        load_time_s: for the facts.

    Raises:
        ConfigError, DataError, PartitionError: see the packages ``graph``, ``partition`` and ``reorder``.
    """
    begin, cfg = time.perf_counter(), preparation.cfg
    order = node_order(cfg, preparation.num_parts, graph, preparation.cache)
    links = LinkPairs.of(graph) if preparation.has_pairs else None
    nodes = NodeFacts.of(graph, None if links is None else links.facts)
    prepared = cut(graph, order, nodes, links, _encoded(cfg, graph, preparation.codec_context))
    facts = replace(prepared.facts, load_time_s=load_time_s, prepare_time_s=time.perf_counter() - begin)
    return replace(prepared, facts=facts)


def cut(
    graph: Graph,
    order: NodeOrder,
    nodes: NodeFacts,
    links: LinkPairs | None = None,
    encoded: tuple[np.ndarray, State] | None = None,
) -> PreparedGraph:
    """Cut ``graph`` into the block rows of an ``order``.

    Args:
        links: the pairs of the graph, for a task that finds links.
        encoded: rows that take the place of the features, and the state of their codec.

    Returns:
        the prepared graph, whose facts name no times.
    """
    whole = _Arranged(graph, order, links, encoded)
    counts = whole.counted()
    remarks = _remarks(whole, counts, nodes, links is not None)
    facts = GraphFacts(
        nodes,
        graph.num_nodes,
        graph.num_edges,
        graph.num_classes,
        whole.columns is None,
        graph.weight is not None,
        order.partition,
        counts,
        order.used,
        0.0,  # load_time_s
        0.0,  # prepare_time_s
        noted(remarks, graph.remarks, {} if links is None else links.remarks),
        *(("", 0, 0) if encoded is None else (encoded[0].dtype.str, encoded[0].shape[1], num_bytes(*encoded))),
    )
    return PreparedGraph(facts, whole.part)


@dataclass(eq=False)
class _Arranged:
    """A whole graph, whose structure is in the new order."""

    graph: Graph  # in the order of the dataset
    order: NodeOrder
    links: LinkPairs | None
    encoded: tuple[np.ndarray, State] | None

    def __post_init__(self) -> None:
        from fullgnn.graph._csr_cpu import is_symmetric, permuted  # imported here, since it imports numba

        graph, perm = self.graph, self.order.perm
        if np.array_equal(perm, np.arange(len(perm))):
            self.rows = StoredRows(graph.indptr, graph.indices, graph.weight)
        else:
            self.rows = StoredRows(*permuted(graph.indptr, graph.indices, graph.weight, perm))
        # In the new order the rows that are compared lie near each other.
        symmetric = is_symmetric(self.rows.indptr, self.rows.indices, self.rows.weight)
        self.columns = None if symmetric else _transposed(self.rows)
        self._reads: dict[str, list[np.ndarray]] = {"reads": [], "reads_train": [], "columns_reads": []}

    def counted(self) -> BlockCounts:
        """Count the non-zeros of the blocks, and find the rows that each part reads."""
        from fullgnn.graph._csr_cpu import count_rows  # imported here, since it imports numba

        graph, bounds, perm = self.graph, self.order.partition.bounds, self.order.perm
        masks = graph.train_mask, graph.val_mask, graph.test_mask
        counts: list[tuple[np.ndarray, ...]] = []
        for part in range(self.order.partition.num_parts):
            nodes = perm[self.order.partition.slice(part)]
            split = np.array([np.count_nonzero(mask[nodes]) for mask in masks])
            train = graph.train_mask[nodes]
            rows, first = self._slice(self.rows, part), int(bounds[part])
            nnz, loops, seen = count_rows(rows.indptr, rows.indices, first, train, bounds)
            counts.append((nnz[0], nnz[1], loops[0], loops[1], split))
            self._reads["reads"].append(np.flatnonzero(seen[0]).astype(np.int32))
            self._reads["reads_train"].append(np.flatnonzero(seen[1]).astype(np.int32))
            if self.columns is not None:
                rows = self._slice(self.columns, part)
                seen = count_rows(rows.indptr, rows.indices, first, np.zeros_like(train), bounds)[2]
                self._reads["columns_reads"].append(np.flatnonzero(seen[0]).astype(np.int32))
        return BlockCounts(*(np.stack(by_part) for by_part in zip(*counts)))

    def num_isolated(self) -> int:
        """Nodes without an entry in their row and their column; ``counted`` has been called."""
        joined = np.diff(self.rows.indptr) > 0
        if not joined.all():
            for reads in self._reads["reads"]:
                joined[reads] = True
        return int(np.count_nonzero(~joined))

    def num_one_way(self) -> int:
        """Entries whose reverse is no entry."""
        if self.columns is None:
            return 0
        from fullgnn.graph._csr_cpu import count_common  # imported here, since it imports numba

        rows, columns = self.rows, self.columns
        return self.graph.num_edges - count_common(rows.indptr, rows.indices, columns.indptr, columns.indices)

    def part(self, number: int) -> Part:
        """The part ``number``, whose arrays are views or made when they are asked for."""
        graph, nodes = self.graph, self.order.perm[self.order.partition.slice(number)]
        masks = graph.train_mask, graph.val_mask, graph.test_mask
        make: dict[str, Callable[[], Any]] = {
            "node_id": lambda: nodes,
            "labels": lambda: graph.labels[nodes],
            "masks": lambda: np.stack([mask[nodes] for mask in masks]),
        }
        make |= _feature_makers(graph.features if self.encoded is None else self.encoded[0], nodes)
        for prefix, rows in (("", self.rows), ("columns_", self.columns)):
            if rows is not None:
                make |= _makers(prefix, self._slice(rows, number))
        if graph.node_names is not None:
            make |= _name_makers(graph.node_names, nodes)
        for name, reads in self._reads.items():
            if reads:
                make[name] = _constant(reads[number])
        if self.encoded is not None:
            make["codec_state"] = _constant(packed(self.encoded[1]))
        if self.links is not None:
            make |= _pair_makers(self.links, nodes)
        return Part(LazyArrays(make))

    def _slice(self, whole: StoredRows, part: int) -> StoredRows:
        rows = self.order.partition.slice(part)
        indptr = whole.indptr[rows.start : rows.stop + 1]
        edges = slice(int(indptr[0]), int(indptr[-1]))
        weight = None if whole.weight is None else whole.weight[edges]
        return StoredRows(indptr - indptr[0], whole.indices[edges], weight)


def _remarks(whole: _Arranged, counts: BlockCounts, nodes: NodeFacts, finds_links: bool) -> dict[str, int]:
    """What there is to say of a graph that has been counted; a count may be 0.

    Remarks on pairs, on users and on unused ids say the same of nodes without an edge, and of arcs of one direction.
    """
    graph, known = whole.graph, whole.graph.remarks.keys()
    remarks = {"self_loops": int(counts.loops.sum())}
    if not known & {"unused_ids", "cold_users", "cold_items"}:
        remarks["isolated_nodes"] = whole.num_isolated()
    if not finds_links:
        one_way = whole.num_one_way()
        remarks["missing_reverse_arcs"] = one_way if is_nearly_symmetric(graph.num_edges, one_way) else 0
        remarks |= of_classes(graph.labels, graph.num_classes, nodes.labels.class_counts)
    return remarks


def _encoded(cfg: Config, graph: Graph, context: CodecContext) -> tuple[np.ndarray, State] | None:
    """The features of ``graph`` as the codec of ``cfg`` keeps them, and its state; None: as they are."""
    codec = build_codec(cfg.codec, context) if is_encoded(cfg.codec) else None
    if codec is None:
        return None
    features = Features(graph.features, cfg.runtime.dtype, graph)
    return encoded(codec, Cache(None), dict(cfg.codec), features, context.state)


def _transposed(rows: StoredRows) -> StoredRows:
    data = np.ones(len(rows.indices), np.int8) if rows.weight is None else rows.weight
    transposed = csr_from_arrays(data, rows.indices, rows.indptr).T.tocsr()
    indices, indptr = transposed.indices.astype(np.int32, copy=False), transposed.indptr.astype(np.int64)
    return StoredRows(indptr, indices, None if rows.weight is None else transposed.data)


def _constant(array: np.ndarray) -> Callable[[], np.ndarray]:
    return lambda: array


def _makers(prefix: str, rows: StoredRows) -> dict[str, Callable[[], np.ndarray]]:
    arrays = {"indptr": rows.indptr, "indices": rows.indices, "weight": rows.weight}
    return {f"{prefix}{name}": _constant(array) for name, array in arrays.items() if array is not None}


def _feature_makers(features: NodeFeatures, nodes: np.ndarray) -> dict[str, Callable[[], Any]]:
    """The arrays of the features of some ``nodes``; of sparse ones, the rows are picked once for all arrays."""
    if isinstance(features, np.ndarray):
        return {"features": lambda: TakenRows(features, nodes)}

    @cache
    def picked() -> csr_array:
        return features[nodes]

    def array(name: str) -> Callable[[], np.ndarray]:
        return lambda: features_to_arrays(picked())[name]

    return {name: array(name) for name in features_to_arrays(features)}


def _name_makers(names: NodeNames, nodes: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    def maker(key: str) -> Callable[[], np.ndarray]:
        return lambda: names_to_arrays(names[nodes])[key]

    return {key: maker(key) for key in names_to_arrays(names[:0])}


def _pair_makers(links: LinkPairs, nodes: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    def field(name: str, key: str) -> Callable[[], np.ndarray]:
        return lambda: getattr(getattr(links, name).of(nodes), key)

    starts = links.train.indptr, links.val.indptr, links.test.indptr
    lists = {f"{name}_{key}": field(name, key) for name in LISTS for key in ("indptr", "ids")}
    return {"first_pairs": lambda: np.stack([indptr[nodes] for indptr in starts]), **lists}


def check_order(arrays: dict[str, np.ndarray], num_nodes: int, num_parts: int) -> None:
    """Refuse arrays of the cache that are not a permutation of the nodes, and the bounds of the parts.

    Raises:
        KeyError, ValueError: they are not.
    """
    perm, bounds, num_blocks = (arrays[name] for name in ("perm", "bounds", "num_blocks"))
    kinds = all(array.dtype.kind in "iu" for array in (perm, bounds, num_blocks))
    if not kinds or (perm.shape, bounds.shape, num_blocks.shape) != ((num_nodes,), (num_parts + 1,), ()):
        raise ValueError("it is the order of another graph")
    if (bounds[0], bounds[-1]) != (0, num_nodes) or (bounds[1:] < bounds[:-1]).any():
        raise ValueError("the bounds of its parts do not rise")
    if perm.min() < 0 or perm.max() >= num_nodes or (np.bincount(perm) != 1).any():
        raise ValueError("it is no permutation of the nodes")


def node_order(cfg: Config, num_parts: int, graph: Graph, cache: Cache) -> NodeOrder:
    """Load the order of ``graph`` from the ``cache``, or compute and store it.

    An order from a fallback method is not stored, so that the next run tries the requested method again.
    """
    partitioner, method = build(cfg.partition), build(cfg.reorder.method)
    looks_at_mask = base_function(partitioner) not in (contiguous, nnz, random)
    adjacency = {"indptr": graph.indptr, "indices": graph.indices, "weight": graph.weight}
    key = cache.key(
        **adjacency,
        train_mask=graph.train_mask if looks_at_mask else None,
        partition=cfg.partition,
        reorder=asdict(cfg.reorder),
        num_parts=num_parts,
        seed=cfg.seed,
    )

    def stored_order(arrays: dict[str, np.ndarray]) -> NodeOrder:
        check_order(arrays, graph.num_nodes, num_parts)
        used = UsedMethods(name_of(partitioner), name_of(method), int(arrays["num_blocks"]))
        return NodeOrder(arrays["perm"], Partition(arrays["bounds"]), used)

    if stored := cache.load("order", key, stored_order):
        log.info(
            "the order of the nodes (%s, %s) is loaded from %s", cfg.partition["name"], cfg.reorder.name, cache.folder
        )
        return stored
    works = f"partition={name_of(partitioner)}", f"reorder={name_of(method)}"
    announce(f"{graph.name}: the nodes are ordered ({', '.join(works)})", graph.num_edges, works)
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
