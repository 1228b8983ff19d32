"""Runs the training steps of one rank: one step per epoch, or as many as the draws of a task that finds links take.

    before the first epoch      the step is rehearsed on a GPU, to compile its kernels on several threads
    the first EAGER_EPOCHS      the step runs eagerly; the first epoch allocates and autotunes, the others give the
                                phases that are reported
    before the next epoch       every rank captures the step as a CUDA graph, if ``Replay`` allows it
    from there on               all ranks replay the graph; if the capture failed on one rank, all continue eagerly

The step reads and writes the same memory in every epoch. What differs between epochs is written before the step: the
number of the epoch, which the dropout masks read, and a learning rate that changes. On a GPU with a CUDA
graph the eager epochs, too, run on a separate stream: a capture needs one, and no step may leave work behind on another
stream. Of a task that finds links one step is captured, and replayed for each step of an epoch (``link_steps.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fullgnn.distributed import StopRequest
from fullgnn.engine.checkpoints import Checkpoints
from fullgnn.engine.cuda_graph import EAGER, EAGER_EPOCHS, REPLAYED, Replay, StateSnapshot, StepGraph, capture_on_all
from fullgnn.engine.ending import Watch
from fullgnn.engine.fit import FitResult
from fullgnn.engine.optimizers import device_rates, is_replayable
from fullgnn.engine.passes import AsyncNumbers, defers_reads, evaluate, train_step
from fullgnn.engine.rehearse import rehearse
from fullgnn.engine.run import Run
from fullgnn.engine.summary import closing_table, comparison_table
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.trials import TensorPeak
from fullgnn.nn import set_epoch
from fullgnn.schemes.block import SumsRows
from fullgnn.storage.record import RunRecord
from fullgnn.tasks import task_contract
from fullgnn.telemetry.meter import Cost, EpochRecord, PendingCost

if TYPE_CHECKING:
    from fullgnn.engine.link_steps import LinkSteps

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Launched:
    """An epoch that the GPU may still be computing."""

    epoch: int
    results: AsyncNumbers  # training loss before the update, the global mean; number of ranks that were asked to stop
    cost: PendingCost  # the meter's counts and times of this epoch
    replayed: bool  # as a CUDA graph

    def read(self, watch: Watch) -> tuple[EpochRecord, bool]:
        """See ``TrainedEpoch``."""
        loss, num_asked = self.results.read()
        watch.loss(loss, self.epoch)
        return EpochRecord(self.epoch, loss, self.cost.read(), None, self.replayed), num_asked > 0


class StepRunner:
    """The ``Steps`` of full-batch training: ``train_step``, eagerly or as a CUDA graph.

    Args:
        replay: whether the step may be replayed as a CUDA graph; the same on every rank.
    """

    def __init__(self, run: Run, replay: Replay = EAGER):
        self.run, self.state, self.meter = run, run.state, run.meter
        state, graph = run.state, run.graph
        if replay.make_graph is not None and not is_replayable(state.optimizer):
            replay = Replay(None, f"{type(state.optimizer).__name__} may keep its state on the host")
        self._links: LinkSteps | None = None
        if task_contract(run.task).finds_links:
            from fullgnn.engine import link_steps
            from fullgnn.tasks.links import directory_of

            if replay.make_graph is not None and not directory_of(graph).is_alone:
                replay = Replay(None, "a rank draws other numbers of pairs in every step")
            self._links = link_steps.LinkSteps(run)
        self.outcome = f"no: {replay.reason or 'the run ended before its step was captured'}"
        self.idle_bytes = 0  # memory of the CUDA graph beyond the tensors that the allocator counts
        self._replay = replay
        self._num_run = 0
        self._cuda_graph: StepGraph | None = None
        self._captured = Cost()  # bytes and counts of one replay
        self._device = graph.labels.device
        state.rates = device_rates(state.optimizer, state.schedule, self._device, replay.make_graph is not None)
        self.rehearses = gpu.runs_triton(self._device)
        own_stream = replay.make_graph is not None and self._device.type == "cuda"
        self._stream = torch.cuda.Stream(self._device) if own_stream else None
        self.full, self.row_id, self.defers = run, graph.block.source_id, defers_reads(self._device)
        self.ranks: SumsRows = run.scheme

    @cached_property
    def _memory(self) -> _Memory:
        return _Memory(self.run)

    def train_epoch(
        self, epoch: int, watch: Watch, checkpoints: Checkpoints | None, request: StopRequest | None
    ) -> Launched:
        """See ``Steps``."""
        self.meter.lap()
        with self._memory.of_step():
            launched = self(epoch)
        self._memory.hold(self.idle_bytes)
        return launched

    def evaluate(self, look: Callable[[Tensor, Run], None]) -> dict[str, float | None]:
        """See ``Steps``."""
        with self._memory.of_evaluation():
            return evaluate(self.run, look)

    def peak_bytes(self) -> int:
        """See ``Steps``."""
        return self._memory.peak_bytes()

    def __call__(self, epoch: int) -> Launched:
        """Launch ``epoch``. The result holds the meter's counts since its last ``lap``."""
        with self._on_own_stream():
            if self.rehearses:
                self._rehearse(epoch)
            self._capture_if_due(epoch)
            replayed = self._cuda_graph is not None
            with self.meter.interval("epoch"):
                if self._cuda_graph is not None:
                    self.begin(epoch)
                    self._replay_epoch(self._cuda_graph)
                else:
                    with self.meter.phase("other"):
                        self.begin(epoch)
                    self.run_eagerly()
                    self._num_run += 1
        if self.state.schedule is not None:
            self.state.schedule.step()
        self.state.epoch = epoch
        return Launched(epoch, AsyncNumbers(self.state.gradients.results), self.meter.lap(), replayed)

    def check_resumed(self) -> None:
        """See ``Steps``: an epoch has no midst."""

    def complete(self, record: RunRecord, result: FitResult) -> RunRecord:
        """See ``Steps``."""
        return record

    def closing_table(self, record: RunRecord) -> str:
        """See ``Steps``."""
        table = closing_table(record, self.run.cfg.train.table == "full")
        return table if record.predicted is None else f"{table}\n{comparison_table(record)}"

    def begin(self, epoch: int) -> None:
        """Write what differs between epochs: the number that seeds the dropout masks, and the learning rates."""
        self.state.model.train()
        set_epoch(self.state.model, epoch)
        if self._links is not None:
            self._links.begin(epoch)
        if self.state.rates is not None:
            self.state.rates.write()

    def run_eagerly(self) -> None:
        """Run the steps of an epoch eagerly."""
        if self._links is not None:
            self._links.run()
        else:
            train_step(self.run)

    def _replay_epoch(self, graph: StepGraph) -> None:
        """Replay the captured step, once for each step of an epoch."""
        if self._links is not None:
            self._links.run(graph.replay, self._captured)
        else:
            graph.replay()
            self.meter.add(self._captured)

    def save(self) -> StateSnapshot:
        """Take a snapshot of all that ``run_eagerly`` changes, to restore it after a failed capture."""
        snapshot = self._snapshot()
        if self._device.type == "cuda":
            for group in self.state.optimizer.param_groups:
                group["capturable"] = True  # Adam refuses a capture otherwise; its state is on the GPU already
        return snapshot

    def _rehearse(self, epoch: int) -> None:
        """Rehearse the step of ``epoch``; of a task that finds links, the steps that differ."""
        self.rehearses = False
        with self.meter.untimed() as begun:
            self.begin(epoch)
        self.meter.add(begun)  # pairs are found once: the epoch itself has nothing left to begin
        rehearse(self.run_eagerly if self._links is None else self._links.run_distinct, self._snapshot, self.meter)

    def _snapshot(self) -> StateSnapshot:
        features, state = self.run.graph.features, self.state
        inputs = [features] if isinstance(features, Tensor) else []
        return StateSnapshot(state.model, state.optimizer, state.gradients.flat, inputs)

    def close(self) -> None:
        """End the thread that draws pairs, and free the CUDA graph. NCCL destroys its process group only when no graph
        holds its collectives any more (github.com/pytorch/pytorch/issues/115388)."""
        if self._links is not None:
            self._links.close()
        graph, self._cuda_graph, self.idle_bytes = self._cuda_graph, None, 0
        if graph is not None:
            graph.reset()

    def _capture_if_due(self, epoch: int) -> None:
        if self._num_run != EAGER_EPOCHS or self._cuda_graph is not None or self._replay.make_graph is None:
            return
        self.begin(epoch)
        step = self.run_eagerly
        if self._links is not None:
            self._links.fix()
            step = self._links.run_fixed
        with self.meter.untimed() as captured:
            graph, problem = capture_on_all(step, self.save(), self._replay.make_graph)
        self.outcome = f"no: {problem}"
        if graph is not None:
            self._cuda_graph, self._captured = graph, captured
            self.outcome, self.idle_bytes = REPLAYED, graph.idle_bytes()

    @contextmanager
    def _on_own_stream(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        outside = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(outside)
        with torch.cuda.stream(self._stream):
            yield
        outside.wait_stream(self._stream)


class _Memory:
    """The peak memory of the run's tensors, which its first step and its first evaluation show."""

    def __init__(self, run: Run):
        self._run, self._peak = run, TensorPeak(run.graph.labels.device)
        self._num_steps = self._num_evaluations = 0

    @contextmanager
    def of_step(self) -> Iterator[None]:
        self._num_steps += 1
        with self._watched() if self._num_steps == 1 else nullcontext():
            yield

    def hold(self, num_bytes: int) -> None:
        """Add ``num_bytes`` of a CUDA graph from now on."""
        self._peak.hold(num_bytes)

    @contextmanager
    def of_evaluation(self) -> Iterator[None]:
        self._num_evaluations += 1
        with self._watched() if self._num_evaluations == 1 else nullcontext():
            yield

    def peak_bytes(self) -> int:
        most, kept = self._peak.trial_bytes, self._peak.bytes
        if round(most / 1e6) > round(kept / 1e6):
            log.info("peak memory: %.0f MB in trials of kernels, %.0f MB without", most / 1e6, kept / 1e6)
        return kept

    def _watched(self) -> AbstractContextManager[None]:
        return self._peak.watch(*self._run.graph.tensors(), *self._run.state.tensors())
