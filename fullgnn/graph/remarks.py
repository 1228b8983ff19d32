"""Remarks on a graph: what its reader, its task or its split changed or found, that its owner may not expect.

A remark is a name with a count. Whoever makes a graph, or learns something of it, notes the count under one of the
names below. A run logs the sentence of each remark once, on rank 0, and its record has the counts.
"""

import logging
from collections.abc import Mapping

log = logging.getLogger(__name__)

SENTENCES: dict[str, str] = {
    "one_way_arcs": "arcs that are stored in one direction only: {count}; a pair of nodes to find has no direction, so"
    " each of them is a pair like any other",
    "pairs_without_negative": "{count} of {training_pairs} pairs have no negative, because their first node is joined"
    " with every candidate; they are not trained with",
    "training_pairs": "",
    "held_out_pairs_without_negative": "held-out pairs that have no negative to be ranked among: {count};"
    " task=link_prediction leaves them out of its metrics",
}
"""By name, the sentence of a remark, with places for its ``count`` and for other counts by their names; empty for a
count that is there for the sentence of another one."""


def noted(*remarks: Mapping[str, int]) -> dict[str, int]:
    """All ``remarks`` together, without those whose count is 0; of one name that is given twice, the later count.

    Raises:
        ValueError: a name has no sentence.
    """
    joined = {str(name): int(count) for some in remarks for name, count in some.items()}
    unknown = sorted(joined.keys() - SENTENCES.keys())
    if unknown:
        raise ValueError(f"no remark on a graph is called {unknown[0]}")
    return {name: count for name, count in joined.items() if count}


def say(graph_name: str, remarks: Mapping[str, int]) -> None:
    """Log one line for each of the ``remarks`` on a graph."""
    for name, count in remarks.items():
        if SENTENCES[name]:
            log.info("%s: %s", graph_name, SENTENCES[name].format(count=count, **remarks))
