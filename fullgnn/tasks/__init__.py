"""Tasks: what a model learns. Each one owns its loss, its metrics and what a prediction is.

Contract: ``task(labels, **own keys) -> Task``, with the ``LabelFacts`` of the graph. See ``Task``.
"""

from fullgnn.tasks.node_classification import MultiClass, MultiLabel, node_classification
from fullgnn.tasks.node_regression import NodeRegression, node_regression
from fullgnn.tasks.task import Task

__all__ = [
    "MultiClass",
    "MultiLabel",
    "NodeRegression",
    "Task",
    "node_classification",
    "node_regression",
]
