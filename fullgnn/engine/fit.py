"""Full-batch training: one gradient step per epoch, whose mathematics does not depend on the number of ranks."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch

from fullgnn.config import TrainConfig
from fullgnn.distributed import StopRequest
from fullgnn.engine.checkpoints import Checkpoints
from fullgnn.engine.divergence import Watch
from fullgnn.engine.early_stop import Patience
from fullgnn.engine.evaluate import evaluate
from fullgnn.engine.memory import TensorPeak
from fullgnn.engine.state import Best, validation_metric
from fullgnn.engine.step_runner import Launched, StepRunner
from fullgnn.kernels.support.process import keep_freed_memory
from fullgnn.telemetry.meter import EpochRecord

log = logging.getLogger(__name__)


class EpochOutput(Protocol):
    """Where the records of the epochs go: a progress line, a file."""

    def add_epoch(self, record: EpochRecord) -> None: ...


@dataclass(frozen=True)
class FitResult:
    """What a training has come to, on one rank."""

    epochs: list[EpochRecord]  # those that this call has trained
    epoch: int  # how many the state has been trained in all
    best: Best | None  # None: no epoch was evaluated
    peak_tensor_bytes: int
    cuda_graph: str  # see RunRecord
    last: dict[str, float | None] | None  # the metrics after the last epoch; None: the training was stopped
    unwritten: str = ""  # on rank 0, why there is no checkpoint of the epoch at which the training was stopped

    @property
    def stopped(self) -> bool:
        """Whether a rank was asked to stop, and the training ended before its last epoch."""
        return self.last is None


def fit(
    runner: StepRunner,
    train: TrainConfig,
    outputs: Iterable[EpochOutput] = (),
    checkpoints: Checkpoints | None = None,
    request: StopRequest | None = None,
) -> FitResult:
    """Train the state of ``runner`` in place, then close ``runner``. Every rank calls it with an equal state.

    Every decision (best epoch, early stop, stop by a signal) uses numbers that are equal on all ranks.

    Args:
        outputs: where the record of each epoch goes.
        checkpoints: None: none are written.
        request: tells whether this process has been asked to stop, or asks for it itself. All ranks then stop after the
            same epoch.

    Raises:
        TrainingDiverged: the loss or a parameter is no finite number any more.
    """
    keep_freed_memory()
    state, job = runner.state, runner.job
    metric, watch = validation_metric(job.task), Watch(state, job.scheme, checkpoints)
    patience = Patience(train, metric)
    memory, records = _Memory(runner), _Records(job.graph.labels.device, list(outputs), watch)
    try:
        metrics, unwritten = None, ""
        if state.is_finished(train):  # nothing is left of a resumed run
            metrics = evaluate(state.model, job, watch.look)
            watch.evaluated(state.epoch)
        while not state.is_finished(train):
            if request is not None and request.is_asked:
                state.gradients.ask_to_stop()
            runner.meter.lap()
            with memory.of_step():
                launched = runner(state.epoch + 1)
            records.read_late()
            metrics = None
            if state.epoch == train.epochs or (train.eval_every and state.epoch % train.eval_every == 0):
                with memory.of_evaluation():
                    metrics = evaluate(state.model, job, watch.look)
                watch.loss(launched.results.read()[0], state.epoch)
                watch.evaluated(state.epoch)
                state.note(metrics, job.task)
                patience.evaluated(state)
            records.add(launched, metrics)
            finished = state.is_finished(train)
            stops = records.asked_to_stop and not finished
            if checkpoints is not None and (checkpoints.is_due(state.epoch, finished) or stops):
                records.read_late()
                if metrics is None:
                    watch.parameters(state.epoch)
                unwritten = checkpoints.write(state, request)
            if stops:
                metrics = None
                break
        records.read_late()
        if metrics is not None:
            watch.finished(metric)
            patience.ended(state)
        peak_bytes = memory.peak_bytes()
        return FitResult(records.all, state.epoch, state.best, peak_bytes, runner.outcome, metrics, unwritten)
    finally:
        runner.close()


class _Records:
    """The records of the epochs so far.

    On a GPU, the result of an epoch without evaluation is read, and passed on, only after the next epoch was launched,
    so that the GPU does not wait for the host.
    """

    def __init__(self, device: torch.device, outputs: list[EpochOutput], watch: Watch):
        self.all: list[EpochRecord] = []
        self.asked_to_stop = False
        """Whether a rank had been asked to stop before the last epoch that was read; equal on all ranks."""
        self._outputs, self._watch, self._defers = outputs, watch, defers_reads(device)
        self._late: Launched | None = None  # an epoch that was launched and not yet read

    def read_late(self) -> None:
        """Read the epoch before, unless it was read at once."""
        if self._late is not None:
            self._read(self._late, None)
            self._late = None

    def add(self, launched: Launched, metrics: dict[str, float | None] | None) -> None:
        if metrics is None and self._defers:
            self._late = launched
        else:
            self._read(launched, metrics)

    def _read(self, launched: Launched, metrics: dict[str, float | None] | None) -> None:
        loss, num_asked = launched.results.read()
        self._watch.loss(loss, launched.epoch)
        self.asked_to_stop |= num_asked > 0
        record = EpochRecord(launched.epoch, loss, launched.cost.read(), metrics, launched.replayed)
        self.all.append(record)
        for output in self._outputs:
            output.add_epoch(record)


class _Memory:
    """The peak memory of the run's tensors, which its first step and its first evaluation show."""

    def __init__(self, runner: StepRunner):
        self._runner, self._peak = runner, TensorPeak(runner.job.graph.labels.device)
        self._num_steps = self._num_evaluations = 0

    @contextmanager
    def of_step(self) -> Iterator[None]:
        self._num_steps += 1
        with self._watched() if self._num_steps == 1 else nullcontext():
            yield
        self._peak.hold(self._runner.idle_bytes)

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
        return self._peak.watch(*self._runner.job.graph.tensors(), *self._runner.state.tensors())


def defers_reads(device: torch.device) -> bool:
    """Whether the host launches the next epoch before it reads the results of the current one."""
    return device.type == "cuda"
