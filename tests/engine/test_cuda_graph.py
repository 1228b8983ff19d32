"""Replayed epochs train exactly like eager epochs.

On a CPU, ``LaunchRecorder`` replaces the CUDA graph. The steps here use torch's kernels, which are operators that it
records; ``test_recorded_steps.py`` has the kernels for GPUs.
"""

import dataclasses
import gc
import inspect
import json
import logging
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import cuda_graph, fit, set_up, step_runner, summary
from fullgnn.engine.checks import replay_for
from fullgnn.engine.cuda_graph import EAGER_EPOCHS, REPLAYED, Replay
from fullgnn.engine.fit import FitResult
from fullgnn.engine.state import TrainState
from fullgnn.engine.step_runner import StepRunner
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.cuda_graph import CudaGraph
from fullgnn.kernels.support.trials import strided
from fullgnn.telemetry.meter import Cost, EpochRecord, Meter
from fullgnn.train import run_on
from tests.cases import Calling, config, layout_overrides
from tests.engine.cuda_graph import on_gpu
from tests.gpu_code.launch_recorder import LaunchRecorder

LAYOUTS = [(1, 1), (2, 1), (4, 2)]
EPOCHS = 9


class Recorded(LaunchRecorder):
    """A ``LaunchRecorder`` that notes its calls and may fail.

    Args:
        calls: the methods that were called, appended in order.
        fails: by rank, where the graph raises: when ``made``, ``early`` in the capture, or ``late``, after the step.
        rank: the rank of this process.
    """

    def __init__(self, calls: list[str], fails: dict[int, str], rank: int):
        super().__init__()
        self.calls, self.fails = calls, fails.get(rank, "")
        if self.fails == "made":
            raise RuntimeError("no graph\nto be had")

    def capture(self, step: Callable[[], None]) -> None:
        self.calls.append("capture")
        if self.fails == "early":
            raise RuntimeError("no graph\nto be had")
        super().capture(step)
        if self.fails == "late":  # the worst case: all values have changed, and gradients are other tensors
            training: StepRunner = step.__self__  # type: ignore[attr-defined]
            with torch.no_grad():
                for tensor in (*training.state.model.parameters(), training.state.gradients.flat):
                    tensor.add_(1)
            for parameter in training.state.model.parameters():
                parameter.grad = torch.ones_like(parameter)
            raise RuntimeError("no graph\nto be had")

    def replay(self) -> None:
        self.calls.append("replay")
        super().replay()

    def reset(self) -> None:
        self.calls.append("reset")
        super().reset()


def case(replication: int, *overrides: str) -> Config:
    return config(
        "dataset=karate", *layout_overrides(replication), "model.dropout=0.4", "model.hidden_channels=6", "seed=3",
        "runtime.dtype=float64", "optimizer.lr=0.05", f"train.epochs={EPOCHS}", "train.eval_every=3", *overrides,
    )  # fmt: skip


def plain_case(replication: int, *overrides: str) -> Config:
    """A ``case`` whose steps consist of operators of torch: no compiled loops for CPUs, no memory that ranks share."""
    return case(replication, "model.dropout=0", "kernel=torch", "scheme.shared_memory=false", *overrides)


ON_CPU = pytest.mark.parametrize("ranks", ["gloo"], indirect=True)
"""For tests with a ``LaunchRecorder``, which replays what a CPU runs."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    result: FitResult
    parameters: list[np.ndarray]
    calls: list[str]
    lines: list[str]
    seen: list[int]  # epochs that were passed on


def train(world: World, cfg: Config, fails: dict[int, str] | None, late: bool = False) -> Outcome:
    """A run; with the stand-in, and its failures by rank, if ``fails`` is given."""
    calls: list[str] = []
    replay = Replay(None, "not here")
    if fails is not None:
        replay = Replay(lambda: Recorded(calls, fails, world.rank))
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    package = logging.getLogger("fullgnn.engine.cuda_graph")
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    meter = Meter(world.device)
    job = set_up(cfg, world, meter)
    seen: list[int] = []
    try:
        with mock.patch("fullgnn.engine.step_runner.defers_reads", lambda device: late):
            step = StepRunner(job, replay)
            result = fit(step, [Calling(lambda record: seen.append(record.epoch))])
    finally:
        package.removeHandler(handler)
    parameters = [parameter.detach().cpu().numpy().copy() for parameter in job.model.parameters()]
    return Outcome(result, parameters, calls, lines, seen)


def assert_the_same_training(training: Outcome, other: Outcome) -> None:
    """Assert bitwise equal losses, accuracies and parameters, and equal bytes and counts of every epoch."""
    assert len(training.result.epochs) == len(other.result.epochs)
    for a, b in zip(training.result.epochs, other.result.epochs):
        assert (a.epoch, a.loss, a.metrics) == (b.epoch, b.loss, b.metrics)
        assert a.cost.bytes_received == b.cost.bytes_received and a.cost.counts == b.cost.counts
    assert training.result.best.epoch == other.result.best.epoch
    assert all(np.array_equal(a, b) for a, b in zip(training.parameters, other.parameters, strict=True))
    for name, tensor in training.result.best.model.items():
        assert torch.equal(tensor, other.result.best.model[name])


@ON_CPU
@pytest.mark.sample(18)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize(
    "overrides",
    [
        ["optimizer=adam"],
        ["optimizer=sgd", "optimizer.momentum=0.9"],
        ["schedule=cosine", "schedule.warmup_epochs=6", "train.clip_norm=0.1", "train.decay_biases=false"],
        ["optimizations.offload=always"],
        ["optimizations.skip_input_gradient=false", "optimizations.fold_normalization=false"],
        ["optimizer=sgd", "optimizer.momentum=0.9", "scheme.split_rows=false", "scheme.exchange=needed_rows"],
        ["schedule=cosine", "train.clip_norm=0.1", "model.norm=batch"],
        ["scheme.stage_order=broadcast", "scheme.exchange=broadcast", "optimizations.loss_rows_only=false"],
        ["optimizations.offload=always", "model.num_layers=1"],
    ],
)
def test_replayed_epochs_train_as_those_that_run(ranks, world_size: int, replication: int, overrides) -> None:
    cfg = plain_case(replication, *overrides)
    plain, replayed = (ranks(world_size)(train, cfg, fails) for fails in (None, {}))
    for eager, other in zip(plain, replayed):
        assert_the_same_training(eager, other)
        assert all(record.cost.counts for record in other.result.epochs) != ("model.num_layers=1" in overrides)
        assert other.calls == ["capture"] + ["replay"] * (EPOCHS - EAGER_EPOCHS) + ["reset"]
        assert (eager.result.cuda_graph, other.result.cuda_graph) == ("no: not here", REPLAYED)
        assert [record.replayed for record in other.result.epochs] == [
            number > EAGER_EPOCHS for number in range(1, EPOCHS + 1)
        ]
        for record in other.result.epochs:
            assert (
                set(record.cost.time_ms) == {"epoch"}
                if record.replayed
                else {"epoch", "other"} <= set(record.cost.time_ms)
            )


@ON_CPU
@pytest.mark.sample(4)
@pytest.mark.parametrize("fails", ["made", "early", "late"])
@pytest.mark.parametrize("optimizer", [["optimizer=adam"], ["optimizer=sgd", "optimizer.momentum=0.9"]])
def test_if_one_rank_fails_all_go_on_as_before(ranks, fails: str, optimizer: list[str]) -> None:
    for world_size, failing in ((1, 0), (2, 1)):
        cfg = plain_case(1, *optimizer)
        plain = ranks(world_size)(train, cfg, None)
        fallen = ranks(world_size)(train, cfg, {failing: fails})
        reason = f"rank {failing}: RuntimeError: no graph to be had"
        for rank, (eager, other) in enumerate(zip(plain, fallen)):
            assert_the_same_training(eager, other)
            assert not any(record.replayed for record in other.result.epochs)
            assert other.calls == ([] if rank == failing and fails == "made" else ["capture", "reset"])
            assert other.result.cuda_graph == f"no: {reason}"
            assert other.lines == [f"epochs are not replayed as a CUDA graph: {reason}"]


class Midway(TorchDispatchMode):
    """Raises after ``last`` operators, and keeps weak references to the memory that these operators allocated."""

    def __init__(self, last: int):
        super().__init__()
        self.last, self.count = last, 0
        self.made: list[weakref.ref[Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """A method of torch. With True, torch imports ``torch._dynamo`` in the first capture of a process, which keeps
        the loss of this step alive."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        if self.count > self.last:
            raise RuntimeError("broken off")
        result = func(*args, **(kwargs or {}))
        given = {storage.data_ptr() for storage in storages((args, kwargs))}
        self.made += [weakref.ref(storage) for storage in storages(result) if storage.data_ptr() not in given]
        return result


def storages(tree: Any) -> Iterator[torch.UntypedStorage]:
    """The memory of all tensors in ``tree``, also of sparse ones."""
    for leaf in tree_iter(tree):
        if isinstance(leaf, torch.Tensor):
            yield from (part.untyped_storage() for part in strided(leaf))


class BreaksOff(Recorded):
    """A capture that fails after ``last`` operators of the step, or at the end of a step that has fewer."""

    last = 0

    def capture(self, step: Callable[[], None]) -> None:
        with Midway(self.last) as self.midway:
            step()
            raise RuntimeError("broken off at the end")


def all_tensors(training: StepRunner) -> list[torch.Tensor]:
    """All tensors that a step may change."""
    leaves = [*training.state.model.parameters(), training.run.graph.features]
    states = [value for state in training.state.optimizer.state.values() for value in state.values()]
    grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
    return [*leaves, training.state.gradients.flat, *grads, *filter(torch.is_tensor, states)]


def around_a_failed_capture(world: World, cfg: Config, last: int) -> dict[str, Any]:
    """What a failed capture changed (names), how many of its tensors are still alive, and how many it had allocated."""
    meter = Meter(world.device)
    job = set_up(cfg, world, meter)
    drawn: list[float] = []
    job.model.register_forward_pre_hook(lambda module, args: drawn.append(torch.rand(5, device=world.device)[0]))
    graphs: list[BreaksOff] = []

    def make_graph() -> BreaksOff:
        graph = BreaksOff([], {}, world.rank)
        graph.last = last
        graphs.append(graph)
        return graph

    epochs = StepRunner(job, Replay(make_graph))
    seen: list[dict[str, Any]] = []
    run = StepRunner.run_eagerly

    def look(training: StepRunner) -> None:
        with _disable_current_modes():
            drawn.clear()
            tensors = all_tensors(training)
            leaves = [*training.state.model.parameters(), training.run.graph.features]
            seen.append(
                {
                    "values": [tensor.detach().clone() for tensor in tensors],
                    "gradients": [id(leaf.grad) for leaf in leaves],
                    "settings": [
                        {key: value for key, value in group.items() if key != "params"}
                        for group in training.state.optimizer.param_groups
                    ],
                    "random": torch.get_rng_state(),
                    "random on the GPU": torch.cuda.get_rng_state(world.device)
                    if world.device.type == "cuda"
                    else None,
                    "alive": [sum(reference() is not None for reference in graph.midway.made) for graph in graphs],
                }
            )
        run(training)

    gc.collect()
    gc.disable()
    try:
        with mock.patch.object(StepRunner, "run_eagerly", look):
            for epoch in range(1, EAGER_EPOCHS + 2):
                epochs(epoch)
    finally:
        gc.enable()
    assert len(graphs) == 1 and epochs.outcome.startswith("no: rank 0: RuntimeError: broken off"), epochs.outcome
    eager, before, after = seen[-3:]  # on a GPU the first one is a rehearsal
    same = {
        "gradients": before["gradients"] == after["gradients"],
        "settings": eager["settings"] == after["settings"],  # on a GPU the optimizer has other ones in the capture
        "values": all(torch.equal(a, b) for a, b in zip(before["values"], after["values"], strict=True)),
        "random": torch.equal(before["random"], after["random"]),
        "random on the GPU": before["random on the GPU"] is None
        or torch.equal(before["random on the GPU"], after["random on the GPU"]),
    }
    differ = [name for name, equal in same.items() if not equal]
    return {"differ": differ, "alive": after["alive"], "made": len(graphs[0].midway.made)}


@pytest.mark.sample(3)
@pytest.mark.parametrize("last", [1, 12, 30, 45, 10_000])
@pytest.mark.parametrize("overrides", [["optimizer=adam"], ["optimizer=sgd", "optimizer.momentum=0.9", "kernel=torch"]])
def test_a_failed_capture_leaves_nothing_behind(ranks, last: int, overrides: list[str]) -> None:
    """Wherever a capture fails, none of its tensors is alive, and no value, gradient or random state has changed."""
    cfg = case(1, "optimizations.skip_input_gradient=false", *overrides)
    (outcome,) = ranks(1)(around_a_failed_capture, cfg, last)
    assert outcome["differ"] == [] and outcome["alive"] == [0]
    assert outcome["made"] > 0 or last == 1


@ON_CPU
def test_a_run_that_ends_before_says_so(ranks) -> None:
    for epochs, calls in ((EAGER_EPOCHS, []), (EAGER_EPOCHS + 1, ["capture", "replay", "reset"])):
        (outcome,) = ranks(1)(train, plain_case(1, f"train.epochs={epochs}"), {})
        assert outcome.calls == calls
        assert outcome.result.cuda_graph == (REPLAYED if calls else "no: the run ended before its step was captured")


class Breaks(Recorded):
    """A graph that raises in its ``at``-th replay, counted from 1."""

    at = 3

    def replay(self) -> None:
        super().replay()
        if self.calls.count("replay") == self.at:
            raise RuntimeError("the step broke")


def graphs_alive(world: World, cfg: Config, breaks: str) -> tuple[str, list[str], int]:
    """How a run ended, the calls to its graph, and how many graphs are alive after it without garbage collection."""
    calls: list[str] = []
    made: list[weakref.ref[Recorded]] = []

    def make_graph() -> Recorded:
        graph = (Breaks if breaks == "step" else Recorded)(calls, {}, world.rank)
        made.append(weakref.ref(graph))
        return graph

    def on_epoch(record: EpochRecord) -> None:
        if breaks == "on_epoch" and record.epoch == EAGER_EPOCHS + 2:
            raise RuntimeError("on_epoch broke")

    meter = Meter(world.device)
    job = set_up(cfg, world, meter)
    ended = "whole"
    gc.collect()
    gc.disable()
    try:
        try:
            result = fit(StepRunner(job, Replay(make_graph)), [Calling(on_epoch)])
            assert result.cuda_graph == REPLAYED
        except RuntimeError as error:
            ended = str(error)
        assert len(made) == 1
        return ended, calls, sum(graph() is not None for graph in made)
    finally:
        gc.enable()


@pytest.mark.sample(2)
@ON_CPU
@pytest.mark.parametrize(
    ("breaks", "ended"), [("", "whole"), ("on_epoch", "on_epoch broke"), ("step", "the step broke")]
)
def test_the_graph_is_gone_with_fit(ranks, breaks: str, ended: str) -> None:
    """NCCL, when its process group is destroyed, waits for graphs that hold its collectives."""
    for end, calls, alive in ranks(2)(graphs_alive, plain_case(1), breaks):
        assert end == ended and "replay" in calls and calls[-1] == "reset"
        assert alive == 0


@ON_CPU
def test_the_graph_is_gone_with_the_epochs_that_made_it(ranks) -> None:
    assert ranks(1)(alive_without_fit, plain_case(1)) == [(True, False)]


def alive_without_fit(world: World, cfg: Config) -> tuple[bool, bool]:
    """Whether a graph is alive while its ``StepRunner`` is alive, and whether it is alive after that."""
    made: list[weakref.ref[Recorded]] = []

    def make_graph() -> Recorded:
        graph = Recorded([], {}, world.rank)
        made.append(weakref.ref(graph))
        return graph

    meter = Meter(world.device)
    job = set_up(cfg, world, meter)
    gc.collect()
    gc.disable()
    try:
        epochs = StepRunner(job, Replay(make_graph))
        for epoch in range(1, EAGER_EPOCHS + 2):
            epochs(epoch)
        before = made[0]() is not None
        del epochs
        return before, made[0]() is not None
    finally:
        gc.enable()


@ON_CPU
@pytest.mark.parametrize("eval_every", [0, 1, 2, 3])
def test_epochs_that_are_read_late_are_the_same_epochs(ranks, eval_every: int) -> None:
    cfg = plain_case(1, f"train.eval_every={eval_every}")
    for fails in (None, {}):
        (plain,), (late,) = (ranks(1)(train, cfg, fails, defers_reads) for defers_reads in (False, True))
        assert_the_same_training(plain, late)
        assert plain.seen == late.seen == list(range(1, EPOCHS + 1))
    stops = plain_case(1, "train.eval_every=2", "train.patience=2", "train.epochs=200")
    (plain,), (late,) = (ranks(1)(train, stops, {}, defers_reads) for defers_reads in (False, True))
    assert_the_same_training(plain, late)
    assert plain.seen == late.seen == list(range(1, plain.result.best.epoch + 5))


def order_of_work(world: World, cfg: Config) -> list[str]:
    """The launches, the reads and the evaluations of a run, in order."""
    meter = Meter(world.device)
    job = set_up(cfg, world, meter)
    happened: list[str] = []
    launch, evaluate = StepRunner.__call__, step_runner.evaluate

    def launched(self: StepRunner, epoch: int) -> Any:
        happened.append(f"launch {epoch}")
        return launch(self, epoch)

    def evaluated(*args: Any) -> Any:
        happened.append("evaluate")
        return evaluate(*args)

    with (
        mock.patch.object(StepRunner, "__call__", launched),
        mock.patch("fullgnn.engine.step_runner.evaluate", evaluated),
        mock.patch("fullgnn.engine.step_runner.defers_reads", lambda device: True),
    ):
        fit(
            StepRunner(job),
            [Calling(lambda record: happened.append(f"read {record.epoch}"))],
        )
    return happened


def test_an_epoch_without_evaluation_is_read_when_the_next_is_launched(ranks) -> None:
    (happened,) = ranks(1)(order_of_work, case(1, "train.epochs=5", "train.eval_every=3"))
    assert happened == [
        "launch 1", "launch 2", "read 1", "launch 3", "read 2", "evaluate", "read 3",
        "launch 4", "launch 5", "read 4", "evaluate", "read 5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "device", "backend", "size", "reason"),
    [
        ("auto", "cpu", "gloo", 1, "the device is a CPU"),
        ("never", "cuda", "nccl", 1, "runtime.cuda_graph=never"),
        ("auto", "cuda", "gloo", 2, "the ranks exchange over gloo, which a CUDA graph cannot capture"),
        ("auto", "cuda", "gloo", 1, ""),
        ("auto", "cuda", "nccl", 4, ""),
    ],
)
def test_when_epochs_may_be_replayed(choice, device, backend, size, reason) -> None:
    world = World(0, size, size, torch.device(device), backend, 1.0)
    replay = replay_for(choice, world)
    assert replay.reason == reason
    assert replay.make_graph is (None if reason else CudaGraph)


class FakeStream:
    """A stream that records for which other stream it waits."""

    device = torch.device("cuda")

    def __init__(self, name: str, said: list[str]):
        self.name, self.said = name, said

    def wait_stream(self, other: "FakeStream") -> None:
        self.said.append(f"{self.name} waits for {other.name}")


def test_every_step_is_on_one_stream_that_waits_and_is_waited_for(monkeypatch) -> None:
    said: list[str] = []
    streams = [FakeStream("default", said)]

    @contextmanager
    def on(stream: FakeStream) -> Iterator[None]:
        streams.append(stream)
        yield
        streams.pop()

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream("own", said))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: streams[-1])
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(cuda_graph, "all_gather_objects", lambda own: [own])

    class Graph:
        def capture(self, step: Callable[[], None]) -> None:
            said.append(f"capture on {streams[-1].name}")

        def replay(self) -> None:
            said.append(f"replay on {streams[-1].name}")

        def idle_bytes(self) -> int:
            return 0

        def reset(self) -> None:
            pass

    class Step(StepRunner):
        def _rehearse(self, epoch: int) -> None:
            self.rehearses = False
            said.append(f"rehearsal on {streams[-1].name}")

        def begin(self, epoch: int) -> None:
            said.append(f"begin {epoch} on {streams[-1].name}")

        def run_eagerly(self) -> None:
            said.append(f"step on {streams[-1].name}")

        def save(self) -> Any:
            return None

    block = SimpleNamespace(source_id=None)
    graph: Any = SimpleNamespace(labels=SimpleNamespace(device=torch.device("cuda")), block=block)
    state = TrainState(torch.nn.Linear(1, 1), case(1))
    run: Any = SimpleNamespace(state=state, graph=graph, task=None, scheme=None, meter=Meter(torch.device("cpu")))
    monkeypatch.setattr(gpu, "has_triton", lambda: True)
    repeated = Step(run, Replay(Graph))
    expected = []
    for epoch in range(1, EAGER_EPOCHS + 3):
        repeated(epoch)
        begin = f"begin {epoch} on own"
        if epoch <= EAGER_EPOCHS:
            work = ["rehearsal on own"] * (epoch == 1) + [begin, "step on own"]
        else:
            work = [begin, "capture on own"] * (epoch == EAGER_EPOCHS + 1) + [begin, "replay on own"]
        expected += ["own waits for default", *work, "default waits for own"]
    assert said == expected


def test_torch_still_takes_what_a_capture_is_given() -> None:
    inspect.signature(torch.cuda.graph).bind("graph", stream="own", capture_error_mode="thread_local")


def test_times_of_replayed_epochs_and_phases_of_the_others() -> None:
    def record(number: int, replayed: bool, **time_ms: float) -> EpochRecord:
        return EpochRecord(number, 0.5, Cost(time_ms, {"all_reduce": 8}, {"spmm_columns": 3}), None, replayed)

    eager = [record(k, False, epoch=100.0 * k, spmm=10.0 * k, comm=1.0, other=2.0) for k in (1, 2, 3, 4)]
    graphed = [record(4 + k, True, epoch=float(k)) for k in (1, 2, 3)]
    result = FitResult(eager + graphed, 7, None, 0, REPLAYED, None)
    summed = summary.summarize(result)
    assert summed.time_ms == {"epoch": 2.0, "spmm": 30.0, "comm": 1.0, "other": 2.0, "dense": 267.0}
    assert summed.epoch_quantiles_ms == pytest.approx((1.4, 2.6))
    assert summed.bytes_received == {"all_reduce": 8} and summed.counts == {"spmm_columns": 3}
    alone = summary.summarize(dataclasses.replace(result, epochs=eager))
    assert alone.time_ms == summed.time_ms | {"epoch": 300.0}


def recorded(world: World, cfg: Config, fails: dict[int, str]) -> tuple[Any, str]:
    calls: list[str] = []
    replay = Replay(lambda: Recorded(calls, fails, world.rank))
    with mock.patch("fullgnn.train.replay_for", lambda choice, world: replay):
        record = run_on(world, cfg)
    return record, summary.closing_table(record, full=True)


@ON_CPU
def test_the_record_says_whether_epochs_were_replayed(ranks, tmp_path) -> None:
    cfg = plain_case(1, f"run_dir={tmp_path}", "overwrite=true")
    for record, table in ranks(2)(recorded, cfg, {}):
        assert record.cuda_graph == REPLAYED and "median of 5 replayed" in table
        shares = re.findall(r" ms .*?(\d+) %", table)
        # The shares are those of the epochs whose phases were timed.
        assert len(shares) == 4 and sum(map(int, shares)) == pytest.approx(100, abs=2)
    lines = [json.loads(line) for line in (tmp_path / "epochs.jsonl").read_text().splitlines()]
    assert [line["replayed"] for line in lines] == [False] * EAGER_EPOCHS + [True] * (EPOCHS - EAGER_EPOCHS)
    for record, table in ranks(2)(recorded, cfg, {1: "early"}):
        assert record.cuda_graph == "no: rank 1: RuntimeError: no graph to be had" and "median of 8 " in table


# ---- on a GPU --------------------------------------------------------------------------------------------------------


GPU_CASES = [
    [],
    ["optimizer=sgd", "optimizer.momentum=0.9"],
    ["schedule=cosine", "schedule.warmup_epochs=6", "train.clip_norm=0.1"],
    ["optimizer=sgd", "optimizer.momentum=0.9", "schedule=step", "schedule.step_size=6", "train.decay_biases=false"],
    ["optimizer=adamw", "schedule=exponential"],
    ["model.input_dropout=0"],
    ["model.input_dropout=0", "optimizations.offload=always"],
    ["optimizations.skip_input_gradient=false"],
    ["kernel=torch"],
    ["train.eval_every=1"],
]


@pytest.mark.gpu
@pytest.mark.parametrize("overrides", GPU_CASES)
def test_on_a_gpu_replayed_epochs_train_as_those_that_run(ranks, overrides: list[str]) -> None:
    (outcomes,) = ranks(1)(on_gpu, case(1, "train.epochs=20", *overrides))
    if outcomes is None:
        pytest.skip("the rank of this pool is on the CPU")
    plain, replayed = outcomes["never"], outcomes["auto"]
    assert (plain["outcome"], replayed["outcome"]) == ("no: runtime.cuda_graph=never", REPLAYED)
    np.testing.assert_allclose(replayed["losses"], plain["losses"], rtol=1e-9)
    for parameter, other in zip(plain["parameters"], replayed["parameters"], strict=True):
        np.testing.assert_allclose(other, parameter, atol=1e-9)
    assert plain["costs"] == replayed["costs"] and all(time > 0 for time in replayed["times"])


@pytest.mark.gpu
def test_on_a_gpu_a_step_that_waits_for_the_host_goes_on_running(ranks) -> None:
    (outcomes,) = ranks(1)(on_gpu, case(1), True)
    if outcomes is None:
        pytest.skip("the rank of this pool is on the CPU")
    assert outcomes["auto"]["outcome"].startswith("no: rank 0: ")
    np.testing.assert_allclose(outcomes["auto"]["losses"], outcomes["never"]["losses"], rtol=1e-9)


@pytest.mark.gpu
@pytest.mark.parametrize("replication", [1, 2])
def test_on_gpus_ranks_replay_together_or_say_why_not(ranks, replication: int) -> None:
    outcomes = ranks(2)(on_gpu, case(replication, "train.epochs=20"))
    if outcomes[0] is None:
        pytest.skip("the ranks of this pool are on the CPU")
    for outcome in outcomes:
        over_gloo = "no: the ranks exchange over gloo, which a CUDA graph cannot capture"
        assert outcome["auto"]["outcome"] in (REPLAYED, over_gloo)
        np.testing.assert_allclose(outcome["auto"]["losses"], outcome["never"]["losses"], rtol=1e-9)
