"""The training loop: best epoch, early stopping, evaluation."""

import dataclasses

import pytest

from fullgnn.distributed import World
from fullgnn.engine import FitResult, evaluate, fit, predict, set_up
from fullgnn.engine import fit as fit_function
from fullgnn.engine.step_runner import StepRunner
from fullgnn.telemetry.meter import Meter
from tests.cases import config, dense_graph


def run_karate(world: World, *overrides: str) -> tuple[FitResult, dict[str, float | None], float]:
    """A run, the metrics of its best parameters, and its training accuracy computed independently."""
    cfg = config("dataset=karate", *overrides)
    meter = Meter(world.device)
    job = set_up(cfg, world, meter)
    model, graph = job.model, job.graph
    result = fit(StepRunner(job))
    model.load_state_dict(result.best.model)
    right = predict(job).argmax(1) == graph.labels
    return result, evaluate(job), right[graph.train_index].double().mean().item()


def test_best_epoch_is_the_earliest_with_the_best_validation_accuracy(ranks) -> None:
    (outcome,) = ranks(1)(run_karate, "train.epochs=60", "model.hidden_channels=8")
    result, best, train_accuracy = outcome
    evaluated = [record for record in result.epochs if record.metrics]
    assert len(evaluated) == 60
    top = max(record.metrics["val_accuracy"] for record in evaluated)
    assert result.best.epoch == next(record.epoch for record in evaluated if record.metrics["val_accuracy"] == top)
    assert best == result.best.metrics  # best.model holds the parameters of that epoch
    assert best["train_accuracy"] == train_accuracy


def test_eval_every(ranks) -> None:
    for eval_every, expected in ((0, [10]), (4, [4, 8, 10]), (1, list(range(1, 11)))):
        (outcome,) = ranks(1)(run_karate, "train.epochs=10", f"train.eval_every={eval_every}")
        assert [record.epoch for record in outcome[0].epochs if record.metrics] == expected


def test_early_stopping_counts_evaluations_without_progress(ranks) -> None:
    outcomes = ranks(2)(run_karate, "train.epochs=400", "train.patience=5", "train.eval_every=2")
    epochs = {len(result.epochs) for result, _, _ in outcomes}
    assert len(epochs) == 1  # all ranks stop together
    result = outcomes[0][0]
    assert len(result.epochs) == result.best.epoch + 5 * 2 < 400


def test_an_empty_split_has_no_accuracy(ranks) -> None:
    (outcome,) = ranks(1)(_without_validation)
    assert outcome.best.metrics["val_accuracy"] is None and outcome.best.metrics["test_accuracy"] is None
    assert outcome.best.epoch == 3  # without validation nodes, the last evaluation is the best epoch


def _without_validation(world: World) -> FitResult:
    cfg = config("train.epochs=3")
    meter = Meter(world.device)
    dense = dense_graph("symmetric")
    bare = dataclasses.replace(dense.graph(), val_mask=~dense.train_mask & False)
    job = set_up(cfg, world, meter, bare)
    return fit_function(StepRunner(job))


@pytest.mark.sample(2)
@pytest.mark.parametrize("replication", [1, 2])
def test_costs_are_recorded_for_every_epoch(ranks, replication: int) -> None:
    scheme = ["scheme=1.5d", "scheme.replication=2"] if replication == 2 else ["scheme=1d"]
    for result, _, _ in ranks(4)(run_karate, "train.epochs=5", "train.eval_every=2", *scheme):
        received = [record.cost.bytes_received for record in result.epochs]
        assert all(cost == received[0] for cost in received)  # all epochs are equal, and evaluations are not counted
        for record in result.epochs:
            times = record.cost.time_ms
            assert 0 < times["spmm"] + times["comm"] + times["other"] < times["epoch"]
