"""What an inspection finds: plain numbers, in frozen dataclasses. None stands for what this graph does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fullgnn.errors import DataError
from fullgnn.storage.text import of_fields


@dataclass(frozen=True)
class Degrees:
    """How many neighbours a node has, over all nodes. A percentile is the least degree that so many nodes do not
    exceed, so that it is the degree of a node."""

    min: int
    median: int
    p90: int
    p99: int
    max: int
    mean: float
    zero_share: float  # of all nodes
    histogram: tuple[int, ...]  # nodes of degree 0, of degree 1, of 2 to 3, of 4 to 7, and so on


@dataclass(frozen=True)
class Topology:
    """Degrees, components, and entries that are not plain edges."""

    in_degrees: Degrees  # the nodes that a node reads
    out_degrees: Degrees  # the nodes that read it
    symmetric: bool  # whether the adjacency equals its transpose to the bit
    self_loops: int
    isolated_nodes: int  # that neither read nor are read
    only_self_loop: int  # nodes that read, and are read by, themselves alone
    one_way_arcs: int  # u -> v without v -> u
    num_components: int  # weak: directions do not matter
    largest_components: tuple[int, ...]  # nodes of at most five of them
    weights: tuple[float, float] | None  # the least and the largest; None: all are 1
    negative_weights: int


@dataclass(frozen=True)
class Homophily:
    """How often neighbours have the same class; see ``labels.homophily`` for the formulas."""

    edge: float | None
    node: float | None
    adjusted: float | None
    num_arcs: int  # between two different nodes with a label


@dataclass(frozen=True)
class Labels:
    """What the labels are, and how they lie in the split.

    Counts by class are, for several labels a node, those of the nodes that have each label; there are none for values.
    """

    kind: str  # as ``Graph`` prints it, such as "5 classes"
    class_names: tuple[str, ...] | None
    num_labelled: int
    split: dict[str, int]  # nodes by train, val, test and none
    classes: dict[str, tuple[int, ...]]  # by class, the labelled nodes of each part of the split
    means: dict[str, tuple[float, float]]  # of values: mean and standard deviation in each part of the split
    homophily: Homophily | None
    num_several: int | None = None  # nodes that have several labels; None: the labels are classes or values


@dataclass(frozen=True)
class Leaks:
    """Test nodes whose answer training may know. None: there are no training or test nodes, or nothing to compare."""

    num_test: int
    same_neighbours: int | None  # test nodes with a training node of the same in- and out-neighbours, not both empty
    same_features: int | None  # test nodes with a training node of the same features, which are not all 0
    label_columns: tuple[int, ...]  # feature columns that are the label, or a one-to-one map of it
    class_columns: tuple[int, ...]  # further columns that are constant within each class, such as a one-hot label


@dataclass(frozen=True)
class Column:
    """A feature column, and its standard deviation."""

    number: int
    deviation: float


@dataclass(frozen=True)
class FeatureFacts:
    """What the feature columns are like. A list of columns has at most ``MAX_COLUMNS``; its count is of all."""

    num_columns: int
    dtype: str
    density: float  # share of the numbers that are not 0
    sparse: bool  # whether the graph keeps them as a sparse matrix
    dense_bytes: int
    sparse_bytes: int  # as CSR: a number and a column of 4 bytes for each number that is not 0, and a row start
    empty_rows: int  # nodes whose features are all 0
    num_empty: int  # columns of zeros
    empty: tuple[int, ...]
    num_constant: int  # columns of one other number
    constant: tuple[int, ...]
    narrowest: Column | None  # with the least standard deviation above 0; None: no column varies
    widest: Column | None  # with the largest
    empty_unlabelled: int = 0  # nodes whose features are all 0, and that have no label either, though others have one


@dataclass(frozen=True)
class RankLoad:
    """What one rank holds under a scheme: of several ranks, the one with most, of each quantity by itself."""

    scheme: str  # "1d" or "1.5d"
    world_size: int
    replication: int
    rows: int  # nodes of a block row
    nnz: int  # entries that a rank multiplies, those of the self-loops that the run sets included
    edge_cut: float | None  # share of the entries whose ends lie in different block rows
    halo_rows: int | None  # rows of other block rows that one block row reads
    received_bytes: int | None  # in a training epoch
    tensor_bytes: int | None  # peak of a training epoch, as the planner predicts it; None: no training is planned


@dataclass(frozen=True)
class Inspection:
    """What ``fullgnn.inspect`` has found; ``str`` of it is the report of the terminal."""

    name: str
    num_nodes: int
    num_edges: int  # stored entries: an undirected edge counts twice
    num_users: int | None
    held_out_pairs: int | None  # of the graph itself, to validate and to test a task that finds links
    graph_bytes: int  # of the arrays of the graph in memory
    remarks: dict[str, int]  # see ``graph/remarks.py``
    structure: Topology
    labels: Labels | None
    leaks: Leaks | None
    features: FeatureFacts | None
    layouts: tuple[RankLoad, ...]
    layouts_of: str  # the run whose layouts these are, such as "model=gcn"
    unplanned: str  # why memory and bytes of the layouts are not known; empty: they are
    odd: tuple[str, ...]  # sentences, the worst first
    seconds: float  # that the inspection took
    node_names: str | None = None  # what the nodes are called, in words; None: by their numbers

    def to_json(self) -> dict[str, Any]:
        """Plain values: dictionaries, lists, texts, numbers and None."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> Inspection:
        """The inspection of which ``to_json`` has made ``values``, which a file may have damaged.

        Raises:
            DataError: a value is missing, or is not one of ours; one line without the name of the file.
        """
        if not isinstance(values, Mapping):
            raise DataError("it is no inspection, which is a mapping")
        below: _Below = {
            "structure": (Topology, {"in_degrees": (Degrees, {}), "out_degrees": (Degrees, {})}),
            "labels": (Labels, {"homophily": (Homophily, {})}),
            "leaks": (Leaks, {}),
            "features": (FeatureFacts, {"narrowest": (Column, {}), "widest": (Column, {})}),
        }
        layouts = values.get("layouts")
        if not isinstance(layouts, list):
            raise DataError("its layouts are no list")
        return _made(cls, values, below, layouts=tuple(of_fields(RankLoad, layout) for layout in layouts))

    def __str__(self) -> str:
        from fullgnn.report.inspection.page import page  # imported here, since the page is about this class

        return page(self)


_Below = Mapping[str, tuple[type, "_Below"]]
"""By the name of a field, the dataclass that it is, and what is below it."""


def _made(kind: type, values: Any, below: _Below, **made: Any) -> Any:
    """A ``kind`` of ``values``, whose fields named in ``below`` are such dataclasses, or None."""
    if isinstance(values, Mapping):
        for name, (inner, deeper) in below.items():
            if values.get(name) is not None:
                made[name] = _made(inner, values[name], deeper)
    return of_fields(kind, values, made)
