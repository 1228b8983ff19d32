"""What is odd about a graph, in sentences that say what to do about it."""

from collections.abc import Iterator, Sequence

from fullgnn.graph.remarks import is_nearly_symmetric
from fullgnn.report.inspection.findings import FeatureFacts, Labels, Topology
from fullgnn.telemetry.screen import num_bytes, percent

SCALES = 1000
"""Standard deviations of two feature columns that differ by this factor are odd."""
SPARSE = 0.5
"""Features are called sparse where CSR takes at most this share of their memory."""
NAMED = 10
"""Most columns or classes that a sentence names."""
ODD_ENTRIES = {
    "self_loops": "nodes have a stored edge to themselves (self-loop). With self_loops=true, the default, the run gives"
    " every node one, and a node never has two.",
    "isolated_nodes": "nodes are isolated: they have no edge at all, so that a model knows of them nothing but their"
    " own features.",
    "only_self_loop": "nodes have no edge but one to themselves, so that they are like isolated ones.",
    "negative_weights": "entries have a negative weight: normalization=sym and row divide by sums of weights, which"
    " should be positive.",
}
"""What follows the count of a field of a ``Topology``, where there are any."""


def odd(num_edges: int, structure: Topology, labels: Labels | None, features: FeatureFacts | None) -> Iterator[str]:
    """The sentences, by topic: labels, entries, nodes, features."""
    if labels is not None:
        yield from _odd_labels(labels)
    yield from _odd_entries(num_edges, structure)
    if features is not None:
        yield from _odd_features(features)


def _odd_labels(labels: Labels) -> Iterator[str]:
    if not labels.split["train"]:
        yield (
            "No node is in the training part of the split, so there is nothing to learn from:"
            " dataset.split=random, or graph.split('random'), draws one."
        )
    if not labels.classes:
        return
    of_all = [sum(counts) for counts in zip(*labels.classes.values())]
    unlabelled = [number for number, count in enumerate(of_all) if not count]
    if unlabelled:
        yield f"{_named('class', unlabelled)} of no labelled node: the model has an output for it that nothing trains."
    untrained = [k for k, count in enumerate(labels.classes["train"]) if not count and of_all[k]]
    if untrained and labels.split["train"]:
        yield (
            f"{_named('class', untrained)} of no training node, although other nodes have it: no model can learn it"
            " from this split."
        )


def _odd_entries(num_edges: int, structure: Topology) -> Iterator[str]:
    if structure.one_way_arcs and structure.one_way_arcs + structure.self_loops == num_edges:
        yield (
            "No arc has its reverse: if the graph is meant to be undirected, the data have each edge once, and"
            " dataset.symmetrize=true, or graph.symmetrized(), adds the other direction."
        )
    if structure.one_way_arcs and is_nearly_symmetric(num_edges, structure.one_way_arcs):
        yield (
            f"{structure.one_way_arcs:,} arcs are stored in one direction only, and all others in both: if the graph is"
            " meant to be undirected, dataset.symmetrize=true, or graph.symmetrized(), adds the missing direction."
        )
    for name, sentence in ODD_ENTRIES.items():
        if count := getattr(structure, name):
            yield f"{count:,} {sentence}"


def _odd_features(features: FeatureFacts) -> Iterator[str]:
    if features.num_empty:
        yield f"{_columns(features.num_empty, features.empty)} 0 for every node, and can be left out."
    if features.num_constant:
        named = _columns(features.num_constant, features.constant)
        yield f"{named} the same number for every node, and can be left out."
    if features.empty_rows:
        unlabelled = features.empty_unlabelled
        of_them = f", and {unlabelled:,} of them have no label either" if unlabelled else ""
        yield f"{features.empty_rows:,} nodes have features that are all 0{of_them}."
    if features.narrowest and features.widest and features.widest.deviation >= SCALES * features.narrowest.deviation:
        yield (
            f"Feature columns differ much in scale: the standard deviation is {features.widest.deviation:.3g} in"
            f" column {features.widest.number} and {features.narrowest.deviation:.3g} in column"
            f" {features.narrowest.number}. Standardised columns, with mean 0 and standard deviation 1, train better."
        )
    if not features.sparse and features.sparse_bytes <= SPARSE * features.dense_bytes:
        yield (
            f"Only {percent(features.density)} of the features are not 0: sparse features, as scipy.sparse.csr_array,"
            f" would take {num_bytes(features.sparse_bytes)} instead of {num_bytes(features.dense_bytes)}."
        )


def _named(what: str, numbers: Sequence[int]) -> str:
    """``Class 3 is the class``, or ``4 classes (0, 3, 5 and 6) are those``."""
    if len(numbers) == 1:
        return f"{what.capitalize()} {numbers[0]} is the class"
    return f"{len(numbers):,} {what}es ({listed(numbers)}) are those"


def _columns(count: int, named: Sequence[int]) -> str:
    return f"Feature column {named[0]} is" if count == 1 else f"{count:,} feature columns ({listed(named, count)}) are"


def listed(numbers: Sequence[int], count: int | None = None) -> str:
    """``1, 4, 7``, or the first ten numbers with dots behind them."""
    shown = ", ".join(map(str, numbers[:NAMED]))
    return shown + (", ..." if (count or len(numbers)) > len(numbers[:NAMED]) else "")
