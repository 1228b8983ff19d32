"""Tasks: what a model learns. Each one owns its loss, its metrics and what a prediction is.

Contract: ``task(labels, **own keys) -> Task``, with the ``LabelFacts`` of the graph; a task whose ``TaskContract`` says
that it finds links is called with ``links``, its ``LinkFacts``. See ``Task`` and ``LinkTask``.
"""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.tasks.link_prediction import LinkPrediction, link_prediction
    from fullgnn.tasks.link_ranking import LinkRanking, link_ranking
    from fullgnn.tasks.links import LinkTask
    from fullgnn.tasks.multi_label import MultiLabel
    from fullgnn.tasks.node_classification import MultiClass, node_classification
    from fullgnn.tasks.node_regression import NodeRegression, node_regression
    from fullgnn.tasks.task import (
        Task,
        TaskContract,
        build_task,
        held_out,
        lacks_examples,
        learns_labels,
        log_default_metric,
        refuse_for_links,
        refuse_without_examples,
        states,
        takes_links,
        task_contract,
    )

__all__ = [
    "LinkPrediction",
    "LinkRanking",
    "LinkTask",
    "MultiClass",
    "MultiLabel",
    "NodeRegression",
    "Task",
    "TaskContract",
    "build_task",
    "held_out",
    "lacks_examples",
    "learns_labels",
    "link_prediction",
    "link_ranking",
    "log_default_metric",
    "node_classification",
    "node_regression",
    "refuse_for_links",
    "refuse_without_examples",
    "states",
    "takes_links",
    "task_contract",
]

import_on_use(__name__)
