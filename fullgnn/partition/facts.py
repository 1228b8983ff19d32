"""Facts of a prepared graph that every rank knows, however large the graph is."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.graph.labels import LabelFacts, is_labelled
from fullgnn.graph.links import LinkFacts
from fullgnn.graph.node_names import Texts
from fullgnn.graph.remarks import known
from fullgnn.graph.sparse_features import density, elements
from fullgnn.partition import Partition
from fullgnn.partition.partition import UsedMethods
from fullgnn.storage.text import of_fields

SAMPLE = 1 << 20
"""How many elements of a large array a ``Fingerprint`` reads."""


def _step(size: int) -> int:
    return -(-size // SAMPLE) or 1


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
            array = np.empty(0) if array is None else array
            size = math.prod(array.shape)
            digest.update(f"{array.dtype.str} {size} ".encode())
            digest.update(np.ascontiguousarray(elements(array, _step(size))).view(np.uint8).data)
        sizes = graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes
        return cls(*sizes, digest.hexdigest())


@dataclass(frozen=True)
class NodeFacts:
    """What the model, the task and checkpoints need to know of a graph. All counts are GLOBAL."""

    name: str
    num_features: int
    labels: LabelFacts
    fingerprint: Fingerprint
    has_labels: bool  # whether a node of the split has a label
    links: LinkFacts | None = None  # None: the task does not find links
    sparse: bool = False  # whether the features are kept as a sparse matrix
    density: float = 1.0  # share of the features that are not 0; of large dense ones, among ``SAMPLE`` numbers
    node_names: str = ""  # what the names of the nodes are, ``integers`` or ``texts``; empty: they have none

    @classmethod
    def of(cls, graph: Graph, links: LinkFacts | None = None) -> "NodeFacts":
        split = graph.train_mask | graph.val_mask | graph.test_mask
        has_labels = bool((split & is_labelled(graph.labels)).any())
        names = "" if graph.node_names is None else "texts" if isinstance(graph.node_names, Texts) else "integers"
        return cls(
            graph.name,
            graph.num_features,
            graph.label_facts(),
            Fingerprint.of(graph),
            has_labels,
            links,
            not isinstance(graph.features, np.ndarray),
            density(graph.features, _step(math.prod(graph.features.shape))),
            names,
        )


@dataclass(frozen=True, eq=False)
class BlockCounts:
    """How the stored non-zeros lie in the blocks of a graph, and in those of its training rows."""

    nnz: np.ndarray  # (b, b) int64, of each block
    train_nnz: np.ndarray  # (b, b) int64, of the training rows of each block
    loops: np.ndarray  # (b,) int64, stored self-loops of each block row
    train_loops: np.ndarray  # (b,) int64, those of training rows
    split: np.ndarray  # (b, 3) int64, nodes for training, validation and testing of each block row

    def block_nnz(self, sizes: np.ndarray, self_loops: bool) -> np.ndarray:
        """(b, b) int64, the non-zeros of each block; with ``self_loops``, of A with its whole diagonal.

        Args:
            sizes: (b,) rows of each block row.
        """
        return self.nnz + np.diag(sizes - self.loops) if self_loops else self.nnz

    def train_block_nnz(self, self_loops: bool) -> np.ndarray:
        """(b, b) int64, the same of the training rows."""
        return self.train_nnz + np.diag(self.split[:, 0] - self.train_loops) if self_loops else self.train_nnz


@dataclass(frozen=True)
class GraphFacts:
    """What every rank knows of a prepared graph. All counts are GLOBAL."""

    nodes: NodeFacts
    num_nodes: int
    num_edges: int  # stored non-zeros
    num_classes: int
    symmetric: bool  # whether the stored adjacency equals its transpose to the bit
    weighted: bool  # whether it has weights
    partition: Partition  # block rows
    counts: BlockCounts
    methods: UsedMethods  # how the nodes were ordered
    load_time_s: float
    prepare_time_s: float  # partition, reorder, permute, cut and count
    remarks: Mapping[str, int] = field(default_factory=dict)  # see ``graph/remarks.py``
    encoded_dtype: str = ""  # of the features, if a codec has encoded them; empty: they are as they are
    encoded_width: int = 0  # columns of the encoded features
    encoded_bytes: int = 0  # of the encoded features of all nodes, see ``fullgnn.codecs.num_bytes``

    @property
    def num_parts(self) -> int:
        return self.partition.num_parts

    @cached_property
    def num_split_nodes(self) -> tuple[int, int, int]:
        """Nodes for training, validation and testing."""
        num_train, num_val, num_test = self.counts.split.sum(axis=0).tolist()
        return num_train, num_val, num_test

    @property
    def keeps_sparse_features(self) -> bool:
        """Whether the parts keep the features as sparse matrices."""
        return self.nodes.sparse and not self.encoded_dtype

    def block_nnz(self, self_loops: bool) -> np.ndarray:
        """(b, b) int64, see ``BlockCounts.block_nnz``."""
        return self.counts.block_nnz(self.partition.sizes, self_loops)

    def nnz(self, self_loops: bool) -> int:
        """The non-zeros of A; with ``self_loops``, with its whole diagonal."""
        return int(self.block_nnz(self_loops).sum())

    def check(self) -> None:
        """Refuse facts that contradict each other.

        Raises:
            DataError: one line that names the fact.
        """
        sizes, counts, nodes = self.partition.sizes, self.counts, self.nodes
        b = len(sizes)
        for name, shape in {
            "nnz": (b, b),
            "train_nnz": (b, b),
            "loops": (b,),
            "train_loops": (b,),
            "split": (b, 3),
        }.items():
            array = getattr(counts, name)
            if array.shape != shape or array.min(initial=0) < 0:
                raise DataError(f"counts.{name} is not {shape} counts")
        printed = nodes.fingerprint
        equal = {
            "num_nodes": (self.num_nodes, self.partition.num_nodes, printed.num_nodes),
            "num_edges": (self.num_edges, int(counts.nnz.sum()), printed.num_edges),
            "num_features": (nodes.num_features, printed.num_features),
            "num_classes": (self.num_classes, printed.num_classes),
            "links.num_nodes": (self.num_nodes, self.num_nodes if nodes.links is None else nodes.links.num_nodes),
        }
        for name, values in equal.items():
            if len(set(values)) != 1:
                raise DataError(f"{name} is {' and '.join(map(str, dict.fromkeys(values)))}")
        if not 0 < self.num_nodes < 2**31:
            raise DataError(f"num_nodes is {self.num_nodes}")
        within = {"train_nnz": counts.nnz, "loops": sizes, "train_loops": counts.loops, "split": sizes[:, None]}
        for name, limit in within.items():
            if (getattr(counts, name) > limit).any():
                raise DataError(f"counts.{name} is larger than the graph")
        if nodes.links is not None and (nodes.links.num_users or 0) > self.num_nodes:
            raise DataError(f"links.num_users is {nodes.links.num_users}")
        nodes.labels.check()

    def to_json(self) -> dict[str, Any]:
        """The facts as plain values, from which ``from_json`` makes them again."""
        return _plain(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "GraphFacts":
        """The facts of which ``to_json`` has made ``values``.

        Raises:
            DataError: a value is missing, or is not one of ours.
            KeyError, PartitionError, TypeError: the same.
        """
        nodes, partition = values["nodes"], values["partition"]
        links = nodes["links"]
        facts = {
            "labels": of_fields(LabelFacts, nodes["labels"]),
            "fingerprint": of_fields(Fingerprint, nodes["fingerprint"]),
            "links": None if links is None else of_fields(LinkFacts, links),
        }
        made = {
            "nodes": of_fields(NodeFacts, nodes, facts),
            "partition": of_fields(Partition, partition),
            "counts": of_fields(BlockCounts, values["counts"]),
            "methods": of_fields(UsedMethods, values["methods"]),
            "remarks": known(values.get("remarks", {})),
        }
        return of_fields(cls, values, made)


def edge_cut(facts: GraphFacts, self_loops: bool) -> float:
    """Fraction of the non-zeros of A that join two block rows."""
    return off_diagonal_share(facts.block_nnz(self_loops))


def off_diagonal_share(nnz: np.ndarray) -> float:
    """The share of the (b, b) non-zeros ``nnz`` that lie outside the diagonal blocks."""
    return float((nnz.sum() - np.trace(nnz)) / max(nnz.sum(), 1))


def _plain(value: Any) -> Any:
    """``value`` as dictionaries, lists and numbers, of which JSON consists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value
