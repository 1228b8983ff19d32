"""Metrics of given outputs, on several layouts, against scikit-learn and plain loops on all nodes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as reference

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import predict, set_up
from fullgnn.graph import Graph
from fullgnn.graph.labels import LabelFacts
from fullgnn.graph.links import LinkFacts
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.tasks import LinkPrediction, LinkRanking, node_classification, node_regression
from fullgnn.telemetry.meter import Meter
from tests.cases import config, layout_overrides, minibatch_config
from tests.tasks.metrics import SPLITS, labelled

LAYOUTS = [(1, 1, []), (3, 1, ["partition=random"]), (4, 2, ["scheme.split_rows=false"])]
"""Processes, replication, and further overrides."""
Case = tuple[Config, Graph, Sequence[np.ndarray]]


def measured(world: World, cases: list[Case]) -> list[list[dict[str, float | None]]]:
    """For each case, the metrics of each of its (num_nodes, num_outputs) outputs."""
    metrics = []
    for cfg, graph, outputs in cases:
        job = set_up(cfg, world, Meter(world.device), graph if world.rank == 0 else None)
        rows = [torch.from_numpy(output).to(world.device)[job.scheme.node_id] for output in outputs]
        metrics.append([job.task.measure(output, job.graph, job.scheme) for output in rows])
    return metrics


def one_hot(classes: np.ndarray, num_classes: int) -> np.ndarray:
    return np.eye(num_classes)[classes]


def cases(replication: int, overrides: list[str]) -> dict[str, Case]:
    rng = np.random.default_rng(5)
    base = [*layout_overrides(replication), *overrides, "runtime.dtype=float64"]
    every = config(*base, "task.metrics=[macro_f1,micro_f1,accuracy]")
    two = config(*base, "task.metrics=[roc_auc,average_precision,macro_f1,accuracy]")
    labels = config(*base, "task.metrics=[average_precision,roc_auc,micro_f1,macro_f1]")
    values = config(*base, "task=node_regression")
    split = np.arange(40) % 3
    of_five = rng.integers(0, 5, 40)
    of_five[split == 1] = rng.integers(0, 3, (split == 1).sum())  # val holds no node of two classes
    of_two = rng.integers(0, 2, 40)
    one_a_split = np.where(split == 2, of_two, split)  # train holds class 0 alone, val class 1 alone
    several = rng.integers(0, 2, (40, 6)).astype(np.int8)
    several[:, 1][split == 1], several[:, 2][split == 2] = 0, 1
    several[rng.random((40, 6)) < 0.2] = -1
    several[:, 0] = of_two
    scores, few = rng.standard_normal((40, 6)), rng.integers(0, 3, (40, 6)).astype(float)
    numbers = rng.standard_normal((40, 2)).astype(np.float32)
    not_finite = [scores.copy() for _ in range(4)]
    not_finite[0][1, 1] = np.nan
    not_finite[1][1, 1] = np.inf
    not_finite[2][[1, 4], 0] = -np.inf
    not_finite[3][:] = np.nan
    return {
        "a class in no split": (
            every,
            labelled([0, 1] * 5 + [0, 2], [*np.arange(11) % 3, -1]),
            [one_hot(np.array([0, 1] * 5 + [0, 2]), 3)],
        ),
        "five classes": (every, labelled(of_five, split), [scores[:, :5], few[:, :5], one_hot(of_five, 5)]),
        "classes that no node has": (every, labelled(of_five, split, 9), [rng.standard_normal((40, 9))]),
        "no val": (every, labelled(of_five, np.where(split == 1, -1, split)), [scores[:, :5]]),
        "two classes": (two, labelled(of_two, split), [scores[:, :2], few[:, :2], 0 * few[:, :2]]),
        "one class a split": (two, labelled(one_a_split, split), [scores[:, :2], few[:, :2]]),
        "labels": (labels, labelled(several, split), [scores, few, 0 * few]),
        "two classes, not finite": (two, labelled(of_two, split), [output[:, :2] for output in not_finite]),
        "five classes, not finite": (every, labelled(of_five, split), [output[:, :5] for output in not_finite]),
        "labels, not finite": (labels, labelled(several, split), not_finite),
        "values, not finite": (values, labelled(numbers, split), [output[:, :2] for output in not_finite]),
        "a value, not finite": (values, labelled(numbers[:, 0], split), [output[:, 1:2] for output in not_finite]),
    }


def area(targets: np.ndarray, scores: np.ndarray) -> float | None:
    """The fraction of pairs of a positive and a negative node in which the positive one has the higher score."""
    pairs = scores[targets == 1][:, None] - scores[targets == 0]
    return ((pairs > 0).mean() + (pairs == 0).mean() / 2).item() if pairs.size else None


def precision(targets: np.ndarray, scores: np.ndarray) -> float | None:
    """The sum over the distinct scores, the highest first, of the precision times the gain in recall."""
    total, recall = 0.0, 0.0
    for score in sorted(set(scores), reverse=True):
        hits = targets[scores >= score]
        total += hits.mean() * (hits.sum() / max(1, targets.sum()) - recall)
        recall = hits.sum() / max(1, targets.sum())
    return total if targets.any() else None


def of_scores(name: str, columns: list[tuple[np.ndarray, np.ndarray]]) -> float | None:
    """The mean over the columns of targets and scores that have the metric."""
    own, sklearn_s = {
        "roc_auc": (area, reference.roc_auc_score),
        "average_precision": (precision, reference.average_precision_score),
    }[name]
    counted = [(y, x) for y, x in columns if y.any() and (name != "roc_auc" or not y.all())]
    if not counted or not all(np.isfinite(x).all() for _, x in columns):
        return None
    areas = [own(y, x) for y, x in counted]
    assert areas == pytest.approx([sklearn_s(y, x) for y, x in counted], abs=1e-12)
    return np.mean(areas).item()


def expected(name: str, graph: Graph, split: str, output: np.ndarray) -> float | None:
    mask = getattr(graph, f"{split}_mask")
    labels, output = graph.labels[mask], output[mask]
    if not len(labels):
        return None
    if labels.dtype.kind == "f":
        labels = labels.reshape(output.shape)
        if not np.isfinite(output).all():
            return None
        if name == "r2":
            return reference.r2_score(labels, output)
        errors = labels - output
        return math.sqrt((errors**2).mean()) if name == "rmse" else abs(errors).mean()
    if labels.ndim == 2:
        columns = [(y[y >= 0], x[y >= 0]) for y, x in zip(labels.T, output.T)]
        if name in ("roc_auc", "average_precision"):
            return of_scores(name, columns)
        if name == "macro_f1":
            return np.mean([reference.f1_score(y, x > 0, zero_division=0) for y, x in columns])
        return reference.f1_score(labels[labels >= 0], output[labels >= 0] > 0, zero_division=0)
    if name in ("roc_auc", "average_precision"):
        return of_scores(name, [(labels, output[:, 1] - output[:, 0])])
    wrong = np.isnan(output).any(axis=1)  # neither predicted as any class nor left out
    predicted = np.where(wrong, -1, output.argmax(axis=1))
    if name == "accuracy":
        return (predicted == labels).mean()
    if name == "micro_f1" and wrong.any():
        return 2 * (predicted == labels).sum() / (len(labels) + (~wrong).sum())
    counted = sorted(set(labels) | set(predicted) - {-1})  # scikit-learn's own, but for -1
    if not wrong.any():
        whole = reference.f1_score(labels, predicted, average="macro", zero_division=0)
        assert name != "macro_f1" or whole == pytest.approx(
            reference.f1_score(labels, predicted, labels=counted, average="macro", zero_division=0)
        )
    return reference.f1_score(labels, predicted, labels=counted, average=name[:5], zero_division=0)


@pytest.mark.sample(4)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize(("world_size", "replication", "overrides"), LAYOUTS)
def test_metrics_of_given_outputs(
    ranks, world_size: int, replication: int, overrides: list[str], every_case: bool
) -> None:
    chosen, turn = cases(replication, overrides), LAYOUTS.index((world_size, replication, overrides))
    if not every_case:
        chosen = {name: chosen[name] for number, name in enumerate(chosen) if number % len(LAYOUTS) == turn}
    outcomes = ranks(world_size)(measured, list(chosen.values()))
    for number, (name, (cfg, graph, outputs)) in enumerate(chosen.items()):
        for output, *of_ranks in zip(outputs, *(outcome[number] for outcome in outcomes)):
            names = cfg.task["metrics"] or ["rmse", "mae", "r2"]
            assert list(of_ranks[0]) == [f"{split}_{metric}" for metric in names for split in SPLITS], name
            assert all(metrics == of_ranks[0] for metrics in of_ranks), name
            for key, value in of_ranks[0].items():
                split, _, metric = key.partition("_")
                wanted = expected(metric, graph, split, output)
                assert value == (None if wanted is None else pytest.approx(wanted, abs=1e-12)), (name, key)


def test_what_the_oracle_of_the_metrics_says() -> None:
    """The oracle itself, where the right value is known by hand."""
    graph, output = labelled([0, 1] * 5 + [0, 2], [*np.arange(11) % 3, -1]), one_hot(np.array([0, 1] * 5 + [0, 2]), 3)
    assert expected("macro_f1", graph, "val", output) == 1
    output[0] = np.nan
    assert expected("accuracy", graph, "train", output) == 3 / 4
    assert expected("macro_f1", graph, "train", output) == pytest.approx((2 / 3 + 1) / 2)
    targets, scores = np.array([1, 0, 1, 0]), np.array([2.0, 2, 1, 0])
    assert area(targets, scores) == (0.5 + 1 + 0 + 1) / 4 and precision(targets, scores) == (1 / 2 + 2 / 3) / 2


def sampled(world: World, cfg: Any, graph: Graph) -> tuple[dict[str, float | None], np.ndarray | None]:
    """The metrics of sampled training before its first batch, and the outputs of all nodes that they measure."""
    job = set_up_sampled(cfg, world, Meter(world.device), graph if world.rank == 0 else None)
    full = job.full
    output = full.scheme.gather(predict(full))
    job.loader.close()
    return job.evaluate(), None if output is None else output.numpy()


def test_metrics_of_sampled_training(ranks) -> None:
    """One output is the same for all nodes of the ring, so that every score ties, and one class is never there."""
    split, labels = np.arange(40) % 3, np.random.default_rng(0).integers(0, 2, 40)
    shapes = {
        "task.metrics=[roc_auc,average_precision,macro_f1]": labelled(labels, split),
        "task.metrics=[macro_f1]": labelled(labels, split, 4),
    }
    for metrics, graph in shapes.items():
        cfg = minibatch_config(metrics, "runtime.dtype=float64", "loader.num_workers=0")
        outcomes = ranks(2)(sampled, cfg, graph)
        values, output = outcomes[0]
        assert outcomes[1][0] == values
        for key, value in values.items():
            name, _, metric = key.partition("_")
            assert value == pytest.approx(expected(metric, graph, name, output), abs=1e-12), key


@pytest.mark.parametrize(
    ("task", "better", "worse"),
    [
        (node_classification(LabelFacts(2)), 0.6, 0.5),
        (node_classification(LabelFacts(2), ["roc_auc"]), 0.6, 0.5),
        (node_classification(LabelFacts(2, columns=2, binary=True, train_known=(1, 1), train_sum=(0, 1))), 0.6, 0.5),
        (node_regression(LabelFacts(2)), 0.5, 0.6),
        (node_regression(LabelFacts(2), ["r2"]), 0.6, -0.5),
        (LinkRanking(LinkFacts(4, 2)), 0.6, 0.5),
        (LinkPrediction(LinkFacts(4)), 0.6, 0.5),
    ],
)
def test_nan_is_never_better_and_any_number_is_better_than_nan(task: Any, better: float, worse: float) -> None:
    nan = float("nan")
    assert task.is_better(better, worse) and not task.is_better(worse, better) and not task.is_better(worse, worse)
    assert task.is_better(worse, nan) and not task.is_better(nan, worse) and not task.is_better(nan, nan)


def test_a_node_whose_output_is_nan_has_no_class() -> None:
    output = torch.tensor([[0.5, float("nan")], [float("nan")] * 2, [-1.0, float("inf")], [0.5, 0.5]])
    assert node_classification(LabelFacts(2)).prediction(output).tolist() == [-1, -1, 1, 0]


@pytest.mark.parametrize(
    ("given", "metrics"),
    [
        (None, ("accuracy",)),
        ("balanced", ("macro_f1", "accuracy")),
        ([1, 3.5], ("macro_f1", "accuracy")),
        ([2, 2.0], ("accuracy",)),
    ],
)
def test_weights_that_tell_classes_apart_choose_the_epoch_by_macro_f1(given: Any, metrics: tuple[str, ...]) -> None:
    labels = LabelFacts(2, num_train=10, class_counts=(8, 2))
    assert node_classification(labels, class_weight=given).metrics == metrics
    assert node_classification(labels, ["accuracy"], given).metrics == ("accuracy",)
