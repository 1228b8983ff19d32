"""Tasks that find links on graphs with few pairs, few negatives, or none: training, metrics, refusals, predictions."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from fullgnn.distributed import World
from fullgnn.graph import Graph
from fullgnn.graph.remarks import say
from fullgnn.storage.record import RunRecord
from fullgnn.train import run_on
from tests.cases import config, layout_overrides
from tests.predictions import metrics_of, predict, train
from tests.tasks.link_training import error_of, gcn_losses, graph_of

LAYOUTS = [(1, 1), (2, 1), (4, 1), (4, 2)]
"""Processes and replication."""
LEARNS = ["runtime.dtype=float64", "task.channels=4", "train.epochs=3"]
PREDICTION = ["task=link_prediction", "task.num_candidates=5", *LEARNS]
RANKING = ["task=link_ranking", "model=lightgcn", *LEARNS]


def joined(edges: list[tuple[int, int]], num_nodes: int, **fields: Any) -> Graph:
    """A graph with both directions of each edge, and features that tell the nodes apart."""
    arcs = np.array(edges).T
    both = np.concatenate([arcs, arcs[::-1]], axis=1)
    return Graph.from_edge_index(both, num_nodes=num_nodes, features=np.eye(num_nodes), **fields)


def complete(num_nodes: int) -> Graph:
    return joined([(i, j) for i in range(num_nodes) for j in range(i)], num_nodes)


PATH, ONE_PAIR = joined([(0, 1), (1, 2), (2, 3)], 4), joined([(3, 5)], 9)
FEW_USERS = joined([(0, 3), (0, 4), (2, 4)], 6, num_users=3)  # user 1 has no item
CASES = {
    "fewer than 20 edges": ([*PREDICTION], PATH, (False, False)),
    "for testing alone": ([*PREDICTION, "task.val_fraction=0", "task.test_fraction=0.4"], PATH, (False, True)),
    "for validation alone": ([*PREDICTION, "task.val_fraction=0.4", "task.test_fraction=0"], PATH, (True, False)),
    "one training pair": ([*PREDICTION], ONE_PAIR, (False, False)),
    "a batch of all": ([*PREDICTION, "task.batch_size=100"], PATH, (False, False)),
    "batches of one": ([*PREDICTION, "task.batch_size=1"], PATH, (False, False)),
    "more negatives than candidates": ([*PREDICTION, "task.num_negatives=9"], PATH, (False, False)),
    "patience": ([*PREDICTION, "train.patience=1", "train.epochs=5"], ONE_PAIR, (False, False)),
    "items": ([*PREDICTION], FEW_USERS, (False, False)),
    "ranking": ([*RANKING], FEW_USERS, (False, False)),
    "ranking, batches of one": ([*RANKING, "task.batch_size=1"], FEW_USERS, (False, False)),
    "ranking, with validation": ([*RANKING, "task.val_fraction=0.4"], FEW_USERS, (True, False)),
}
"""Overrides, graph, and whether validation and testing have a pair."""


@pytest.mark.sample(4)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
def test_few_pairs_train_on_any_number_of_ranks(ranks, world_size: int, replication: int, every_case: bool) -> None:
    job, turn = ranks(world_size), LAYOUTS.index((world_size, replication))
    for number, (name, (overrides, graph, has_metrics)) in enumerate(CASES.items()):
        if not every_case and number % 3 != turn % 3:
            continue  # each case on one layout with several ranks
        (exact, metrics), *_ = ranks(1)(gcn_losses, config(*overrides), graph)
        assert np.isfinite(exact).all() and min(exact) > 0.3, name
        assert metrics["train_" + next(iter(metrics)).removeprefix("train_")] is None
        for split, has in zip(("val", "test"), has_metrics):
            assert all((value is not None) == has for key, value in metrics.items() if key.startswith(split)), name
        for losses, measured in job(gcn_losses, config(*layout_overrides(replication), *overrides), graph):
            np.testing.assert_allclose(losses, exact, rtol=0, atol=1e-12, err_msg=name)
            assert measured == pytest.approx(metrics), name


WITHOUT_NEGATIVES = {
    "complete": (
        [*PREDICTION, "task.val_fraction=0", "task.test_fraction=0"],
        complete(20),
        "none of the 190 pairs to train on has a negative, since the first node of each, which has the lower id, is"
        " joined with every other node: give a graph where one is not, or number such nodes after all others",
    ),
    "two nodes": ([*PREDICTION], complete(2), "none of the 1 pairs to train on has a negative, since the first node"),
    "a star": (
        [*PREDICTION, "task.val_fraction=0", "task.test_fraction=0"],
        joined([(0, leaf) for leaf in range(1, 30)], 30),
        "none of the 29 pairs to train on has a negative",
    ),
    "every user has every item": (
        [*RANKING],
        joined([(user, item) for user in range(2) for item in range(2, 5)], 5, num_users=2),
        "none of the 6 pairs to train on has a negative, since each of their users is joined with every item: give a"
        " graph where one is not",
    ),
    "no pair": ([*PREDICTION], Graph.from_edge_index([[1], [1]], num_nodes=3), "there is no edge to train on: give"),
}
"""Overrides, graph, and the error."""


def test_a_graph_without_a_negative_is_refused_on_every_rank(ranks) -> None:
    for num_ranks in (1, 2):
        for name, (overrides, graph, message) in WITHOUT_NEGATIVES.items():
            for error in ranks(num_ranks)(error_of, config(*overrides), graph):
                assert error.startswith(f"dataset graph: {message}") and "\n" not in error, name


def test_the_cure_of_a_star_is_one(ranks) -> None:
    star = joined([(leaf, 29) for leaf in range(29)], 30)
    ((losses, _),) = ranks(1)(gcn_losses, config(*PREDICTION), star)
    assert min(losses) > 0.5


def trained(world: World, overrides: list[str]) -> RunRecord:
    return run_on(world, config(*overrides))


def stored(graph: Graph, file: Path) -> list[str]:
    """The overrides that read ``graph`` from a new ``file``."""
    graph.save(file)
    return ["dataset=npz", f"dataset.path={file}"]


def test_the_record_counts_what_has_no_negative(ranks, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = [*PREDICTION, *stored(graph_of("almost complete"), tmp_path / "one.npz"), "model.embedding_channels=4"]
    keys += ["train.epochs=1", "runtime.device=cpu"]
    record = ranks(2)(trained, [*keys, f"run_dir={tmp_path / 'one'}", "task.val_fraction=0", "task.test_fraction=0"])[0]
    assert record.remarks == {"pairs_without_negative": 140, "training_pairs": 188}
    caplog.set_level(logging.INFO)
    say("mine", record.remarks)
    assert [log_record.message for log_record in caplog.records] == [
        "mine: 140 of 188 pairs have no negative, because their first node is joined with every candidate; they are not"
        " trained with"
    ]
    keys += [*stored(complete(20), tmp_path / "two.npz"), f"run_dir={tmp_path / 'two'}"]
    record = ranks(2)(trained, [*keys, "task.val_fraction=0.1", "task.test_fraction=0.1"])[0]
    assert record.remarks["held_out_pairs_without_negative"] == 38
    assert set(record.metrics.values()) == {None}


@pytest.mark.sample(4)
def test_a_run_without_validation_pairs_goes_on_and_predicts(ranks, tmp_path: Path) -> None:
    """Karate, with pairs for testing alone."""
    keys = ["dataset=karate", "task=link_prediction", "task.val_fraction=0", "task.metrics=[mrr]", "seed=3"]
    keys += ["train.keep_checkpoints=9"]
    whole = train(ranks, tmp_path / "run", *keys)
    again = ranks(2)(
        trained,
        [*keys, "runtime.device=cpu", "runtime.dtype=float64", "train.epochs=9", f"run_dir={tmp_path / 'again'}",
         f"resume={whole / 'checkpoints' / 'epoch_000004'}"],
    )  # fmt: skip
    assert again[0].metrics["val_mrr"] is None and 0 < again[0].metrics["test_mrr"] < 1
    for num_ranks in (1, 4):
        out = tmp_path / f"on {num_ranks}"
        predicted = predict(ranks, num_ranks, out, f"checkpoint={whole}")
        assert predicted["outputs"].shape == (34, 64)
        measured = metrics_of(out)["metrics"]
        assert measured == pytest.approx({name: again[0].metrics[name] for name in measured})


def test_a_trained_model_predicts_where_nothing_could_be_trained(ranks, tmp_path: Path) -> None:
    """A graph without edges, and one whose pairs have no negative."""
    all_edges = ["task.val_fraction=0", "task.test_fraction=0"]
    run_dir = train(ranks, tmp_path / "run", "dataset=karate", "task=link_prediction", *all_edges)
    for name, adj in (("edgeless", np.zeros((34, 34))), ("complete", 1 - np.eye(34))):
        graph = Graph.from_scipy(csr_array(adj), features=np.eye(34))
        keys = stored(graph, tmp_path / f"{name}.npz")
        predicted = predict(ranks, 2, tmp_path / name, f"checkpoint={run_dir}", *keys)
        assert predicted["outputs"].shape == (34, 64) and np.isfinite(predicted["outputs"]).all()
        assert not (tmp_path / name / "metrics.json").exists()
