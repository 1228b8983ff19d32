"""Build the task that a configuration names, with what it asks to know of the graph."""

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fullgnn.config import build, target_of
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph
from fullgnn.graph.datasets import SPLIT_CURE
from fullgnn.graph.labels import LabelFacts, is_labelled
from fullgnn.graph.links import LinkFacts
from fullgnn.tasks.task import WEIGHTED_DEFAULT, Task, task_contract

log = logging.getLogger(__name__)


def takes_links(node: Mapping[str, Any]) -> bool:
    """Whether the task of a configuration ``node`` finds links."""
    return task_contract(target_of(node)).finds_links


def learns_labels(node: Mapping[str, Any]) -> bool:
    """Whether the task of a configuration ``node`` says that it learns from labelled training nodes."""
    return task_contract(target_of(node)).learns_labels


def lacks_examples(graph: Graph) -> list[str]:
    """Which of ``labels`` and ``train_mask`` the ``graph`` lacks."""
    present = {"labels": is_labelled(graph.labels).any(), "train_mask": graph.train_mask.any()}
    return [name for name in present if not present[name]]


def refuse_without_examples(node: Mapping[str, Any], what: str, lacks: Sequence[str], cure: str = "") -> None:
    """Refuse a graph that ``lacks`` something from which the task of a configuration ``node`` learns.

    Args:
        what: the graph, for the message.
        cure: what to do about it; empty: what is true of any dataset.

    Raises:
        DataError: one line that says what is missing, and the ``cure``.
    """
    if not lacks or not learns_labels(node):
        return
    if not cure and "labels" in lacks:
        cure = f"write it with {' and '.join(lacks)}, or choose task=link_prediction, which learns from edges alone"
    elif not cure:
        cure = f"write it with a train_mask that has nodes, or {SPLIT_CURE}"
    raise DataError(
        f"{what} has no {' and no '.join(lacks)}, and task={node['name']} learns from labelled nodes: {cure}"
    )


def refuse_for_links(node: Mapping[str, Any], given: str) -> None:
    """Refuse the keys of a split of nodes, which are ``given``, for the task of a configuration ``node`` that finds
    links.

    Raises:
        ConfigError: one line.
    """
    if not learns_labels(node) and takes_links(node):
        raise ConfigError(
            f"{given} would do nothing, since task={node['name']} learns from edges, and task.val_fraction holds some"
            " of them out: leave out what is given"
        )


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
    """``graph`` without the edges that the task of ``node`` holds out, before anything else sees them."""
    function = task_contract(target_of(node)).hold_out
    if function is None:
        return graph
    names = inspect.signature(function).parameters
    return function(graph, **{key: value for key, value in node.items() if key in names})


def log_default_metric(node: Mapping[str, Any], task: Task) -> None:
    """Log that weights of the classes have made another metric than the accuracy choose the best epoch.

    Args:
        node: the configuration of ``task``.
    """
    if node.get("class_weight") is not None and node.get("metrics") is None and task.metrics == WEIGHTED_DEFAULT:
        log.info(
            "the best epoch is chosen by the macro_f1 of val, since task.class_weight weighs the classes and the"
            " accuracy does not: give task.metrics=[accuracy] for the accuracy"
        )
