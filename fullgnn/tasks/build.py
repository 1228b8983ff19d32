"""Build the task that a configuration names, with what it asks to know of the graph."""

import inspect
from collections.abc import Mapping
from typing import Any

from fullgnn.config import build, target_of
from fullgnn.graph import Graph
from fullgnn.graph.labels import LabelFacts
from fullgnn.graph.links import LinkFacts
from fullgnn.tasks.task import Task


def takes_links(node: Mapping[str, Any]) -> bool:
    """Whether the task of a configuration ``node`` finds links: its target has a parameter ``links``."""
    return "links" in inspect.signature(target_of(node)).parameters


def build_task(node: Mapping[str, Any], labels: LabelFacts, links: LinkFacts | None) -> Task:
    """Build the task of a configuration ``node`` for a graph.

    Args:
        links: None only for a task that does not take them.

    Raises:
        ConfigError: a key is out of range.
        DataError: the graph is not one that the task can learn.
    """
    if not takes_links(node):
        return build(node, labels=labels)
    task: Task = build(node, links=links)
    assert links is not None
    links.check_trainable()
    return task


def held_out(node: Mapping[str, Any], graph: Graph) -> Graph:
    """``graph`` without the edges that the task of ``node`` holds out, before anything else sees them.

    A target says so by an attribute ``hold_out``, a function of the graph and of some of the keys.
    """
    function = getattr(target_of(node), "hold_out", None)
    if function is None:
        return graph
    names = inspect.signature(function).parameters
    return function(graph, **{key: value for key, value in node.items() if key in names})
