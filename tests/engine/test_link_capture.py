"""Steps that find links are replayed as a CUDA graph, and their pairs are drawn by a thread, with the same training.

``Recorded`` stands for the CUDA graph: it records the operators of a step and runs them again, without its Python, on
the memory that they had.
"""

import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from fullgnn.distributed import World, world_of_one
from fullgnn.engine import set_up
from fullgnn.engine.cuda_graph import REPLAYED, Replay
from fullgnn.engine.link_steps import LinkSteps
from fullgnn.engine.step_runner import StepRunner
from fullgnn.kernels.support import aligned, gpu
from fullgnn.tasks.links import LinkTask
from fullgnn.telemetry.meter import Meter
from tests.cases import config
from tests.tasks.draws import bipartite
from tests.triton_device import needs_triton

pytestmark = [needs_triton, pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles the kernels here")]

EPOCHS, EAGER = 3, 1
GRAPH = bipartite(6, 9, 0.4)
CASES = {
    "one step": ["task=link_ranking", "model=lightgcn"],
    "batches": ["task=link_ranking", "model=lightgcn", "task.batch_size=8"],
    "batches of one": ["task=link_ranking", "model=lightgcn", "task.batch_size=1"],
    "dropout": [
        "task=link_prediction",
        "model=gcn",
        "model.embedding_channels=5",
        "model.dropout=0.5",
        "task.batch_size=8",
        "task.num_negatives=2",
    ],
}


class Recorded(TorchDispatchMode):
    """See the head of this file."""

    made: list["Recorded"] = []

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], Any, Any, Any]] = []
        self.num_replays = 0
        Recorded.made.append(self)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    def capture(self, step: Callable[[], None]) -> None:
        from triton.runtime.interpreter import GridExecutor

        state = step.__self__._state  # type: ignore[attr-defined]
        held = [tensor for tensor in state.tensors() if isinstance(tensor, torch.Tensor)]
        before, launch = [tensor.detach().clone() for tensor in held], GridExecutor.__call__

        def launched(*args: Any, **kwargs: Any) -> None:
            with _disable_current_modes():
                launch(*args, **kwargs)
            self.calls.append((launch, args, kwargs, None))

        with self, mock.patch.object(GridExecutor, "__call__", launched):
            step()
        with torch.no_grad():
            for tensor, value in zip(held, before):
                tensor.copy_(value)

    @torch.no_grad()
    def replay(self) -> None:
        self.num_replays += 1
        for func, args, kwargs, result in self.calls:
            outcome = func(*args, **kwargs)
            if result is not None:
                pairs: list[torch.Tensor] = []
                tree_map_only(torch.Tensor, pairs.append, outcome)
                olds: list[torch.Tensor] = []
                tree_map_only(torch.Tensor, olds.append, result)
                for old, new in zip(olds, pairs):
                    if old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                        old.copy_(new)

    def idle_bytes(self) -> int:
        return 0

    def reset(self) -> None:
        self.calls = []


def trained(keys: list[str], replay: Replay, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """Losses, bytes and counts of each epoch, the parameters at the end, and what became of the graph."""
    cfg = config(
        *keys, "model.num_layers=1", "task.channels=4", "kernel=csr", "runtime.dtype=float32", "seed=3",
        "optimizer=sgd", "optimizer.lr=0.1", "schedule=cosine", f"train.epochs={EPOCHS}",
    )  # fmt: skip
    monkeypatch.setattr("fullgnn.engine.step_runner.EAGER_EPOCHS", EAGER)
    with world_of_one(torch.device("cpu")) as world:
        torch.manual_seed(0)
        meter = Meter(world.device)
        job = set_up(cfg, world, meter, GRAPH)
        runner = StepRunner(job, replay)
        launched = [runner(epoch) for epoch in range(1, EPOCHS + 1)]
        losses = [epoch.results.read()[0] for epoch in launched]
        costs = [epoch.cost.read() for epoch in launched]
        runner.close()
    numbers = [(cost.bytes_received, cost.counts) for cost in costs]
    return losses, numbers, [value.detach().clone() for value in job.model.parameters()], runner.outcome, launched


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU takes the way of a GPU."""
    monkeypatch.setattr(gpu, "INTERPRETED", True)
    monkeypatch.setattr(gpu, "AS_ON_GPU", True)
    monkeypatch.setattr(aligned, "PADDED_DEVICES", ("cuda", "cpu"))
    Recorded.made.clear()


@pytest.mark.parametrize("name", CASES)
def test_replayed_steps_train_as_those_that_run(
    on_gpu: None, monkeypatch: pytest.MonkeyPatch, name: str, every_case: bool
) -> None:
    if name not in ("batches", "one step") and not every_case:
        pytest.skip("with --all")
    plain = trained(CASES[name], Replay(None, "not wanted"), monkeypatch)
    replayed = trained(CASES[name], Replay(Recorded), monkeypatch)
    assert (plain[3], replayed[3]) == ("no: not wanted", REPLAYED)
    assert plain[0] == replayed[0] and len(set(plain[0])) == EPOCHS  # to the bit
    assert plain[1] == replayed[1]
    assert all(torch.equal(parameter, other) for parameter, other in zip(plain[2], replayed[2], strict=True))
    (graph,) = Recorded.made
    num_pairs = int(GRAPH.num_edges) // 2
    size = next((int(key.partition("=")[2]) for key in CASES[name] if key.startswith("task.batch_size=")), None)
    if size is not None and CASES[name][0] == "task=link_ranking":
        assert graph.num_replays == (EPOCHS - EAGER) * (num_pairs // size) > EPOCHS - EAGER
    assert [epoch.replayed for epoch in replayed[4]] == [epoch > EAGER for epoch in range(1, EPOCHS + 1)]


def test_the_pairs_of_every_step_are_written_before_its_replay(on_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: the pairs of the capture stay, and the losses are others."""
    plain = trained(CASES["batches"], Replay(None, "not wanted"), monkeypatch)
    monkeypatch.setattr(LinkSteps, "_write", lambda *args: None)
    assert trained(CASES["batches"], Replay(Recorded), monkeypatch)[0][:EAGER] == plain[0][:EAGER]
    assert trained(CASES["batches"], Replay(Recorded), monkeypatch)[0] != plain[0]


def drawing_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("fullgnn-draws")]


def test_the_next_epoch_is_drawn_by_a_thread_that_ends(on_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same draws as those of the calling thread; and a CPU, which computes with the same cores, has no thread."""
    callers: dict[int, str] = {}
    drawn = LinkTask.drawn

    def seen(task: LinkTask, graph: Any, epoch: int) -> Any:
        callers[epoch] = threading.current_thread().name
        return drawn(task, graph, epoch)

    monkeypatch.setattr(LinkTask, "drawn", seen)
    ahead = trained(CASES["batches"], Replay(None, "not wanted"), monkeypatch)
    assert callers[1] == threading.current_thread().name
    assert all(callers[epoch].startswith("fullgnn-draws") for epoch in range(2, EPOCHS + 1))
    assert drawing_threads() == []
    callers.clear()
    monkeypatch.setattr(LinkSteps, "__init__", without_thread(LinkSteps.__init__))
    here = trained(CASES["batches"], Replay(None, "not wanted"), monkeypatch)
    assert set(callers.values()) == {threading.current_thread().name}
    assert ahead[0] == here[0]


def without_thread(init: Callable[..., None]) -> Callable[..., None]:
    def without(self: LinkSteps, *args: Any) -> None:
        with mock.patch.object(gpu, "AS_ON_GPU", False):
            init(self, *args)
        assert self._thread is None

    return without


def test_an_error_of_the_thread_is_raised(on_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = LinkTask.drawn

    def breaks(task: LinkTask, graph: Any, epoch: int) -> Any:
        if epoch == 2:
            raise MemoryError("no room")
        return drawn(task, graph, epoch)

    monkeypatch.setattr(LinkTask, "drawn", breaks)
    with pytest.raises(MemoryError, match="no room"):
        trained(CASES["batches"], Replay(None, "not wanted"), monkeypatch)


def outcome_of(world: World) -> str:
    cfg = config("task=link_ranking", "model=lightgcn", "task.channels=4", "partition=random")
    meter = Meter(world.device)
    job = set_up(cfg, world, meter, GRAPH if world.rank == 0 else None)
    return StepRunner(job, Replay(Recorded)).outcome


def test_several_ranks_run_their_steps(ranks) -> None:
    """Each has other numbers of pairs in every step."""
    assert set(ranks(2)(outcome_of)) == {"no: a rank draws other numbers of pairs in every step"}
