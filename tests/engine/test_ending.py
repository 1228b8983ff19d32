"""A training that has gone wrong ends, on every rank alike, and leaves no broken checkpoint; NaN is never best."""

import json
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn import train, train_minibatch
from fullgnn.config import Config, MinibatchConfig
from fullgnn.distributed import World, world_of_one
from fullgnn.engine import ending, step_runner
from fullgnn.engine.ending import Watch
from fullgnn.engine.state import TrainState
from fullgnn.errors import TrainingDiverged, TrainingStopped
from fullgnn.graph import Graph
from fullgnn.nn import Contract
from fullgnn.sampling import steps
from fullgnn.storage.folder import checkpoints, place_of
from fullgnn.telemetry.log import Progress
from tests.cases import config, minibatch_config
from tests.commands import OWN, run_command
from tests.storage.records import seal

KARATE = ["dataset=karate", "model.hidden_channels=4", "model.dropout=0", "train.eval_every=0", "runtime.threads=1"]
EVERY, ROWS = ["train.checkpoint_every=1", "train.keep_checkpoints=1"], "model.embedding_channels=2"


@dataclass(frozen=True)
class Ended:
    error: str
    checkpoints: list[tuple[int, int]]
    epochs: list[int]  # in epochs.jsonl


def ended(world: World, cfg: Config, damage: dict[int, float]) -> Ended:
    """How a run ends whose parameters are multiplied by ``damage[epoch]`` after the epoch, on every rank."""
    sampled, states = isinstance(cfg, MinibatchConfig), list[TrainState]()
    original, made = Progress.add_epoch, TrainState.__init__

    def note_state(state: TrainState, *args: Any) -> None:
        made(state, *args)
        states.append(state)

    def damaging(_: Progress, record: Any) -> None:
        with torch.no_grad():
            for parameter in states[-1].model.parameters():
                parameter.mul_(damage.get(record.epoch, 1.0))

    TrainState.__init__, Progress.add_epoch = note_state, damaging
    try:
        (train_minibatch if sampled else train).run_on(world, cfg)
        error = ""
    except TrainingDiverged as raised:
        error = str(raised)
    finally:
        TrainState.__init__, Progress.add_epoch = made, original
    run_dir = Path(cfg.run_dir)
    lines = (run_dir / "epochs.jsonl").read_text().splitlines()
    places = [place_of(checkpoint) for checkpoint in checkpoints(run_dir)]
    return Ended(error, places, [json.loads(line)["epoch"] for line in lines])


def all_ended(world: World, cases: list[tuple[Config, dict[int, float]]]) -> list[Ended]:
    return [ended(world, *case) for case in cases]


CURE = "Start anew with a smaller optimizer.lr (now 0.01), train.clip_norm=1, runtime.dtype=float64, or features scaled"


@pytest.mark.sample(4)
def test_a_broken_training_ends_with_its_epoch_and_the_last_good_checkpoint(ranks, tmp_path: Path) -> None:
    """Parameters that are NaN are refused by the checkpoint; finite ones that give no finite loss lose theirs, though
    only one is kept; without checkpoints and evaluations, the next loss tells."""
    nan, huge = {3: math.nan}, {3: 1e38}
    cases = {
        "nan": ([*EVERY], nan, "parameters are not finite after epoch 3", [(2, 0)], [1, 2, 3]),
        "huge": ([*EVERY], huge, "the loss of epoch 4 is nan", [(2, 0)], [1, 2, 3]),
        "bare": (["train.checkpoint_every=0"], nan, "the loss of epoch 4 is nan", [], [1, 2, 3]),
        "evaluated": (["train.eval_every=2"], huge, "the loss of epoch 4 is nan", [], [1, 2, 3]),
        "rows": ([*EVERY, ROWS], nan, "parameters are not finite after epoch 3", [(2, 0)], [1, 2, 3]),
        "sound": ([*EVERY], {}, "", [(6, 0)], [1, 2, 3, 4, 5, 6]),
    }  # fmt: skip
    made = [
        (config(*KARATE, "train.epochs=6", f"run_dir={tmp_path}/{name}", *keys), damage)
        for name, (keys, damage, *_) in cases.items()
    ]
    endings = ranks(2)(all_ended, made)
    assert endings[0] == endings[1]
    for result, (name, (_, _, problem, places, epochs)) in zip(endings[0], cases.items(), strict=True):
        assert (result.checkpoints, result.epochs) == (places, epochs), name
        assert result.error.startswith(f"the training has diverged: {problem}" if problem else ""), name
        if problem:
            good = f"the last good checkpoint is {tmp_path}/{name}/checkpoints/epoch_000002"
            assert (good if places else "there is no good checkpoint of it") in result.error
            assert CURE in result.error and "\n" not in result.error
            assert not (tmp_path / name / "record.json").exists()


def late(world: World, cases: list[tuple[Config, dict[int, float]]]) -> list[Ended]:
    """``all_ended`` where results are read late, as on a GPU."""
    modules: list[Any] = [step_runner, steps]
    originals = [module.defers_reads for module in modules]
    for module in modules:
        module.defers_reads = lambda _: True
    try:
        return all_ended(world, cases)
    finally:
        for module, original in zip(modules, originals, strict=True):
            module.defers_reads = original


@pytest.mark.sample(4)
def test_a_loss_that_is_read_late_is_noticed_one_epoch_later(ranks, tmp_path: Path) -> None:
    """Epoch 3 is damaged when it is read, which is after the launch of epoch 4, or at the checkpoint of epoch 3."""
    bare, every = ["train.checkpoint_every=0"], [*EVERY]
    cases = [
        (config(*KARATE, "train.epochs=9", f"run_dir={tmp_path}/{number}", *keys), {3: damage})
        for number, (keys, damage) in enumerate([(bare, 1e38), (every, 1e38), (every, math.nan)])
    ]
    keys = ["dataset=karate", "loader.batch_size=2", "train.checkpoint_every_batches=1"]
    cases.append((minibatch_config(*keys, "train.epochs=4", *EVERY, f"run_dir={tmp_path}/3"), {2: 1e38}))
    for bare_end, huge, nan, sampled in ranks(2)(late, cases):
        assert "the loss of epoch 5 is nan" in bare_end.error and bare_end.epochs == [1, 2, 3, 4]
        assert "the loss of epoch 4 is nan" in huge.error and huge.epochs == [1, 2, 3] and huge.checkpoints == [(2, 0)]
        assert "parameters are not finite after epoch 3" in nan.error and nan.checkpoints == [(2, 0)]
        assert "the loss of batch 1 of epoch 3 is " in sampled.error and sampled.checkpoints != []
        assert sampled.checkpoints[-1] < (2, 0)


def test_a_resumed_run_that_breaks_at_once_names_the_checkpoint_before(ranks, tmp_path: Path) -> None:
    keys = [*KARATE, "train.checkpoint_every=1", "train.keep_checkpoints=3", f"run_dir={tmp_path}/run"]
    ranks(1)(ended, config(*keys, "train.epochs=3"), {})
    broken = tmp_path / "run" / "checkpoints" / "epoch_000003"
    content = torch.load(broken / "state.pt", weights_only=True)
    for value in content["state"]["model"].values():
        value.mul_(1e38)
    torch.save(content, broken / "state.pt")
    seal(broken)
    again = config(*keys, "train.epochs=5", "resume=auto")
    (first,) = ranks(1)(ended, again, {})
    assert "the loss of epoch 4 is nan; the last good checkpoint is" in first.error and "epoch_000002." in first.error
    assert first.checkpoints == [(1, 0), (2, 0), (3, 0)]  # it is another run's, so it stays
    (second,) = ranks(1)(ended, config(*keys, "train.epochs=5", f"resume={broken.with_name('epoch_000002')}"), {})
    assert second == Ended("", [(3, 0), (4, 0), (5, 0)], [1, 2, 3, 4, 5])


LAST = {
    "parameters": ["optimizer.lr=1e30", "optimizer.weight_decay=1e30"],  # infinite
    "outputs": ["optimizer.lr=1e30"],  # whose products are
}


def test_the_update_of_the_last_epoch_is_looked_at(ranks, tmp_path: Path) -> None:
    """No loss follows it. Full-batch, sampled, and a task whose score NaN would be perfect."""
    common = ["dataset=karate", "train.epochs=1", "optimizer=sgd", "runtime.dtype=float32", "train.checkpoint_every=1"]
    made: list[tuple[Config, dict[int, float]]] = []
    for number, keys in enumerate(LAST.values()):
        for kind in ("full", "links", "sampled"):
            make, more = (config, []) if kind != "sampled" else (minibatch_config, ["loader.batch_size=100"])
            more += ["task=link_prediction", "model=gcn"] if kind == "links" else []
            made.append((make(*common, *more, *keys, f"run_dir={tmp_path}/{kind}{number}"), {}))
    for results in ranks(2)(all_ended, made):
        for number, result in enumerate(results):
            problem = "parameters are not finite" if number < 3 else "what the model computes for the training data "
            assert problem in result.error and "after epoch 1" in result.error and result.checkpoints == []


def test_an_infinite_loss_after_the_last_update_is_noticed(ranks, tmp_path: Path) -> None:
    """Squares of finite outputs overflow, so the metrics are null, as they are without a validation split."""
    node = np.arange(40)
    ring = np.stack([node, (node + 1) % 40])
    graph = Graph.from_edge_index(
        np.concatenate([ring, ring[::-1]], axis=1), features=np.eye(40), labels=node / 40, train_mask=node % 2 == 0,
        val_mask=node % 4 == 1, test_mask=node % 4 == 3,
    )  # fmt: skip
    graph.save(tmp_path / "values.npz")
    keys = ["dataset=npz", f"dataset.path={tmp_path}/values.npz", "task=node_regression", "optimizer.lr=1e15"]
    keys += ["train.epochs=1", "train.checkpoint_every=1", "model.dropout=0", f"run_dir={tmp_path}/run"]
    for outcome in ranks(2)(ended, config(*keys), {}):
        assert "gives no finite loss after epoch 1" in outcome.error and outcome.checkpoints == []


def test_a_batch_without_a_label_proves_no_checkpoint(ranks, tmp_path: Path) -> None:
    """Batch 9 breaks the parameters, and no parameter has a part in the loss of batch 10."""
    keys = ["dataset=karate", "model.hidden_channels=4", "model.dropout=0", "sampler=cluster", "loader.batch_size=1"]
    keys += ["sampler.num_clusters=33", "optimizer=sgd", "optimizer.lr=1e25", "seed=3", "train.epochs=2"]
    keys += ["train.checkpoint_every_batches=1", "train.keep_checkpoints=1", "loader.num_workers=0"]
    (outcome,) = ranks(1)(ended, minibatch_config(*keys, f"run_dir={tmp_path}/run"), {})
    assert "the loss of batch 11 of epoch 1 is nan" in outcome.error
    (kept,) = checkpoints(tmp_path / "run")
    assert str(kept) in outcome.error and place_of(kept) == (0, 8)
    model = torch.load(kept / "state.pt", weights_only=True)["state"]["model"]
    assert max(value.abs().max() for value in model.values()) < 100


def test_a_broken_batch_is_named(ranks, tmp_path: Path) -> None:
    common = [
        "dataset=karate",
        "optimizer=sgd",
        "optimizer.lr=1e30",
        "train.epochs=3",
        "train.checkpoint_every_batches=1",
    ]
    cases = [(minibatch_config(*common, "loader.batch_size=2", f"run_dir={tmp_path}/a"), {})]
    cases += [
        (minibatch_config(*common[:3], "loader.batch_size=2", "loader.num_workers=2", f"run_dir={tmp_path}/b"), {})
    ]
    for results in ranks(2)(all_ended, cases):
        for result in results:
            assert "the loss of batch 2 of epoch 1 is " in result.error and result.checkpoints == result.epochs == []
    damaged = minibatch_config("dataset=karate", *EVERY, "train.epochs=4", f"run_dir={tmp_path}/c")
    (result,) = ranks(1)(ended, damaged, {2: 1e38})
    assert "the loss of batch 1 of epoch 3 is " in result.error and result.checkpoints == [(1, 0)]


def test_commands_and_sweeps_report_it(tmp_path: Path) -> None:
    """One line a rank and status 1; a sweep goes on with its next job."""
    keys = ["dataset=karate", "runtime.nproc=2", "runtime.device=cpu", "optimizer=sgd", "train.epochs=5"]
    done = run_command(OWN, *keys, "optimizer.lr=1e30", "run_dir=one", cwd=tmp_path)
    assert done.status == 1 and "Traceback" not in done.output
    assert len(done.errors) == 2 and all("gives no finite loss after epoch 1; there is no" in e for e in done.errors)
    sweep = run_command(OWN, "-m", *keys, "optimizer.lr=1e30,0.01", "run_dir=all", cwd=tmp_path)
    table = (tmp_path / "all" / "sweep.csv").read_text().splitlines()
    assert sweep.status == 1 and ",failed," in table[1] and ",ok," in table[2]


@dataclass(frozen=True)
class Scored:
    """A task of which only the comparison counts; ``larger`` tells which score is better."""

    larger: bool
    metrics: tuple[str, ...] = ("score",)

    def is_better(self, metric: float, best: float) -> bool:
        return not metric <= best if self.larger else not metric >= best  # NaN would be better than all


NAN, INF = math.nan, math.inf
SCORES = {
    "nan first": ([NAN, 0.2, NAN, 0.5, 0.4], [0, 2, 2, 4, 4], [1, 0, 1, 0, 1]),
    "nan last": ([0.3, NAN, NAN], [1, 1, 1], [0, 1, 2]),
    "infinite": ([INF, 0.3, INF, -INF, 0.4], [0, 2, 2, 2, 5], [1, 0, 1, 2, 0]),
    "never a number": ([NAN, INF, NAN], [0, 0, 0], [1, 2, 3]),
    "null": ([None, None], [1, 2], [0, 0]),
    "null at times": ([None, 0.3, None, 0.4], [1, 2, 2, 4], [0, 0, 1, 0]),
    "null, then nan": ([None, NAN, 0.3], [1, 1, 3], [0, 1, 0]),
}
"""Validation scores; the best epoch after each of them (0: none), and the evaluations since."""


@pytest.mark.parametrize("larger", [True, False])
@pytest.mark.parametrize("name", SCORES)
def test_nan_is_never_best(name: str, larger: bool) -> None:
    scores, best, stale = SCORES[name]
    state = TrainState(torch.nn.Linear(1, 1), config())
    for epoch, score in enumerate(scores, 1):
        state.epoch = epoch
        signed = score if score is None or larger else -score
        state.note({"train_score": 0.0, "val_score": signed, "test_score": None}, Scored(larger))
        assert (0 if state.best is None else state.best.epoch, state.stale) == (best[epoch - 1], stale[epoch - 1])


def lines_of(world: World, cfgs: list[Config]) -> list[list[str]]:
    """What rank 0 logs of early stopping in each run, and the field ``ended_by``."""
    logged: list[list[str]] = []
    for cfg in cfgs:
        lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record, lines=lines: lines.append(record.getMessage())  # type: ignore[method-assign]
        ending.log.addHandler(handler)
        ending.log.setLevel(logging.INFO)
        try:
            record = (train_minibatch if isinstance(cfg, MinibatchConfig) else train).run_on(world, cfg)
        except TrainingStopped:
            raise AssertionError from None
        finally:
            ending.log.removeHandler(handler)
            ending.log.setLevel(logging.NOTSET)
        logged.append([record.ended_by, str(record.epochs), str(record.best_epoch), *lines])
    return logged


def test_early_stopping_says_where_and_why_and_when_it_cannot_act(ranks, tmp_path: Path) -> None:
    early = [*KARATE, "train.eval_every=2", "train.patience=3"]
    links = ["dataset=karate", "task=link_prediction", "model=gcn", "task.val_fraction=0", "train.eval_every=1"]
    equal = ["dataset=karate", "task=node_regression", "task.metrics=[r2]", "train.eval_every=1"]
    cfgs = [
        config(*early, "train.epochs=300", f"run_dir={tmp_path}/a"),
        minibatch_config(*early, "train.epochs=300", f"run_dir={tmp_path}/b"),
        config(*early, "train.epochs=8", f"run_dir={tmp_path}/c"),
        config(*links, "train.epochs=6", "train.patience=2", f"run_dir={tmp_path}/d"),
        config(*equal, "train.epochs=9", "train.patience=2", f"run_dir={tmp_path}/e"),
        config(*KARATE, "train.eval_every=1", "train.epochs=5", f"run_dir={tmp_path}/f"),
    ]
    (logged,) = ranks(1)(lines_of, cfgs)
    for ended_by, epochs, best, *lines in logged[:2]:
        assert ended_by == "patience" and int(epochs) == int(best) + 6 and len(lines) == 1
        assert lines[0].startswith(f"stopped early after epoch {epochs} of 300: val_accuracy has not been better than ")
        assert lines[0].endswith(f", that of epoch {best}, for 3 evaluations (train.patience=3)")
    assert logged[2][0] == "epochs" and logged[2][3:] == [
        "train.patience=3 cannot act: there are 3 evaluations before the last epoch (train.epochs=8,"
        " train.eval_every=2), and it needs more than 3"
    ]
    assert logged[3][0] == "epochs" and logged[3][3:] == [
        "train.patience=2 cannot act: val_mrr is null, as without a validation split, or with one that lacks what the"
        " metric compares: give the graph another one, choose another of task.metrics, or leave train.patience out"
    ]
    assert logged[5] == ["epochs", "5", logged[5][2]]
    assert len({line for line in logged[4][3:] if "cannot act" in line}) <= 1


class Rows(torch.nn.Module):
    """A model whose only parameter has a row for each node of this rank."""

    def __init__(self, num_rows: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(num_rows, 2))

    def contract(self) -> Contract:
        return Contract(sharded=("weight",))


@dataclass(frozen=True)
class Others:
    """The other ranks, which have found something ``bad`` or not."""

    bad: bool = False

    def sum_over_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor + self.bad


def test_a_rank_without_rows_ends_with_the_others() -> None:
    cfg = config("optimizer.lr=0.25", "runtime.dtype=float64", "train.clip_norm=3")
    with world_of_one(cfg.runtime):
        for num_rows in (0, 4):
            state = TrainState(Rows(num_rows).double(), cfg)
            Watch(state, Others()).parameters(7)
            with pytest.raises(TrainingDiverged, match="parameters are not finite after epoch 7") as raised:
                Watch(state, Others(True)).parameters(7)
            cure = "a smaller optimizer.lr (now 0.25), a train.clip_norm below 3, or features scaled to about 1"
            assert str(raised.value).endswith(f"Start anew with {cure}")
        state.model.weight.data[3, 1] = math.inf
        with pytest.raises(TrainingDiverged):
            Watch(state, Others()).parameters(7)


def test_replicas_end_alike(ranks, tmp_path: Path) -> None:
    keys = ["scheme=1.5d", "scheme.replication=2", *EVERY, "train.epochs=6", f"run_dir={tmp_path}/run"]
    endings = ranks(4)(ended, config(*KARATE, *keys), {3: math.nan})
    assert all(end == endings[0] for end in endings) and endings[0].checkpoints == [(2, 0)]
    assert "parameters are not finite after epoch 3" in endings[0].error
