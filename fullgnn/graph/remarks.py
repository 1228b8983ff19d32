"""Remarks on a graph: what its reader, its task or its split changed or found, that its owner may not expect.

A remark is a name with a count. Whoever makes a graph, or learns something of it, notes the count under one of the
names below. A run logs the sentence of each remark once, on rank 0, and its record has the counts. ``Graph.save``
writes the remarks, and a prepared graph has them, so that a cached run says and records them as well.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

log = logging.getLogger(__name__)

SENTENCES: dict[str, str] = {
    "one_way_arcs": "arcs that are stored in one direction only: {count}; a pair of nodes to find has no direction, so"
    " each of them is a pair like any other",
    "pairs_without_negative": "{count} of {training_pairs} pairs have no negative, because their first node is joined"
    " with every candidate; they are not trained with",
    "training_pairs": "",
    "held_out_pairs_without_negative": "held-out pairs that have no negative to be ranked among: {count};"
    " task=link_prediction leaves them out of its metrics",
    "merged_arcs": "{count} arcs repeat another one between the same two nodes and were merged with it: the weights of"
    " merged arcs are added, and without weights the merged arc counts once",
    "unknown_arcs": "{count} edges name a node that the table of nodes does not have and were dropped",
    "added_nodes": "{count} nodes are in the edges or in the table of features alone and were added"
    " behind those of the table of nodes",
    "zero_arcs": "{count} arcs of weight 0 were dropped, since nothing is read over them",
    "unequal_weights": "{count} pairs of nodes had another weight in each direction: symmetrize keeps the larger one",
    "edge_attr_weights": "{count} arcs have the numbers of edge_attr as their weights; for a graph without weights pass"
    " Graph.from_pyg(data, edge_weight=None)",
    "unread_edge_attr": "edge_attr has {count} numbers for each edge and is not read, since a Graph has one weight an"
    " edge: choose a column, as in Graph.from_pyg(data, edge_weight=data.edge_attr[:, 0])",
    "merged_interactions": "{count} interactions are repeated in their file and count once",
    "known_test_interactions": "{count} test interactions are in training too and were dropped",
    "cold_users": "{count} users have no training interaction, so their lists of items are arbitrary",
    "cold_items": "{count} items are in no training interaction, so their places in the lists are arbitrary",
    "unused_ids": "{count} node ids, more than half of them, are in no edge, and each costs the memory of a trained"
    " vector all the same: number the nodes from 0 without gaps",
    "empty_clusters": "{count} clusters have no node: a smaller sampler.num_clusters makes equal batches",
    "random_split_nodes": "{count} labelled nodes were split at random: {split_train_fraction:millionths} of them for"
    " training and {split_val_fraction:millionths} for validation, with the seed {split_seed}",
    "stratified_split_nodes": "{count} labelled nodes were split at random within their classes (split=stratified):"
    " {split_train_fraction:millionths} of them for training and {split_val_fraction:millionths} for validation, with"
    " the seed {split_seed}",
    "per_class_split_nodes": "{count} labelled nodes were split at random (split=per_class): {split_train_per_class} of"
    " every class for training and {split_num_val} others for validation, with the seed {split_seed}",
    "group_split_nodes": "{count} labelled nodes were split at random by whole groups (split=group):"
    " {split_train_fraction:millionths} of them for training and {split_val_fraction:millionths} for validation, with"
    " the seed {split_seed}",
    "kfold_split_nodes": "{count} labelled nodes were split into {split_num_folds} folds, of which fold {split_fold} is"
    " for testing (split=kfold), and {split_val_fraction:millionths} of all are for validation, with the seed"
    " {split_seed}",
    "split_train_fraction": "",
    "split_val_fraction": "",
    "split_train_per_class": "",
    "split_num_val": "",
    "split_num_folds": "",
    "split_fold": "",
    "split_seed": "",
    "replaced_split_nodes": "{count} nodes were in the split that the data came with; the one that was drawn replaces"
    " it",
    "first_of_splits": "the file has {count} splits of the nodes, and split 0 is used: dataset.split chooses another"
    " one",
    "unread_edge_features": "there are {count} numbers for each edge, and they are not read, since a Graph has one"
    " weight an edge: dataset.edge_weight, or edge_weight of Graph.from_ogb, takes one of these columns as the weights",
    "other_relations": "{count} edges of other relations, and {other_kinds} nodes of other kinds, are not read, since a"
    " Graph has nodes of one kind and one relation: of ogbn-mag, the papers and their citations, without authors,"
    " institutions and fields of study",
    "other_kinds": "",
    "unread_edge_data": "the edges have {count} fields of data that are not read: Graph.from_dgl(g, edge_weight=NAME)"
    " takes one of them as the weights",
    "unlabelled_split_nodes": "{count} nodes of the split have no label, as the test nodes of OGB-LSC, whose labels are"
    " hidden, and are in no mask",
    "self_loops": "{count} nodes have a stored edge to themselves; with self_loops=true, the default, the run gives"
    " every node one, and a node never has two",
    "isolated_nodes": "{count} nodes have no edge at all: a model knows of them nothing but their own features",
    "missing_reverse_arcs": "{count} arcs are stored in one direction only, and all others in both: if the graph is"
    " meant to be undirected, dataset.symmetrize=true adds the missing direction",
    "empty_classes": "{count} classes are those of no labelled node: the model has outputs for them, which nothing"
    " trains",
    "untrained_classes": "{count} classes have labelled nodes, but none among the training nodes: no model can learn"
    " them from this split",
    "unknown_papers": "{count} citations name a paper that is not in the file of papers, and were dropped",
    "unread_node_weights": "{count} nodes have weights or sizes in the file, which are not read: a Graph has weights of"
    " edges only",
    "header_lines": "{count} line at the start of the file has no number where a weight belongs, and was taken for a"
    " header: dataset.header says whether it is one",
    "merged_features": "{count} rows of the table of features repeat another one of the same node and feature, and"
    " their values were added",
    "unknown_features": "{count} rows of the table of features name a node that the graph does not have, and were"
    " dropped",
    "unused_features": "{count} columns of features, more than half of them, are 0 for every node, and each costs the"
    " memory of its weights all the same: number the features from 0 without gaps, or write them as texts",
    "unread_class_names": "the file has names for {count} classes as Python objects, which are never read, so that the"
    " classes have numbers: save the names as texts, as in numpy.array(names, dtype=str)",
    "featureless_nodes": "{count} nodes are not in the file of features, and have zeros",
}
"""By name, the sentence of a remark, with places for its ``count`` and for other counts by their names; empty for a
count that is there for the sentence of another one."""

NEARLY = 0.9
"""A graph is nearly symmetric if so large a share of its entries have their reverse."""
_OF_EARLIER_VERSIONS = {"random_split_nodes": "{count} labelled nodes were split at random"}
"""The sentences of remarks in files that lack the counts of today's sentence."""

_PREFIX = "remark_"  # of the names of the arrays in a file


def noted(*remarks: Mapping[str, int]) -> dict[str, int]:
    """All ``remarks`` together, without those whose count is 0; of one name that is given twice, the later count.

    Raises:
        ValueError: a name has no sentence, or a count is negative.
    """
    joined = {str(name): int(count) for some in remarks for name, count in some.items()}
    unknown = sorted(joined.keys() - SENTENCES.keys())
    if unknown:
        raise ValueError(f"no remark on a graph is called {unknown[0]}")
    if min(joined.values(), default=0) < 0:
        raise ValueError("the count of a remark on a graph is negative")
    return {name: count for name, count in joined.items() if count}


def known(remarks: Any) -> dict[str, int]:
    """The remarks in a file, which another version may have written: those whose name has a sentence.

    Raises:
        AttributeError, TypeError, ValueError: there are no counts by name.
    """
    return noted({name: count for name, count in remarks.items() if name in SENTENCES})


def to_arrays(remarks: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The ``remarks`` as arrays of a file, from which ``from_arrays`` reads them."""
    return {f"{_PREFIX}{name}": np.array(count, np.int64) for name, count in remarks.items()}


def from_arrays(arrays: Any) -> dict[str, int]:
    """The remarks in a file, whose ``arrays`` may be anybody's: of known names, those that are counts."""
    counts: dict[str, int] = {}
    for name in SENTENCES:
        if f"{_PREFIX}{name}" in arrays:
            count = arrays[f"{_PREFIX}{name}"]
            if count.dtype.kind in "iu" and count.size == 1 and 0 < int(count.item()) < 1 << 63:
                counts[name] = int(count.item())
    return counts


def of_lonely_nodes(
    indptr: np.ndarray,
    indices: np.ndarray,
    num_users: int | None,
    has_features: bool,
    links: Iterable[np.ndarray | None],
) -> dict[str, int]:
    """What there is to say of nodes without an edge, where vectors are trained for them; a count may be 0.

    Args:
        indptr, indices, num_users: of a ``Graph``.
        has_features: whether the nodes have features, so that a node without an edge has something to tell.
        links: (2, E) pairs of nodes that are held out.
    """
    counts = dict.fromkeys(("cold_users", "cold_items", "unused_ids"), 0)
    alone = indptr[1:] == indptr[:-1]
    num_nodes, least = len(alone), 1 if num_users is not None else len(alone) // 2 + 1
    if (has_features and num_users is None) or np.count_nonzero(alone) < least:
        return counts  # most graphs: no pass over the edges
    alone[indices] = False
    if num_users is not None:
        counts["cold_users"] = int(np.count_nonzero(alone[:num_users]))
        counts["cold_items"] = int(np.count_nonzero(alone[num_users:]))
    if not has_features:
        for pairs in links:
            if pairs is not None:
                alone[pairs.reshape(-1)] = False
        count = int(np.count_nonzero(alone))
        counts["unused_ids"] = count if 2 * count > num_nodes else 0
    return counts


def is_nearly_symmetric(num_edges: int, one_way_arcs: int) -> bool:
    """Whether so many of the entries have their reverse that the others are likely to be missing by mistake."""
    return num_edges - one_way_arcs >= NEARLY * num_edges > 0


def of_classes(labels: np.ndarray, num_classes: int, of_train: Sequence[int]) -> dict[str, int]:
    """What there is to say of classes without nodes; a count may be 0.

    Args:
        labels, num_classes: of a ``Graph``.
        of_train: (num_classes,) training nodes of each class; empty where the labels are no classes.
    """
    if labels.ndim == 2 or labels.dtype.kind == "f" or not any(of_train):
        return {}
    of_all = np.bincount(labels[labels >= 0], minlength=num_classes)
    untrained = (np.asarray(of_train) == 0) & (of_all > 0)
    return {"empty_classes": int(np.count_nonzero(of_all == 0)), "untrained_classes": int(np.count_nonzero(untrained))}


def sentences(remarks: Mapping[str, Any]) -> list[str]:
    """One sentence for each of the ``remarks`` that has one."""
    counts = {name: _Count(remarks.get(name, 0)) for name in SENTENCES}  # a file may lack that of another remark
    told = SENTENCES if "split_train_fraction" in remarks else SENTENCES | _OF_EARLIER_VERSIONS
    return [told[name].format(count=counts[name], **counts) for name in remarks if told[name]]


def say(graph_name: str, remarks: Mapping[str, int]) -> None:
    """Log one line for each of the ``remarks`` on a graph."""
    for sentence in sentences(remarks):
        log.info("%s: %s", graph_name, sentence)


class _Count:
    """A count in a sentence; ``{name:millionths}`` writes it as a fraction."""

    def __init__(self, value: Any):
        self._value = value

    def __format__(self, form: str) -> str:
        as_fraction = form == "millionths" and self._value is not None  # null in a record that is damaged
        return f"{self._value / 1e6:g}" if as_fraction else str(self._value)
