"""Metrics of scores, of classes and of a user's own, and the confusion matrix, against scikit-learn on all layouts."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn import metrics as reference

from fullgnn import train_graph
from fullgnn.config import Config
from fullgnn.config.trust import check_calls
from fullgnn.distributed import World, world_of_one
from fullgnn.engine import set_up
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph
from fullgnn.graph.labels import LabelFacts
from fullgnn.storage.record import read_record
from fullgnn.tasks import node_classification, node_regression
from fullgnn.tasks.node_classification import MultiClass
from fullgnn.tasks.own_metrics import OwnMetrics
from fullgnn.telemetry.meter import Meter
from tests.cases import LAYOUTS, config, layout_overrides
from tests.predictions import metrics_of, predict
from tests.tasks.metrics import SPLITS, labelled

HERE = "tests.tasks.test_scores"
NAMES = "[balanced_accuracy,roc_auc,average_precision,confusion_matrix]"


def mcc(predictions: np.ndarray, labels: np.ndarray) -> float:
    return reference.matthews_corrcoef(labels, predictions)


def second(predictions: np.ndarray, labels: np.ndarray, output: np.ndarray) -> float:
    """The order of the nodes matters to it."""
    return float((np.arange(len(labels)) * output[:, 1]).sum())


OWN = {name: {"_target_": f"{HERE}.{name}"} for name in ("mcc", "second")}


def graph_of(num_classes: int, kind: str) -> Graph:
    """A ring of 40 nodes in three splits; in ``absent``, val lacks the last class."""
    labels, split = np.random.default_rng(3).integers(0, num_classes, 40), np.arange(40) % 3
    if kind == "absent":
        labels[(split == 1) & (labels == num_classes - 1)] = 0
        labels[0] = num_classes - 1
    return labelled(labels, split, num_classes)


def outputs_of(num_classes: int) -> list[np.ndarray]:
    """Different scores, many ties, and ties alone."""
    rng = np.random.default_rng(4)
    few = np.eye(num_classes)[rng.integers(0, num_classes, 40)] * rng.integers(0, 3, (40, 1))
    return [rng.standard_normal((40, num_classes)), few, np.zeros((40, num_classes))]


def measured(world: World, cases: Sequence[tuple[Config, Graph, Sequence[np.ndarray]]]) -> list[list[tuple]]:
    """For each case, the metrics and the confusion matrices of each of its outputs."""
    measures = []
    for cfg, graph, outputs in cases:
        job: Any = set_up(cfg, world, Meter(world.device), graph if world.rank == 0 else None)
        rows = [torch.from_numpy(output).to(world.device)[job.scheme.node_id] for output in outputs]
        measures.append(
            [
                (job.task.measure(output, job.graph, job.scheme), job.task.confusion(output, job.graph, job.scheme))
                for output in rows
            ]
        )
    return measures


def expected(graph: Graph, output: np.ndarray) -> dict[str, float | None]:
    metrics: dict[str, float | None] = {}
    for split in SPLITS:
        mask = getattr(graph, f"{split}_mask")
        labels, rows = graph.labels[mask], output[mask]
        predicted, classes = rows.argmax(axis=1), np.arange(output.shape[1])
        metrics[f"{split}_balanced_accuracy"] = reference.balanced_accuracy_score(labels, predicted)
        metrics[f"{split}_mcc"] = mcc(predicted, labels)
        metrics[f"{split}_second"] = second(predicted, labels, rows)
        if len(classes) == 2:
            margin = rows[:, 1] - rows[:, 0]
            metrics[f"{split}_roc_auc"] = reference.roc_auc_score(labels, margin)
            metrics[f"{split}_average_precision"] = reference.average_precision_score(labels, margin)
        elif set(classes) - set(labels):
            metrics[f"{split}_roc_auc"] = metrics[f"{split}_average_precision"] = None
        else:
            shares = softmax(rows, axis=1)
            metrics[f"{split}_roc_auc"] = reference.roc_auc_score(labels, shares, multi_class="ovr", average="macro")
            metrics[f"{split}_average_precision"] = reference.average_precision_score(labels, shares, average="macro")
    return metrics


@pytest.mark.sample(15)
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
def test_scores_are_those_of_scikit_learn_on_every_layout(ranks, world_size: int, replication: int) -> None:
    cases = []
    for num_classes, kind in ((3, "all"), (5, "absent"), (2, "all")):
        overrides = [*layout_overrides(replication), "partition=random", "runtime.dtype=float64"]
        cfg = config(*overrides, f"task.metrics={NAMES}", f"task.own_metrics={json.dumps(OWN)}")
        cases.append((cfg, graph_of(num_classes, kind), outputs_of(num_classes)))
    outcomes = ranks(world_size)(measured, cases)
    for number, (_, graph, outputs) in enumerate(cases):
        for k, output in enumerate(outputs):
            metrics, matrices = outcomes[0][number][k]
            assert all(outcome[number][k] == (metrics, matrices) for outcome in outcomes)
            wanted = expected(graph, output)
            assert set(metrics) == set(wanted)
            for name, value in wanted.items():
                assert metrics[name] == (None if value is None else pytest.approx(value, abs=1e-12)), name
            for split in SPLITS:
                mask = getattr(graph, f"{split}_mask")
                classes = np.arange(output.shape[1])
                matrix = reference.confusion_matrix(graph.labels[mask], output[mask].argmax(axis=1), labels=classes)
                assert matrices[split] == matrix.tolist()


def test_outputs_that_are_not_finite_have_no_scores_and_no_class() -> None:
    output = np.random.default_rng(0).standard_normal((40, 3))
    for value in (np.nan, np.inf, -np.inf):
        broken = output.copy()
        broken[1, 1] = value  # node 1 is of val
        scores, matrices = serial(graph_of(3, "all"), broken)
        assert scores["val_roc_auc"] is scores["val_average_precision"] is None and scores["train_roc_auc"] is not None
        assert sum(map(sum, matrices["val"])) == (12 if np.isnan(value) else 13)
        assert scores["val_balanced_accuracy"] is not None


def serial(graph: Graph, output: np.ndarray, *overrides: str) -> tuple[dict[str, float | None], Any]:
    cfg = config("runtime.dtype=float64", "runtime.device=cpu", f"task.metrics={NAMES}", *overrides)
    with world_of_one(cfg.runtime) as world:
        return measured(world, [(cfg, graph, [output])])[0][0]


# Metrics of a user's own.


def test_an_own_metric_may_be_of_any_labels() -> None:
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[Any, int]] = {
        "a class": (rng.integers(0, 3, 40), 1),
        "labels": (rng.integers(0, 2, (40, 3)), 2),
    }
    shapes |= {"a value": (rng.random(40), 1), "values": (rng.random((40, 3)), 2)}
    for kind, (labels, ndim) in shapes.items():
        task = "node_regression" if "value" in kind else "node_classification"
        cfg = config(
            f"task={task}",
            "runtime.dtype=float64",
            f"task.own_metrics={json.dumps({'n': {'_target_': f'{HERE}.dims'}})}",
        )
        with world_of_one(cfg.runtime) as world:
            job = set_up(cfg, world, Meter(world.device), labelled(labels, np.arange(40) % 3))
            output = torch.from_numpy(rng.standard_normal((40, job.task.num_outputs)))
            assert job.task.measure(output, job.graph, job.scheme)["test_n"] == 10 * ndim + ndim, kind
            assert job.task.metrics[-1] == "n"


def dims(predictions: np.ndarray, labels: np.ndarray) -> int:
    return 10 * predictions.ndim + labels.ndim


def test_own_metrics_are_ordered_and_chosen() -> None:
    facts = LabelFacts(3)
    assert node_classification(facts, own_metrics=OWN).metrics == ("accuracy", "mcc", "second")
    chosen = node_classification(facts, ["mcc", "accuracy"], own_metrics=OWN)
    assert chosen.metrics == ("mcc", "accuracy", "second") and chosen.is_better(0.6, 0.5)
    values = node_regression(facts, ["mcc"], own_metrics=OWN)
    assert values.is_better(0.6, 0.5) and not node_regression(facts).is_better(0.6, 0.5)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"own_metrics": {"mcc": "tests.tasks.test_scores.mcc"}}, "names no function: give {_target_: package"),
        ({"own_metrics": {"mcc": {"_target_": "nowhere.mcc"}}}, "mcc._target_ cannot be imported: ModuleNotFoundError"),
        ({"own_metrics": {"mcc": {"_target_": f"{HERE}.HERE"}}}, "is no function"),
        ({"own_metrics": {"accuracy": OWN["mcc"]}}, "accuracy is a metric of the task: choose another name"),
        ({"own_metrics": {"a b": OWN["mcc"]}}, "a b is no name"),
        ({"metrics": ["confusion_matrix"]}, "chooses no best epoch: add a metric that is a number"),
        ({"metrics": ["mcc"]}, "choose at least one of accuracy, balanced_accuracy, micro_f1"),
    ],
)
def test_metrics_that_cannot_be_are_one_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        node_classification(LabelFacts(3), **keys)
    assert "\n" not in str(refused.value)


def test_a_metric_of_a_file_is_not_called() -> None:
    node = dict(config("task.metrics=[accuracy]").task) | {"own_metrics": {"mcc": {"_target_": "os.system"}}}
    with pytest.raises(DataError, match="os.system"):
        check_calls("task", node, "a checkpoint")
    with pytest.raises(ConfigError, match="names no function"):
        OwnMetrics({"mcc": "os.system"}, ())


def test_train_graph_takes_functions(tmp_path: Path) -> None:
    def broken(predictions: np.ndarray, labels: np.ndarray) -> float:
        raise ValueError("no\nnumber")

    graph = graph_of(3, "all")
    settings = ["train.epochs=3", "task.metrics=[accuracy,confusion_matrix]", "train.save_predictions=true"]
    functions = {
        "mcc": mcc,
        "ratio": lambda predictions, labels: (predictions == labels).mean(),
        "none": lambda *_: None,
    }
    record = train_graph(graph, *settings, f"run_dir={tmp_path}/run", metrics=functions)
    with np.load(tmp_path / "run" / "predictions.npz") as file:
        predicted = file["prediction"]
    for split in SPLITS:
        mask = getattr(graph, f"{split}_mask")
        assert record.metrics[f"{split}_ratio"] == record.metrics[f"{split}_accuracy"]
        assert record.metrics[f"{split}_mcc"] == pytest.approx(mcc(predicted[mask], graph.labels[mask]), abs=1e-12)
        assert record.metrics[f"{split}_none"] is None
        wanted = reference.confusion_matrix(graph.labels[mask], predicted[mask], labels=range(3))
        assert record.confusion is not None and record.confusion[split] == wanted.tolist()
    assert read_record(tmp_path / "run") == record
    for metrics, more, message in (
        ({"mcc": broken}, [], "the metric mcc cannot be computed: its function raised ValueError: no number"),
        ({"mcc": 3}, [], "metrics takes functions by name"),
        (
            {"own": functions["ratio"]},
            ["runtime.nproc=2"],
            "the metric own has no name in a module: move it to a module",
        ),
    ):
        with pytest.raises(ConfigError, match=message) as refused:
            train_graph(graph, *settings, *more, f"run_dir={tmp_path}/{len(message)}", metrics=metrics)  # type: ignore
        assert "\n" not in str(refused.value)


@pytest.mark.sample(8)
def test_ranks_of_other_processes_import_the_function(tmp_path: Path) -> None:
    record = train_graph(
        graph_of(3, "all"), "train.epochs=2", "runtime.nproc=2", f"run_dir={tmp_path}/run", metrics={"mcc": mcc}
    )
    assert record.world_size == 2 and record.metrics["val_mcc"] is not None


def test_a_run_that_does_not_ask_gathers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullgnn.schemes.gather.GathersRows.gather_parts", lambda *_: pytest.fail("rows are gathered"))
    output = np.random.default_rng(0).standard_normal((40, 3))
    assert serial(graph_of(3, "all"), output)[0]["val_roc_auc"] is not None


def test_every_rank_measures_the_metrics_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a collective, and a set of names has another order in each process."""
    names, measured = tuple(f"metric_{number}" for number in range(12)), list[str]()
    module = sys.modules[MultiClass.__module__]
    monkeypatch.setattr(module, "OF_SCORES", names)
    monkeypatch.setattr(module, "mean_of_columns", lambda name, *_, **__: measured.append(name))
    monkeypatch.setattr(MultiClass, "known", names)
    output = np.random.default_rng(0).standard_normal((40, 3))
    serial(graph_of(3, "all"), output, f"task.metrics=[{','.join(reversed(names))}]")
    assert measured == [name for name in names for _ in SPLITS]


def test_a_prediction_calls_no_function_of_a_file(ranks, tmp_path: Path) -> None:
    """Also where it chose the best epoch, and where no other process knows the function."""
    functions = {"ratio": lambda predictions, labels: (predictions == labels).mean(), "mcc": mcc}
    settings = ["train.epochs=2", "train.checkpoint_every=2", "task.metrics=[ratio,accuracy]"]
    record = train_graph(graph_of(3, "all"), *settings, f"run_dir={tmp_path}/run", metrics=functions)
    predict(ranks, 1, tmp_path / "out", f"checkpoint={tmp_path}/run")
    metrics = metrics_of(tmp_path / "out")["metrics"]
    assert metrics == {f"{split}_accuracy": record.metrics[f"{split}_accuracy"] for split in SPLITS}
