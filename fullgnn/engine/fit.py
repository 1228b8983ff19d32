"""Train a run: epoch after epoch, with evaluations, records, checkpoints and an end in good order.

What an epoch consists of is ``Steps``: one step on the whole graph (``step_runner.py``), or a step for each sampled
batch (``sampling/steps.py``). All else is here, and the same for both.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from fullgnn.distributed import StopRequest
from fullgnn.engine.checkpoints import Checkpoints
from fullgnn.engine.ending import Patience, Watch
from fullgnn.engine.run import Run
from fullgnn.engine.state import Best, validation_metric
from fullgnn.kernels.support.process import keep_freed_memory
from fullgnn.schemes.block import SumsRows
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.meter import EpochRecord


class EpochOutput(Protocol):
    """Where the records of the epochs go: a progress line, a file."""

    def add_epoch(self, record: EpochRecord) -> None: ...


class TrainedEpoch(Protocol):
    """An epoch that a GPU may still be computing."""

    def read(self, watch: Watch) -> tuple[EpochRecord, bool]:
        """Wait for the end of the epoch. Call it once.

        Args:
            watch: looks at the loss.

        Returns:
            the record of the epoch, without metrics; and whether a rank had been asked to stop, equal on all ranks.
        """


class Steps(Protocol):
    """The steps of a training on this rank. Every rank calls the methods."""

    run: Run
    row_id: torch.Tensor
    """(num_local_nodes,) int64, original ids of the rows that sharded parameters have on this rank."""
    ranks: SumsRows
    """Adds up what the ranks compute."""
    defers: bool
    """Whether the results of an epoch without evaluation are read after the next one was launched, so that a GPU does
    not wait for the host."""
    outcome: str
    """See ``RunRecord.cuda_graph``."""

    def train_epoch(
        self, epoch: int, watch: Watch, checkpoints: Checkpoints | None, request: StopRequest | None
    ) -> TrainedEpoch | None:
        """Train ``epoch``, counted from 1; None if the training was stopped between two steps of it."""

    def evaluate(self, look: Callable[[torch.Tensor, Run], None]) -> dict[str, float | None]:
        """The metrics of all splits on the whole graph, the same on every rank; see ``evaluate``."""

    def peak_bytes(self) -> int:
        """The peak memory of the tensors of this rank."""

    @property
    def full(self) -> Run:
        """The run on the whole graph, by which the model is evaluated. The first use may be a collective."""

    def check_resumed(self) -> None:
        """Refuse to go on from what has been loaded.

        Raises:
            ConfigError: the checkpoint is in the midst of an epoch of other batches; the same on every rank.
        """

    def complete(self, record: RunRecord, result: "FitResult") -> RunRecord:
        """``record`` with what these steps have to say. Every rank calls it and gets the same."""

    def closing_table(self, record: RunRecord) -> str:
        """What is shown of the ``record`` at the end of a training."""

    def close(self) -> None:
        """Free what only training needs. It may be called twice."""


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
    steps: Steps,
    outputs: Iterable[EpochOutput] = (),
    checkpoints: Checkpoints | None = None,
    request: StopRequest | None = None,
) -> FitResult:
    """Train the run of ``steps`` in place, then close ``steps``. Every rank calls it with an equal state.

    Every decision (best epoch, early stop, stop by a signal) uses numbers that are equal on all ranks.

    Args:
        outputs: where the record of each epoch goes.
        checkpoints: None: none are written.
        request: tells whether this process has been asked to stop, or asks for it itself. All ranks then stop after the
            same step.

    Raises:
        TrainingDiverged: the loss or a parameter is no finite number any more.
    """
    keep_freed_memory()
    run, state, train = steps.run, steps.run.state, steps.run.cfg.train
    metric, watch = validation_metric(run.task), Watch(state, steps.ranks, checkpoints)
    patience, records = Patience(train, metric), _Records(watch, list(outputs))
    metrics, unwritten = None, ""
    try:
        if state.is_finished(train):  # nothing is left of a resumed run
            metrics = steps.evaluate(watch.look)
            watch.evaluated(state.epoch)
        while not state.is_finished(train):
            if request is not None and request.is_asked:
                state.gradients.ask_to_stop()
            trained, metrics = steps.train_epoch(state.epoch + 1, watch, checkpoints, request), None
            if trained is None:
                if checkpoints is not None:
                    watch.parameters(state.epoch)
                    unwritten = checkpoints.write(state, request)
                break
            records.read_late()
            if state.epoch == train.epochs or (train.eval_every and state.epoch % train.eval_every == 0):
                metrics = steps.evaluate(watch.look)
                record = records.read(trained)
                watch.evaluated(state.epoch)
                state.note(metrics, run.task)
                patience.evaluated(state)
                records.add(replace(record, metrics=metrics))
            elif steps.defers:
                records.late = trained
            else:
                records.add(records.read(trained))
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
        return FitResult(records.all, state.epoch, state.best, steps.peak_bytes(), steps.outcome, metrics, unwritten)
    finally:
        steps.close()


class _Records:
    """The records of the epochs so far."""

    def __init__(self, watch: Watch, outputs: list[EpochOutput]):
        self.all: list[EpochRecord] = []
        self.asked_to_stop = False
        """Whether a rank had been asked to stop before the last epoch that was read; equal on all ranks."""
        self.late: TrainedEpoch | None = None  # not yet read
        self._watch, self._outputs = watch, outputs

    def read_late(self) -> None:
        """Read the epoch before, unless it was read at once."""
        if self.late is not None:
            self.add(self.read(self.late))
            self.late = None

    def read(self, trained: TrainedEpoch) -> EpochRecord:
        record, asked = trained.read(self._watch)
        self.asked_to_stop |= asked
        return record

    def add(self, record: EpochRecord) -> None:
        self.all.append(record)
        for output in self._outputs:
            output.add_epoch(record)
