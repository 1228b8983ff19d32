"""A whole graph in memory: adjacency, features, labels and split, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from fullgnn.errors import DataError, one_line_errors
from fullgnn.graph.checks import (
    check_indices,
    check_indptr,
    check_masks,
    check_permutation,
    check_weight,
    first_line,
    read_only,
)
from fullgnn.graph.csr import canonical_csr, csr_from_arrays, matrix_of_arcs, with_reverses
from fullgnn.graph.labels import LabelFacts, check_labels, describe_labels, is_labelled
from fullgnn.graph.links import check_links
from fullgnn.graph.masks import MASKS
from fullgnn.graph.node_names import NodeNames, check_class_names, check_node_names
from fullgnn.graph.remarks import noted, of_lonely_nodes
from fullgnn.graph.sparse_features import NodeFeatures, check_node_features
from fullgnn.graph.splits import SplitKeys, with_split

if TYPE_CHECKING:
    from typing import Unpack

    import networkx

    from fullgnn.graph.checks import Fields


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph with its node data. Row ``i`` of the adjacency lists the nodes that ``i`` reads from.

    Most callers use one of the constructors ``from_scipy``, ``from_edge_index``, ``from_networkx``, ``from_pyg``,
    ``from_dgl``, ``from_ogb`` and ``load``.
    The fields are validated, converted where that is safe, never written to, and kept as read-only views: an array
    whose dtype fits is shared with the caller rather than copied. Features, labels and masks may be left out (None):
    which of them are needed depends on the task and on the model.
    """

    indptr: np.ndarray
    """(num_nodes + 1,) int64, row starts."""
    indices: np.ndarray
    """(num_edges,) int32, sorted within a row, no duplicates."""
    features: NodeFeatures = None  # as all fields below: replaced in __post_init__
    """(num_nodes, num_features) float32, or float64 if given so; 0 columns for a graph without features. float16 stays
    float16 where it is mapped from a file (``numpy.load(..., mmap_mode="r")``), and is converted when it is read. A
    sparse matrix of scipy or torch is kept as ``scipy.sparse.csr_array``, see ``sparse_features.py``."""
    labels: np.ndarray = None  # type: ignore[assignment]
    """What the nodes are or have; the dtype of what is passed decides. Integers and booleans (num_nodes,) are classes,
    counted from 0, -1 if unknown, and are stored as int64. Integers and booleans (num_nodes, c) are several labels a
    node, 0 or 1, -1 if unknown, and are stored as int8; one-hot rows of classes are classes as ``argmax(axis=1)``.
    Floats of either shape are values, NaN if unknown, and are stored as float32 or float64; whole ones may stand for
    classes too. A single column (num_nodes, 1) counts as (num_nodes,). Strings and objects are refused with the numpy
    call that converts them, such as ``numpy.unique(labels, return_inverse=True)[1]``. A node whose labels are all
    unknown is in no mask."""
    train_mask: np.ndarray = None  # type: ignore[assignment]
    """(num_nodes,) bool. Passed may be booleans or 0 and 1, also as one column, or the ids of the nodes, each once."""
    val_mask: np.ndarray = None  # type: ignore[assignment]
    """(num_nodes,) bool, as ``train_mask``."""
    test_mask: np.ndarray = None  # type: ignore[assignment]
    """(num_nodes,) bool, as ``train_mask``."""
    weight: np.ndarray | None = None
    """(num_edges,) float32 or float64, no zeros; None where every entry is 1."""
    num_classes: int = 0
    """Number of classes, or of labels a node; 0 derives it from the labels."""
    name: str = "graph"
    """Name shown in records and tables."""
    num_users: int | None = None
    """In a bipartite graph, the nodes below this id are users, the others are items, and each edge joins a user to an
    item. None: the graph is not bipartite."""
    val_links: np.ndarray | None = None
    """(2, E) int64, pairs of nodes that the adjacency has in neither direction, to validate a task that finds links;
    each pair once, in either direction; see ``links.py``. Users stand above items."""
    test_links: np.ndarray | None = None
    """The same for testing."""
    node_names: NodeNames | None = None
    """(num_nodes,) int64 ids, or texts (``node_names.Texts``), by which the owner of the graph knows the nodes;
    predictions are written with them. None: the nodes have their numbers alone."""
    class_names: tuple[str, ...] | None = None
    """The names of the num_classes classes, or labels of a node; None: they have their numbers alone."""
    remarks: Mapping[str, int] = field(default_factory=dict)
    """What was noticed while the graph was made, by name with its count; see ``remarks.py``."""

    @one_line_errors
    def __post_init__(self) -> None:
        indptr = check_indptr(self.indptr)
        indices, num_nodes = check_indices(self.indices, indptr), len(indptr) - 1
        weight = check_weight(self.weight, len(indices))
        features = check_node_features(self.features, num_nodes)
        labels, num_classes = check_labels(self.labels, num_nodes, int(self.num_classes))
        labelled = is_labelled(labels)
        given = {name: getattr(self, name) for name in MASKS}
        masks = check_masks(given, labelled if labelled.any() else None, num_nodes)
        num_users, links = self.num_users, (self.val_links, self.test_links)
        if num_users is not None or any(pairs is not None for pairs in links):
            num_users, links = check_links(num_users, links, indptr, indices)
        node_names = None if self.node_names is None else check_node_names(self.node_names, num_nodes)
        class_names = None if self.class_names is None else check_class_names(self.class_names, num_classes)
        lonely = of_lonely_nodes(indptr, indices, num_users, features.shape[1] > 0, links)
        try:
            remarks = noted(self.remarks, lonely)
        except (AttributeError, TypeError, ValueError) as error:
            raise DataError(f"remarks are counts by name, see fullgnn/graph/remarks.py: {first_line(error)}") from error
        checked: dict[str, Any] = dict(indptr=indptr, indices=indices, weight=weight, features=features, labels=labels)
        checked |= dict(zip(MASKS, masks, strict=True), num_classes=num_classes, num_users=num_users, remarks=remarks)
        checked |= dict(val_links=links[0], test_links=links[1], node_names=node_names, class_names=class_names)
        for name, value in checked.items():
            object.__setattr__(self, name, read_only(value) if isinstance(value, np.ndarray) else value)

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Stored non-zeros: an undirected edge counts twice, a self-loop once."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether the stored adjacency equals its transpose to the bit. The first use passes over all edges."""
        from fullgnn.graph._csr_cpu import is_symmetric  # imported here, since it imports numba

        return is_symmetric(self.indptr, self.indices, self.weight)

    def __repr__(self) -> str:
        """One line: the name, the sizes, what the labels are, and the split. It reads no edge."""
        parts = [
            f"{self.num_nodes} nodes" + ("" if self.num_users is None else f" ({self.num_users} users)"),
            f"{self.num_edges} stored edges" + ("" if self.weight is None else " with weights"),
            f"{self.num_features or 'no'} features" + ("" if isinstance(self.features, np.ndarray) else " (sparse)"),
            describe_labels(self.labels, self.num_classes),
        ]
        masks = {name.removesuffix("_mask"): getattr(self, name) for name in MASKS}
        parts += [f"{name} {mask.sum()}" for name, mask in masks.items() if mask.any()] or ["no split"]
        links = {"val_links": self.val_links, "test_links": self.test_links}
        parts += [f"{name} {pairs.shape[1]}" for name, pairs in links.items() if pairs is not None]
        return f"Graph({self.name}: {', '.join(parts)})"

    @classmethod
    @one_line_errors
    def from_scipy(cls, adj: Any, **fields: Unpack[Fields]) -> Graph:
        """Graph of a scipy sparse matrix: ``adj[i, j] != 0`` means that i reads from j, as for an arc j -> i.

        networkx and most files store an arc u -> v as ``adj[u, v]``, the transpose: pass the ``.T`` of such a matrix.
        ``Graph.from_scipy(networkx.to_scipy_sparse_array(g).T)`` has the arcs of ``Graph.from_networkx(g)``; of an
        undirected graph the transpose is the matrix itself.

        Duplicate entries are summed (boolean ones merged), and explicit zeros are dropped. A mask that is not given
        is all False.

        Args:
            adj: (num_nodes, num_nodes), in any format of scipy.sparse; booleans, integers or floats.
            fields: the other fields of ``Graph`` but ``weight``, by name. ``remarks`` are counts that take the place of
                those that are found here.

        Raises:
            DataError: one line that says which argument is wrong, and what to pass.
        """
        adj, remarks = canonical_csr(adj)
        fields["remarks"] = {**remarks, **(fields.get("remarks") or {})}
        return cls(adj.indptr, adj.indices, weight=None if adj.dtype == bool else adj.data, **fields)

    @classmethod
    @one_line_errors
    def from_edge_index(
        cls, edge_index: Any, *, num_nodes: int | None = None, edge_weight: Any = None, **fields: Unpack[Fields]
    ) -> Graph:
        """Graph of (2, E) arcs, sources above targets: an arc u -> v makes v read from u, ``adj[v, u]``.

        Repeated arcs merge into one; with ``edge_weight`` (E,), their weights are added. Where users above items are
        given once, ``symmetrized`` adds the arcs by which users read from their items.

        Args:
            num_nodes: None: the number of rows of the features.
            fields: as those of ``from_scipy``.
        """
        adj, fields["features"] = matrix_of_arcs(edge_index, fields.get("features"), num_nodes, edge_weight)
        return cls.from_scipy(adj, **fields)

    @classmethod
    @one_line_errors
    def from_networkx(cls, g: networkx.Graph, *, weight: str | None = None, **fields: Unpack[Fields]) -> Graph:
        """Graph of a networkx graph, whose nodes are numbered in the order of ``g.nodes``.

        An undirected edge is stored in both directions. A directed arc u -> v makes v read from u, ``adj[v, u]``: so
        the adjacency is the transpose of ``networkx.to_scipy_sparse_array(g)``. Parallel edges merge into one; with
        ``weight``, their weights are added.

        Args:
            weight: the edge attribute that holds the weights; None: every edge counts 1.
            fields: as those of ``from_scipy``; row i belongs to the i-th node of ``g.nodes``. Attributes of the nodes
                of ``g`` are not read. ``node_names`` None: the nodes of ``g`` themselves, if they are integers or
                strings.

        Raises:
            DataError: one line that says which argument is wrong, and what to pass.
        """
        from fullgnn.graph.convert import networkx_fields

        adj, names, num_merged = networkx_fields(g, weight)
        if fields.get("node_names") is None:
            fields["node_names"] = names
        fields["remarks"] = {"merged_arcs": num_merged, **(fields.get("remarks") or {})}
        return cls.from_scipy(adj, **fields)

    @classmethod
    @one_line_errors
    def from_pyg(
        cls,
        data: Any,
        *,
        edge_weight: Any = "auto",
        num_classes: int = 0,
        name: str = "graph",
        split: int | None = None,
    ) -> Graph:
        """Graph of a ``torch_geometric.data.Data``, or of another object with its attributes.

        Taken are ``edge_index`` (2, E), where an arc u -> v makes v read from u, as in PyG, or without it ``adj_t``, a
        SparseTensor or a sparse tensor of torch, of which a row lists what a node reads from; ``x`` (num_nodes, F) as
        the features; ``y`` as the labels; ``train_mask``, ``val_mask`` and ``test_mask``; ``num_nodes``, if there is no
        ``x``; and the weights. Each of them but ``edge_index`` may be absent or None. Nothing else is read. Repeated
        arcs merge into one, and their weights are added.

        Args:
            edge_weight: the weights, (E,) or (E, 1), such as ``data.edge_attr``; None: every edge counts 1. By default
                they are ``data.edge_weight`` or, without it, floating-point numbers of ``data.edge_attr``, one an edge.
                An ``edge_attr`` of integers or booleans is refused: relations and times are no weights, so say whether
                these are. An ``edge_attr`` of several columns is not read. A remark says which of the two was done.
            num_classes, name: see the fields of ``Graph``.
            split: the column of masks (num_nodes, s), which have a split a column; None: the masks have one split.

        Raises:
            DataError: one line that says which attribute is wrong, and what to set.
        """
        from fullgnn.graph.convert import pyg_fields

        return cls.from_edge_index(**pyg_fields(data, edge_weight, split), num_classes=num_classes, name=name)

    @one_line_errors
    def split(
        self,
        method: str = "random",
        *,
        train_fraction: float | None = None,
        val_fraction: float | None = None,
        train_per_class: int | None = None,
        num_val: int | None = None,
        num_folds: int | None = None,
        fold: int | None = None,
        groups: Any = None,
        seed: int = 0,
    ) -> Graph:
        """This graph with its labelled nodes split anew, in place of the split that it has; see ``splits.py``.

        A remark has the method, the keys, the seed and the number of nodes. The keys of the command line,
        ``dataset.split=METHOD dataset.split_seed=...``, draw the same split.

        Args:
            method: random; stratified, by class; per_class; group; or kfold, of which ``fold`` is for testing.
            train_fraction, val_fraction: shares of the labelled nodes, by default 0.6 and 0.2; the rest are for
                testing. kfold has no ``train_fraction``: what is neither in the fold nor for validation is for
                training.
            train_per_class, num_val: of per_class, by default 20 and 500.
            num_folds, fold: of kfold, by default 5 and 0.
            groups: of group, (num_nodes,) integers or texts, the group of each node.

        Raises:
            ConfigError: one line that names the key that does not fit, or would do nothing.
            DataError: no node has a label.
        """
        keys = SplitKeys(train_fraction, val_fraction, train_per_class, num_val, num_folds, fold, groups)
        return with_split(self, method, keys, seed)

    def to_pyg(self) -> Any:
        """This graph as a ``torch_geometric.data.Data``, of which ``Graph.from_pyg`` makes an equal one: ``edge_index``
        with sources above targets, ``edge_weight``, ``x``, ``y``, the three masks and ``num_nodes``.

        What the graph does not have is left out. Sparse features become a sparse CSR tensor. All arrays are copied.

        Raises:
            UnsupportedError: torch_geometric is not installed.
        """
        from fullgnn.graph.convert import to_pyg

        return to_pyg(self)

    @classmethod
    @one_line_errors
    def from_dgl(
        cls,
        g: Any,
        *,
        edge_weight: str | None = None,
        features: str = "feat",
        labels: str = "label",
        split: int | None = None,
        num_classes: int = 0,
        name: str = "graph",
    ) -> Graph:
        """Graph of a DGLGraph with nodes and edges of one type, or of another object with its attributes.

        Taken are ``g.edges()``, where an arc u -> v makes v read from u, as in DGL; ``g.num_nodes()``; and of
        ``g.ndata`` the features, the labels, ``train_mask``, ``val_mask`` and ``test_mask``, each of which may be
        absent. Repeated arcs merge into one, and their weights are added.

        Args:
            edge_weight: the name in ``g.edata`` of the weights, (E,) or (E, 1); None: every edge counts 1, and a remark
                says how many fields of ``g.edata`` are not read.
            features, labels: their names in ``g.ndata``.
            split: which of several splits, if the masks are (num_nodes, s): their column.
            num_classes, name: see the fields of ``Graph``.

        Raises:
            DataError: one line that says what is wrong, and what to pass.
        """
        from fullgnn.graph.convert import dgl_fields

        arguments = dgl_fields(g, edge_weight, features, labels, split)
        return cls.from_edge_index(**arguments, num_classes=num_classes, name=name)

    @classmethod
    @one_line_errors
    def from_ogb(cls, dataset: Any, *, edge_weight: int | None = None, name: str | None = None) -> Graph:
        """Graph of a node property prediction dataset of the package ``ogb``.

        Args:
            dataset: a ``NodePropPredDataset``, ``PygNodePropPredDataset`` or ``DglNodePropPredDataset``, with its
                split; or the pair of a graph, which is a dictionary, and of the labels that is the first's
                ``dataset[0]``, without a split. An edge u, v of it is an arc u -> v, by which v reads from u. A label
                that is NaN is not known; nodes of the split without a label are in no mask. Of nodes of several kinds,
                as in ogbn-mag, those of the kind with labels are kept, with the arcs between them.
            edge_weight: column of the edge features that has the weights; None: every edge counts 1, and a remark says
                how many columns are not read.
            name: see the field of ``Graph``; None: the dataset's.

        Raises:
            DataError: one line that says what is wrong, and what to pass.
        """
        named = str(getattr(dataset, "name", "graph")) if name is None else name
        from fullgnn.graph.ogb import ogb_fields

        return cls.from_edge_index(**ogb_fields(dataset, edge_weight), name=named)

    @classmethod
    @one_line_errors
    def load(cls, path: str | PathLike[str]) -> Graph:
        """The graph in an .npz file that ``save`` has written, or another one in the layout of gnn-benchmark, as
        ``dataset=npz dataset.path=...`` reads it; or in the layout of Platonov et al. (2023), as
        ``dataset=heterophilous`` reads it.

        Raises:
            DataError: the file is missing or damaged, or holds no graph.
        """
        from fullgnn.graph.datasets.npz import load_npz  # imported here, since the datasets import this file

        return load_npz(path)

    @classmethod
    @one_line_errors
    def from_tables(
        cls,
        edges: Any,
        nodes: Any = None,
        *,
        source: str | None = None,
        target: str | None = None,
        weight: Any = None,
        node: str | None = None,
        features: Any = None,
        feature_channels: int | None = None,
        feature_table: Any = None,
        feature_node: str | None = None,
        feature_name: str | None = None,
        feature_value: Any = None,
        label: Any = None,
        label_type: str | None = None,
        split_columns: Any = None,
        mask_columns: Any = None,
        split: int | None = None,
        unknown_nodes: str = "refuse",
        seed: int = 0,
        name: str = "graph",
    ) -> Graph:
        """Graph of a table of edges and, if there is one, a table of nodes, as ``dataset=table`` reads files.

        An edge from source to target makes the target read from the source. Repeated edges merge into one, and their
        weights are added. The ids of the nodes, integers or texts, become ``node_names``, unless they are 0, 1, 2, ...

        Args:
            edges, nodes: a table of pandas, polars or pyarrow, another object with ``__arrow_c_stream__``, a mapping of
                columns, or a path; or a list of these. Without ``nodes``, the nodes are the ids of the edges in
                ascending order.
            feature_table: the same, of features that are mostly 0: a row for each other number, with a node, a feature
                and, if it is not 1, a value. The features are then sparse.
            source, target, node, feature_node, feature_name: names of columns; None: found by usual names.
            weight, features, feature_value, label, split_columns: names of columns, or lists of them; None: found by
                usual names; []: there are none. ``features`` may also be ``identity``, ``degree`` or ``random``.
            mask_columns: three names, of a mask of the training, validation and test nodes, in the place of
                ``split_columns``.
            feature_channels, label_type, split, unknown_nodes, seed: as the keys of ``dataset=table``, see
                ``docs/configuration.md``.

        Raises:
            ConfigError: a column is not there, or several may be meant.
            DataError: a value is missing or wrong; the message names the row and the column.
        """
        from fullgnn.graph.datasets.table_columns import TableKeys
        from fullgnn.graph.datasets.table_graph import planned
        from fullgnn.graph.datasets.table_read import graph_of
        from fullgnn.graph.datasets.table_source import sources_of

        keys = TableKeys.of(locals())
        plan = planned(
            sources_of(edges, "edges"),
            [] if nodes is None else sources_of(nodes, "nodes"),
            [] if feature_table is None else sources_of(feature_table, "feature_table"),
            keys,
        )
        return graph_of(plan, name)

    def label_facts(self) -> LabelFacts:
        """What every rank knows of the labels of this graph."""
        return LabelFacts.of(self.labels, self.num_classes, self.train_mask, self.class_names)

    def adjacency(self, dtype: Any = np.float64) -> csr_array:
        """The adjacency as CSR: ``adj[i, j] != 0`` means that i reads from j. Its indices are this graph's, int32."""
        data = np.ones(self.num_edges, dtype) if self.weight is None else self.weight.astype(dtype)
        return csr_from_arrays(data, self.indices, self.indptr)

    @one_line_errors
    def symmetrized(self) -> Graph:
        """This graph with every arc in both directions; the same object if the graph is symmetric already.

        Where both directions are stored, the larger weight counts; where only one is stored, its weight does.
        """
        indptr, indices, weight, unequal = with_reverses(self.indptr, self.indices, self.weight)
        same = weight is None or self.weight is None or np.array_equal(weight, self.weight)
        if len(indices) == self.num_edges and same:
            return self  # A >= A^T everywhere, hence A = A^T
        remarks = {**self.remarks, "unequal_weights": unequal}
        return replace(self, indptr=indptr, indices=indices, weight=weight, remarks=remarks)

    @one_line_errors
    def permute(self, perm: Any) -> Graph:
        """The same graph under other node ids: new node ``i`` is old node ``perm[i]``.

        Where users do not stay before all items, the result has no ``num_users``.
        """
        from fullgnn.graph._csr_cpu import permuted  # imported here, since it imports numba

        perm = check_permutation(perm, self.num_nodes)
        indptr, indices, weight = permuted(self.indptr, self.indices, self.weight, perm)
        new_id = np.argsort(perm)
        users = self.num_users
        return replace(
            self,
            indptr=indptr,
            indices=indices,
            features=self.features[perm],
            labels=self.labels[perm],
            weight=weight,
            **{name: getattr(self, name)[perm] for name in MASKS},
            num_users=None if users is None or perm[:users].max() >= users else users,
            val_links=None if self.val_links is None else new_id[self.val_links],
            test_links=None if self.test_links is None else new_id[self.test_links],
            node_names=None if self.node_names is None else self.node_names[perm],
        )

    @one_line_errors
    def save(self, path: str | PathLike[str]) -> None:
        """Write the graph to ``path``; ``Graph.load`` and ``dataset=npz dataset.path=...`` read an identical graph.

        The layout is gnn-benchmark's, with dense or sparse features and with masks. In that layout ``adj[u, v]`` is an
        arc u -> v, so the file holds the transpose of ``adjacency()``.

        Raises:
            DataError: the file cannot be written.
        """
        from fullgnn.graph.datasets.npz import save_npz  # imported here, since the datasets import this file

        save_npz(self, Path(path))
