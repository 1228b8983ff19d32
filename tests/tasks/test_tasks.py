"""Losses, gradients and metrics of every task, on several layouts, against torch and scikit-learn on all nodes."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn import metrics as reference
from torch.nn import functional

from fullgnn import train, train_minibatch
from fullgnn.config import Config, MinibatchConfig
from fullgnn.distributed import World
from fullgnn.engine import check_preparation, evaluate, predict, set_up
from fullgnn.engine.run import build_model
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph
from fullgnn.graph.labels import LabelFacts
from fullgnn.tasks import MultiClass, TaskContract, node_classification, node_regression
from fullgnn.telemetry.meter import Meter
from tests.cases import config, dense_graph, layout_overrides, minibatch_config
from tests.oracle import normalize
from tests.schemes.training import summed_gradients

LAYOUTS = [(1, 1, ""), (3, 1, ""), (4, 2, ""), (4, 2, "scheme.split_rows=false")]
"""Processes, replication, and one more override."""

REGRESSION = "task=node_regression"
TASKS: dict[str, tuple[str, list[str]]] = {
    "weighted classes": ("classes", ["task.class_weight=[1,0.25,3]", "task.metrics=[macro_f1,accuracy,micro_f1]"]),
    "balanced classes": ("classes", ["task.class_weight=balanced", "task.label_smoothing=0.2"]),
    "several labels": ("labels", []),
    "several labels, unknown ones": ("unknown labels", ["task.class_weight=balanced", "task.label_smoothing=0.1"]),
    "weighted labels": ("labels", ["task.class_weight=[2,0.5,1,1,4]", "task.metrics=[roc_auc,macro_f1]"]),
    "one value": ("value", [REGRESSION]),
    "values": ("values", [REGRESSION, "task.loss=huber", "task.metrics=[r2,mae,rmse]"]),
    "unknown values": ("unknown values", [REGRESSION, "task.loss=mae"]),
}
"""Labels, and overrides."""


def labelled(kind: str) -> Graph:
    """29 nodes with labels of this kind."""
    dense, rng = dense_graph("directed"), np.random.default_rng(3)
    labels: Any = dense.labels
    if "labels" in kind:
        labels = rng.integers(0, 2, (29, 5))
    elif "value" in kind:
        labels = rng.standard_normal((29, 3) if kind != "value" else 29) + 5
    if "unknown" in kind:
        labels = np.where(rng.random(labels.shape) < 0.3, np.nan, labels)
        labels[:, 0] = np.where(np.isnan(labels[:, 0]), 1, labels[:, 0])  # every node has a label
    test = ~dense.train_mask & ~dense.val_mask
    return dataclasses.replace(dense.graph(), labels=labels, test_mask=test, num_classes=0)


def case(task: str, replication: int, *overrides: str) -> tuple[Config, Graph]:
    kind, own = TASKS[task]
    layout = [*layout_overrides(replication), *filter(None, overrides)]
    return config(*layout, "runtime.dtype=float64", "model.dropout=0", *own), labelled(kind)


def one_step(world: World, cfg: Config, graph: Graph) -> dict[str, Any]:
    """The loss, its gradients, and the metrics with the output that they measure, before training."""
    job = set_up(cfg, world, Meter(world.device), graph if world.rank == 0 else None)
    gradients = summed_gradients(job)
    output = job.scheme.gather(predict(job))
    return {
        "loss": gradients.results[0].item(),
        "gradients": [parameter.grad.numpy().copy() for parameter in job.model.parameters()],
        "metrics": evaluate(job),
        "output": None if output is None else output.numpy(),
        "prediction": None if output is None else job.task.prediction(output).numpy(),
    }


def expected_step(cfg: Config, graph: Graph) -> tuple[float, list[np.ndarray], np.ndarray]:
    """Loss, gradients and output of a dense GCN in torch, whose loss is torch's own mean."""
    width = graph.num_classes or graph.labels.shape[-1] if graph.labels.ndim == 2 else graph.num_classes or 1
    model = build_model(cfg, graph.num_features, width, torch.device("cpu"))
    adj = torch.from_numpy(normalize(graph.adjacency().toarray(), "sym"))
    weights = list(model.parameters())  # bias before weight
    h = torch.from_numpy(graph.features.copy())
    convs = [layer.conv for layer in model.layers]
    for number, conv in enumerate(convs):
        h = adj @ h @ conv.linear.weight + conv.bias
        h = h.relu() if number < len(convs) - 1 else h
    loss = expected_loss(cfg, graph, h)
    loss.backward()
    return loss.item(), [weight.grad.numpy() for weight in weights], h.detach().numpy()


def expected_loss(cfg: Config, graph: Graph, output: torch.Tensor) -> torch.Tensor:
    train, task = torch.from_numpy(graph.train_mask.copy()), cfg.task
    labels, output = torch.from_numpy(graph.labels.copy())[train], output[train]
    if task["name"] == "node_regression":
        losses = {"mse": functional.mse_loss, "mae": functional.l1_loss, "huber": functional.huber_loss}
        labels = labels.reshape(len(labels), -1)
        known = ~labels.isnan()
        return losses[task["loss"]](output[known], labels[known])
    smoothing, given = task["label_smoothing"], task["class_weight"]
    if labels.dim() == 1:
        counts = labels.bincount(minlength=graph.num_classes).double()
        weight = len(labels) / (graph.num_classes * counts) if given == "balanced" else torch.tensor(given)
        return functional.cross_entropy(output, labels, weight.double(), label_smoothing=smoothing)
    known = ~labels.isnan() if labels.is_floating_point() else labels >= 0
    labels = labels.double().nan_to_num(0)
    positive = (labels * known).sum(dim=0)
    weight = torch.tensor(given).double() if isinstance(given, list) else torch.ones(5)
    if given == "balanced":
        weight = (known.sum(dim=0) - positive) / positive
    losses = -(
        weight * (labels * (1 - smoothing) + smoothing / 2) * functional.logsigmoid(output)
        + (1 - labels * (1 - smoothing) - smoothing / 2) * functional.logsigmoid(-output)
    )
    return losses[known].mean()


def expected_metric(name: str, graph: Graph, split: str, output: np.ndarray) -> float:
    mask = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}[split]
    labels, output = graph.labels[mask], output[mask]
    if name in ("rmse", "mae", "r2"):
        labels = labels.reshape(output.shape)
        known = ~np.isnan(labels)
        if name == "r2":
            return np.mean([reference.r2_score(y[k], x[k]) for y, x, k in zip(labels.T, output.T, known.T)])
        compute = reference.root_mean_squared_error if name == "rmse" else reference.mean_absolute_error
        return compute(labels[known], output[known])
    if labels.ndim == 1:
        predicted = output.argmax(axis=1)
        if name == "accuracy":
            return (predicted == labels).mean()
        return reference.f1_score(labels, predicted, average=name[:5], zero_division=0)
    known = ~np.isnan(labels.astype(float)) & (labels >= 0)
    columns = [(labels[k, c], output[k, c]) for c, k in enumerate(known.T)]
    if name == "roc_auc":
        return np.mean([reference.roc_auc_score(y, x) for y, x in columns if 0 < y.sum() < len(y)])
    if name == "macro_f1":
        return np.mean([reference.f1_score(y, x > 0, zero_division=0) for y, x in columns])
    return reference.f1_score(labels[known].astype(int), output[known] > 0, zero_division=0)


@pytest.mark.sample(6)
@pytest.mark.parametrize(("world_size", "replication", "override"), LAYOUTS)
@pytest.mark.parametrize("task", TASKS)
def test_loss_gradients_and_metrics(ranks, task: str, world_size: int, replication: int, override: str) -> None:
    cfg, graph = case(task, replication, override)
    loss, gradients, output = expected_step(cfg, graph)
    outcomes = ranks(world_size)(one_step, cfg, graph)
    np.testing.assert_allclose(outcomes[0]["output"], output, rtol=0, atol=1e-11)
    for outcome in outcomes:
        assert outcome["loss"] == pytest.approx(loss, abs=1e-12)
        for gradient, other in zip(outcome["gradients"], gradients, strict=True):
            np.testing.assert_allclose(gradient, other, rtol=0, atol=1e-12)
        assert outcome["metrics"] == outcomes[0]["metrics"]
        for name, value in outcome["metrics"].items():
            split, _, metric = name.partition("_")
            assert value == pytest.approx(expected_metric(metric, graph, split, output), abs=1e-12), name
    names = cfg.task["metrics"] or {"node_regression": ["rmse", "mae", "r2"]}.get(cfg.task["name"])
    of_classes = ["accuracy"] if cfg.task.get("class_weight") is None else ["macro_f1", "accuracy"]
    names = names or (of_classes if graph.labels.ndim == 1 else ["micro_f1", "macro_f1", "roc_auc"])
    assert list(outcome["metrics"]) == [f"{split}_{name}" for name in names for split in ("train", "val", "test")]


def test_predictions() -> None:
    output = torch.tensor([[0.5, -0.5], [-1.0, -2.0]])
    classes, labels = LabelFacts(2), LabelFacts(2, columns=2, binary=True, train_known=(1, 1), train_sum=(0, 1))
    assert node_classification(classes).prediction(output).tolist() == [0, 0]
    assert node_classification(labels).prediction(output).tolist() == [[True, False], [False, False]]
    assert node_regression(labels).prediction(output) is output


def test_which_value_is_better() -> None:
    assert node_classification(LabelFacts(2)).is_better(0.6, 0.5)
    assert node_regression(LabelFacts(2)).is_better(0.5, 0.6)
    assert not node_regression(LabelFacts(2)).is_better(0.5, 0.5)
    assert node_regression(LabelFacts(2), ["r2"]).is_better(0.6, 0.5)


@pytest.mark.parametrize(
    ("labels", "overrides", "message"),
    [
        (None, [], "the graph has no labels"),
        ([0.5] * 29, [], "choose task=node_regression, or number the classes as numpy.unique(labels, "),
        ([-1.0, 1] * 14 + [0], [], "(unknown: -1, in floats NaN), and the labels hold other numbers"),
        (
            [10**12] * 29,
            [],
            "up to 1048576 classes, and the labels go up to 1000000000000: choose task=node_regression",
        ),
        (np.full((29, 2), 0.5), [], "takes 0 or 1 in labels of several columns"),
        (None, ["task=node_regression"], "the graph has no labels"),
        ([0, 1] * 14 + [2], ["task.class_weight=[1,2]"], "has 2 numbers and the graph 3 classes"),
        ([0, 1] * 14 + [0], ["task.class_weight=[nan,2]"], "give finite numbers of at least 0"),
        ([0, 1] * 14 + [2], ["task.class_weight=[1,2,-1]"], "give finite numbers of at least 0"),
        ([0, 1] * 14 + [2], ["task.class_weight=[0,0,1]"], "gives every training node the weight 0"),
        ([0, 1] * 14 + [2], ["task.class_weight=even"], "task.class_weight=even is not known"),
        ([0, 1] * 14 + [2], ["task.metrics=[rmse]"], "choose at least one of accuracy, balanced_accuracy, micro_f1"),
        ([0, 1] * 14 + [2], ["task.metrics=rmse"], "task.metrics=['rmse']: choose at least one of accuracy"),
        (
            [0, 1] * 14 + [2],
            ["task.metrics=[confusion_matrix]"],
            "chooses no best epoch: add a metric that is a number",
        ),
        ([0, 1] * 14 + [2], ["task.metrics=[]"], "choose at least one"),
        ([0, 1] * 14 + [2], ["task.class_weight={0:1,1:2,2:1}"], "give balanced, or a list of numbers"),
        ([0, 1] * 14 + [2], ["task.label_smoothing=1"], "task.label_smoothing=1.0 is out of range"),
        ([0.5] * 29, ["task=node_regression", "task.loss=log"], "task.loss=log is not known"),
    ],
)
def test_what_a_task_refuses_is_one_line_on_every_rank(ranks, labels: Any, overrides: list[str], message: str) -> None:
    graph = dataclasses.replace(dense_graph("symmetric").graph(), labels=labels, num_classes=0)
    messages = ranks(2)(refusal, config(*overrides), graph)
    assert len(set(messages)) == 1 and message in messages[0] and "\n" not in messages[0], messages[0]


def refusal(world: World, cfg: Config, graph: Graph) -> str:
    with pytest.raises((ConfigError, DataError)) as caught:
        set_up(cfg, world, Meter(world.device), graph if world.rank == 0 else None)
    return str(caught.value)


@pytest.mark.parametrize(
    "override", ["task.label_smoothing=1", "task.class_weight=[1,-2]", "task.class_weight=even", "task.metrics=[auc]"]
)
def test_keys_out_of_range_are_refused_before_a_graph_is_loaded(override: str) -> None:
    with pytest.raises(ConfigError, match=r"^task\."):
        check_preparation(config(override))
    for kind in ("task.class_weight=[1,2,0.5]", "task.class_weight=balanced", "task.metrics=average_precision"):
        check_preparation(config(kind))


def test_a_graph_without_training_nodes_is_refused(ranks) -> None:
    graph = dataclasses.replace(dense_graph("symmetric").graph(), train_mask=None)
    (message,) = ranks(1)(refusal, config(), graph)
    assert message.startswith("dataset graph: train_mask is empty")


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (np.array([[0], [1], [1]]), np.array([0, 1, 1])),
        (np.array([[0.0], [np.nan], [2]], np.float32), np.array([0, np.nan, 2], np.float32)),
        (np.array([[True, False]] * 3), np.array([[1, 0]] * 3, np.int8)),
        (np.array([[1, -1]] * 3), np.array([[1, -1]] * 3, np.int8)),
        (None, np.array([-1, -1, -1])),
    ],
)
def test_labels_of_the_shapes_that_people_have(given: Any, stored: np.ndarray) -> None:
    graph = Graph.from_scipy(csr_array(np.eye(3)), labels=given)
    assert graph.labels.dtype == stored.dtype and np.array_equal(
        graph.labels, stored, equal_nan=stored.dtype.kind == "f"
    )
    assert graph.num_features == 0 and not graph.train_mask.any()
    again = graph.permute([2, 0, 1])
    assert again.num_classes == graph.num_classes


def test_classes_given_as_floats_train(ranks) -> None:
    """As ogbn-papers100M stores its labels: (n, 1), NaN where there is none."""
    graph = dense_graph("symmetric").graph()
    floats = graph.labels.astype(np.float32)[:, None]
    floats[~(graph.train_mask | graph.val_mask)] = np.nan
    (plain,), (of_floats,) = (
        ranks(1)(one_step, config(), dataclasses.replace(graph, labels=labels, num_classes=3))
        for labels in (graph.labels, floats)
    )
    assert of_floats["loss"] == plain["loss"] and of_floats["metrics"] == plain["metrics"]


class OwnMean(MultiClass):
    """A user's task whose loss of no nodes is NaN, as a mean of nothing is."""

    contract = TaskContract(learns_batches=True)

    def __init__(self, labels: LabelFacts):
        super().__init__(labels)
        self.num_train = labels.num_train

    def loss(self, output: torch.Tensor, targets: torch.Tensor, total: float | None = None) -> torch.Tensor:
        return functional.cross_entropy(output, targets) * len(targets) / (total or self.num_train)

    def total(self, targets: torch.Tensor) -> float:
        return float(len(targets))


def losses_of(world: World, cfg: Config) -> list[float]:
    (train_minibatch if isinstance(cfg, MinibatchConfig) else train).run_on(world, cfg)
    return [json.loads(line)["loss"] for line in (Path(cfg.run_dir) / "epochs.jsonl").read_text().splitlines()]


@pytest.mark.sample(2)
@pytest.mark.parametrize("sampled", [False, True])
def test_a_rank_without_nodes_has_no_part_in_the_loss(ranks, tmp_path: Path, sampled: bool) -> None:
    """Two training nodes on four ranks, and batches of one node."""
    make: Any = minibatch_config if sampled else config
    keys = ["dataset=karate", "dataset.train_per_class=1", "runtime.dtype=float64", "model.dropout=0", "train.epochs=3"]
    keys += ["loader.batch_size=1", "sampler.fanouts=[-1,-1]"] if sampled else ["train.eval_every=1"]
    losses = []
    for task in ("own", "ours"):
        for num_ranks in (1, 4):
            cfg = make(*keys, f"run_dir={tmp_path}/{task}_{num_ranks}")
            if task == "own":
                cfg.task = {"_target_": f"{__name__}.OwnMean", "name": "own"}
            losses.append(ranks(num_ranks)(losses_of, cfg)[0])
    assert len(losses[0]) == 3
    for of_run in losses:
        np.testing.assert_allclose(of_run, losses[-1], rtol=0, atol=1e-12)
