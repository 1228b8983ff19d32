"""Refuse, before anything is loaded, what no graph could make right."""

import torch

from fullgnn.config import Config, build
from fullgnn.errors import ConfigError
from fullgnn.graph import check_dataset, dataset_lacks
from fullgnn.graph.labels import LabelFacts
from fullgnn.graph.links import LinkFacts
from fullgnn.reorder import check_order
from fullgnn.tasks import build_task, learns_labels, refuse_without_examples, takes_links


def check_preparation(cfg: Config) -> None:
    """Refuse an invalid model or task, or a partition and an order that contradict each other; loads nothing.

    Raises:
        ConfigError: one line, the same in every process that calls this function.
    """
    check_order(build(cfg.partition), cfg.reorder.scope, cfg.reorder.num_blocks)
    model = build(cfg.model, in_channels=1, out_channels=1, seed=cfg.seed)  # raises if a size or a rate is wrong
    _check_task(cfg)
    check_goal(cfg, model)


def check_training_data(cfg: Config) -> None:
    """Refuse a dataset whose files are missing, or show that there is nothing to train on; loads nothing large.

    Raises:
        ConfigError, DataError: one line.
    """
    check_dataset(cfg.dataset)
    if learns_labels(cfg.task):
        what = cfg.dataset.get("path") or f"dataset={cfg.dataset.get('name')}"
        refuse_without_examples(cfg.task, what, dataset_lacks(cfg.dataset))


def check_goal(cfg: Config, model: torch.nn.Module) -> None:
    """Refuse a task of nodes for a model that is made for links.

    Raises:
        ConfigError: one line that names both.
    """
    if getattr(model, "finds_links", False) and not takes_links(cfg.task):
        raise ConfigError(
            f"model={cfg.model['name']} learns links, and task={cfg.task['name']} does not: choose task=link_ranking or"
            " task=link_prediction"
        )


def _check_task(cfg: Config) -> None:
    """Refuse a task whose keys are out of range for any graph."""
    if takes_links(cfg.task):
        build_task(cfg.task, LabelFacts(0), LinkFacts(2, 1))
        return
    given = cfg.task.get("class_weight")
    num_classes = len(given) if isinstance(given, list) else 2
    counts = (1,) * num_classes
    one_class = LabelFacts(num_classes, train_known=(num_classes,), class_counts=counts)
    several = LabelFacts(num_classes, num_classes, binary=True, train_known=counts, train_sum=counts)
    refused: list[ConfigError] = []
    for labels in (one_class, several):
        try:
            build_task(cfg.task, labels, None)
        except ConfigError as error:
            refused.append(error)
        except Exception:  # a task of a user may want other labels
            continue
    if len(refused) == 2:
        raise refused[0]
