"""What training may know of the answers: twins of test nodes among the training nodes, and labels among the features.

Twins are found by hashing: each node has 128 bits of the set of its neighbours (in each direction), or of its features,
and the bits of training nodes are sorted. Two different ones agree by chance with probability 2^-128, so equal bits are
not compared again by what they stand for. Nodes without a neighbour, and features that are all 0, have no twin.
"""

import numpy as np
from scipy.sparse import csr_array

from fullgnn.graph import Graph
from fullgnn.graph.labels import is_known, is_labelled
from fullgnn.graph.sparse_features import NodeFeatures
from fullgnn.report.inspection.findings import Leaks
from fullgnn.report.inspection.passes import Passes

FIRST_ROWS = 256
"""Labelled nodes that are compared first: few columns agree with a label on all of them."""
_ROWS_AT_ONCE = 1 << 14


def leaks_of(graph: Graph, passes: Passes) -> Leaks | None:
    """The ``Leaks`` of ``graph``; None if it has neither a test node nor labels to look for."""
    comparable = bool(graph.train_mask.any() and graph.test_mask.any())
    labelled = bool(is_labelled(graph.labels).any())
    if not comparable and not (labelled and graph.num_features):
        return None
    same_neighbours = same_features = None
    if comparable:
        joined = (graph.indptr[1:] > graph.indptr[:-1]) | (passes.out_degree > 0)
        same_neighbours = twins(passes.hashes, graph, joined)
        if graph.num_features:
            same_features = _same_features(graph)
    of_label, of_class = label_columns(graph) if labelled and graph.num_features else ((), ())
    return Leaks(int(np.count_nonzero(graph.test_mask)), same_neighbours, same_features, of_label, of_class)


def twins(hashes: np.ndarray, graph: Graph, counted: np.ndarray) -> int:
    """How many test nodes have the hash of a training node.

    Args:
        hashes: (num_nodes, k) uint64.
        counted: (num_nodes,) bool, the nodes that are compared.
    """
    train, test = (_sorted(hashes, mask & counted) for mask in (graph.train_mask, graph.test_mask))
    if not len(train) or not len(test):
        return 0
    differs = np.ones(len(train), bool)
    differs[1:] = (train[1:] != train[:-1]).any(axis=1)
    train = train[differs]
    num_found, missing, bits = 0, test, train[:, 0].copy()
    place = np.searchsorted(bits, missing[:, 0].copy())  # fast, since both are sorted
    while True:  # once: of different hashes hardly any share their first 64 bits
        candidate = place < len(bits)
        candidate[candidate] = bits[place[candidate]] == missing[candidate, 0]
        missing, place = missing[candidate], place[candidate]
        if not len(place):
            return num_found
        equal = (train[place] == missing).all(axis=1)
        num_found += int(np.count_nonzero(equal))
        missing, place = missing[~equal], place[~equal] + 1


def _sorted(hashes: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The ``chosen`` rows of (num_nodes, k) ``hashes``, ascending in the first column."""
    rows = hashes[chosen]
    return rows[np.argsort(rows[:, 0])]


def _same_features(graph: Graph) -> int:
    from fullgnn.report.inspection._passes_cpu import hashes_of_rows, hashes_of_sparse_rows  # they import numba

    features, wanted = graph.features, graph.train_mask | graph.test_mask
    unsigned = f"u{features.dtype.itemsize}"
    if isinstance(features, np.ndarray):
        hashes = hashes_of_rows(features.view(unsigned), wanted)
    else:
        hashes = hashes_of_sparse_rows(features.indptr, features.indices, features.data.view(unsigned), wanted)
    return twins(hashes, graph, np.any(hashes, axis=1))


def label_columns(graph: Graph) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Feature columns that tell the label of every labelled node.

    Rows are compared block by block, the first of which is small, with the columns that still agree. Of classes a
    column agrees while it has one number for each class; of values and of several labels a node, while it equals a
    column of labels.

    Returns:
        the columns that are the label or a one-to-one map of it; and, of classes, those that have one number for each
        class, more than one number in all, and the same for some classes.
    """
    nodes = np.flatnonzero(is_labelled(graph.labels))
    labels, features = graph.labels, graph.features
    if labels.dtype.kind == "f" or labels.ndim == 2:
        return _equal_columns(features, labels.reshape(len(labels), -1), nodes), ()
    present, first = np.unique(labels[nodes], return_index=True)
    if len(present) < 2:
        return (), ()
    first_of = np.zeros(graph.num_classes, np.int64)  # the first node of each class
    first_of[present] = nodes[first]
    columns = _full_in_classes(features, labels[nodes], nodes, graph.num_classes)
    for rows in _blocks(nodes):
        if len(columns):
            expected = _taken(features, first_of[labels[rows]], columns)
            columns = columns[(_taken(features, rows, columns) == expected).all(axis=0)]
    numbers = _taken(features, nodes[first], columns)
    num_distinct = np.array([len(np.unique(column)) for column in numbers.T], np.int64)
    of_label, of_some = num_distinct == len(present), (1 < num_distinct) & (num_distinct < len(present))
    return tuple(columns[of_label].tolist()), tuple(columns[of_some].tolist())


def _full_in_classes(features: NodeFeatures, classes: np.ndarray, nodes: np.ndarray, num_classes: int) -> np.ndarray:
    """Ascending columns that may have one number for each class: all columns of dense features; of sparse ones, those
    that have no zero, or nothing but zeros, in each class, and not in all."""
    if isinstance(features, np.ndarray):
        return np.arange(features.shape[1])
    of_class = csr_array((np.ones(len(nodes), np.int64), (classes, nodes)), shape=(num_classes, features.shape[0]))
    pattern = csr_array((np.ones(features.nnz, np.int64), features.indices, features.indptr), shape=features.shape)
    counts = (of_class @ pattern).tocoo()
    is_full = counts.data == np.bincount(classes, minlength=num_classes)[counts.row]
    return np.setdiff1d(counts.col[is_full], counts.col[~is_full])


def _equal_columns(features: NodeFeatures, labels: np.ndarray, nodes: np.ndarray) -> tuple[int, ...]:
    """The columns of ``features`` that equal a column of (num_nodes, c) ``labels``, which varies, wherever both are
    known."""
    leaking = set[int]()
    for column in range(labels.shape[1]):
        label = labels[:, column]
        known = nodes[is_known(label[nodes])]
        if not len(known) or (label[known] == label[known[0]]).all():
            continue
        known = np.concatenate([known[label[known] != 0], known[label[known] == 0]])  # other than most of the features
        columns = np.arange(features.shape[1])
        if not isinstance(features, np.ndarray):
            num_nonzero = np.bincount(features[known].indices, minlength=len(columns))
            columns = np.flatnonzero(num_nonzero == np.count_nonzero(label[known]))
        for rows in _blocks(known):
            if len(columns):
                equal = _taken(features, rows, columns) == label[rows, None].astype(features.dtype)
                columns = columns[equal.all(axis=0)]
        leaking.update(columns.tolist())
    return tuple(sorted(leaking))


def _taken(features: NodeFeatures, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """(len(rows), len(columns)), dense."""
    if isinstance(features, np.ndarray):
        return features[np.ix_(rows, columns)]
    return features[rows][:, columns].toarray()


def _blocks(nodes: np.ndarray) -> list[np.ndarray]:
    return [nodes[:FIRST_ROWS], *np.array_split(nodes[FIRST_ROWS:], 1 + len(nodes) // _ROWS_AT_ONCE)]
