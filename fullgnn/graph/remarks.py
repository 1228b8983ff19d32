"""Remarks on a graph: what its reader, its task or its split changed or found, that its owner may not expect.

A remark is a name with a count. Whoever makes a graph, or learns something of it, notes the count under one of the
names below. A run logs the sentence of each remark once, on rank 0, and its record has the counts.
"""

import logging
from collections.abc import Mapping

log = logging.getLogger(__name__)

SENTENCES: dict[str, str] = {
    "one_way_arcs": "{count} arcs are stored in one direction only; a pair of nodes to find has no direction",
}
"""By name, the sentence of a remark, with a place for its ``count``."""


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
        log.info("%s: %s", graph_name, SENTENCES[name].format(count=count))
