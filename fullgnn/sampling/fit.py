"""Sampled training: one gradient step for each batch, whose mathematics does not depend on the number of ranks.

Every rank computes the loss of its own targets of a batch, divided by the normaliser of the whole batch; the gradients
are added. A batch has a part for every rank, which may be empty: all ranks make the same steps.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from torch import Tensor

from fullgnn.config import MinibatchTrainConfig
from fullgnn.distributed import StopRequest
from fullgnn.engine.checkpoints import Checkpoints
from fullgnn.engine.cuda_graph import StateSnapshot
from fullgnn.engine.divergence import Watch
from fullgnn.engine.early_stop import Patience
from fullgnn.engine.fit import EpochOutput, FitResult, defers_reads
from fullgnn.engine.job import Job
from fullgnn.engine.memory import TensorPeak
from fullgnn.engine.rehearse import rehearse
from fullgnn.engine.state import Batches, TrainState, validation_metric
from fullgnn.engine.step_runner import AsyncNumbers
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.process import keep_freed_memory
from fullgnn.nn import set_epoch
from fullgnn.sampling.data_parallel import DataParallel
from fullgnn.sampling.loader import Loader, Minibatch
from fullgnn.tasks.task import NodeTask, part_of_loss
from fullgnn.telemetry.meter import EpochRecord, Meter

Measure = Callable[[Callable[[Tensor, Job], None]], dict[str, float | None]]
"""The exact metrics of the model on the full graph. Every rank calls it, with what looks at the output; see
``evaluate``."""


@dataclass(frozen=True, eq=False)
class Training:
    """What the steps of a rank change and read."""

    state: TrainState
    task: NodeTask
    loader: Loader
    ranks: DataParallel
    meter: Meter

    def step(self, batch: Minibatch) -> AsyncNumbers:
        """Change the state by one step, which a GPU may still be computing. Every rank calls it.

        A batch without a label on any rank has nothing to learn: it changes no parameter, and nothing that the
        optimizer keeps, but counts like any other batch.

        Returns:
            the loss before the update, and how many ranks have been asked to stop; the same on every rank.
        """
        self._learn(batch)
        state = self.state
        state.batches = replace(state.batches, count=state.batches.count + 1, num_parts=self.loader.num_parts)
        return AsyncNumbers(state.gradients.results)

    def rehearse(self, batch: Minibatch) -> None:
        """Compile the kernels of the step on ``batch``, which is still to be made. Every rank calls it."""
        state = self.state
        rehearse(
            lambda: self._learn(batch),
            lambda: StateSnapshot(state.model, state.optimizer, state.gradients.flat),
            self.meter,
        )

    def _learn(self, batch: Minibatch) -> None:
        """Change the parameters by ``batch``."""
        state, meter, total = self.state, self.meter, batch.total
        with meter.phase("update"):
            state.gradients.zero()
        with meter.phase("forward"):
            output = state.model(batch.x, batch.blocks)
            loss = part_of_loss(self.task, output, batch.targets, total) if total else output.new_zeros(())
        with meter.phase("backward"):
            if total:
                loss.backward()
        state.gradients.sum_with(loss.detach(), self.ranks)
        with meter.phase("update"):
            if total:
                if state.clip_norm is not None:
                    state.gradients.clip(state.clip_norm, self.ranks)
                state.optimizer.step()

    def watched_step(self, batch: Minibatch, peak: TensorPeak) -> AsyncNumbers:
        """``step``, which ``peak`` watches while the loader is new: in the first batch, and in the one after it if a
        cache of automatic size has taken what the first one has left."""
        if not self.loader.is_new:
            return self.step(batch)
        with peak.watch(*self.state.tensors(), *self.loader.tensors(), *batch.tensors()):
            results = self.step(batch)
        self.loader.trained(peak.bytes)
        return results

    def note(self, results: AsyncNumbers, total: float, watch: Watch, number: int) -> bool:
        """Add the ``results`` of a step on a batch with this ``total`` to the state.

        Args:
            watch: ends the training if the loss is not finite.
            number: of the batch in its epoch, from 1.

        Returns:
            whether a rank has been asked to stop.
        """
        (mean, num_asked), done = results.read(), self.state.batches
        if total:  # else no parameter has a part in the loss, which then proves no checkpoint
            watch.loss(mean, self.state.epoch + 1, number)
        self.state.batches = replace(done, loss_sum=done.loss_sum + mean * total, total=done.total + total)
        return num_asked > 0


def fit_sampled(
    training: Training,
    train: MinibatchTrainConfig,
    measure: Measure,
    outputs: Iterable[EpochOutput] = (),
    checkpoints: Checkpoints | None = None,
    request: StopRequest | None = None,
) -> FitResult:
    """Train the state of ``training`` in place. Every rank calls it with an equal state.

    Every decision uses numbers that are equal on all ranks.

    Args:
        measure: evaluates the model.
        outputs: where the record of each epoch goes.
        checkpoints: None: none are written.
        request: tells whether this process has been asked to stop, or asks for it itself. All ranks then stop after the
            same batch.

    Raises:
        TrainingDiverged: the loss or a parameter is no finite number any more.
    """
    keep_freed_memory()
    state, outputs = training.state, list(outputs)
    metric, watch = validation_metric(training.task), Watch(training.state, training.ranks, checkpoints)
    patience = Patience(train, metric)
    peak, records = TensorPeak(training.loader.device), list[EpochRecord]()
    metrics, unwritten, rehearses = None, "", gpu.runs_triton(training.loader.device)
    if state.is_finished(train):  # nothing is left of a resumed run
        metrics = measure(watch.look)
        watch.evaluated(state.epoch)
    while not state.is_finished(train):
        record, stops = _train_epoch(
            training, peak, train.checkpoint_every_batches, watch, checkpoints, request, rehearses
        )
        metrics, rehearses = None, False
        if record is None:
            if checkpoints is not None:
                watch.parameters(state.epoch)
                unwritten = checkpoints.write(state, request)
            break
        if state.epoch == train.epochs or (train.eval_every and state.epoch % train.eval_every == 0):
            metrics = measure(watch.look)
            watch.evaluated(state.epoch)
            state.note(metrics, training.task)
            patience.evaluated(state)
        records.append(replace(record, metrics=metrics))
        for output in outputs:
            output.add_epoch(records[-1])
        finished = state.is_finished(train)
        stops = stops and not finished
        if checkpoints is not None and (checkpoints.is_due(state.epoch, finished) or stops):
            if metrics is None:
                watch.parameters(state.epoch)
            unwritten = checkpoints.write(state, request)
        if stops:
            metrics = None
            break
    if metrics is not None:
        watch.finished(metric)
        patience.ended(state)
    return FitResult(records, state.epoch, state.best, peak.bytes, "no: every batch is another one", metrics, unwritten)


def _train_epoch(
    training: Training,
    peak: TensorPeak,
    checkpoint_every: int,
    watch: Watch,
    checkpoints: Checkpoints | None,
    request: StopRequest | None,
    rehearses: bool,
) -> tuple[EpochRecord | None, bool]:
    """Train the batches that are left of an epoch.

    Args:
        peak: watches the batches that ``Training.watched_step`` says.
        checkpoint_every: batches between two checkpoints; 0: none are written.
        watch: ends the training where it has gone wrong.
        rehearses: whether the step on the first batch with a label is rehearsed.

    Returns:
        the record of the epoch, without metrics, or None if the training was stopped before its last batch; and whether
        a rank has been asked to stop.
    """
    state, loader, meter = training.state, training.loader, training.meter
    epoch, stops, defers = state.epoch + 1, False, defers_reads(training.loader.device)
    late: tuple[AsyncNumbers, float, Watch, int] | None = None  # the results of a step that are not read yet
    meter.take()
    with meter.interval("epoch"):
        for batch in loader.epoch(epoch, state.batches.count):
            if request is not None and request.is_asked:
                state.gradients.ask_to_stop()
            state.model.train()
            set_epoch(state.model, state.epoch * loader.num_batches + state.batches.count + 1)
            if rehearses and batch.total:
                training.rehearse(batch)
                rehearses = False
            results = training.watched_step(batch, peak)
            if late is not None:
                stops |= training.note(*late)
            late, last = (results, batch.total, watch, state.batches.count), state.batches.count == loader.num_batches
            due = checkpoints is not None and checkpoint_every and state.batches.count % checkpoint_every == 0
            if last or stops or due or not defers:
                stops |= training.note(*late)
                late = None
            if last:
                break
            if stops:
                return None, True
            if checkpoints is not None and due:
                watch.parameters(state.epoch)
                checkpoints.write(state)
    done = state.batches
    if state.schedule is not None:
        state.schedule.step()
    state.epoch, state.batches = epoch, Batches()
    return EpochRecord(epoch, done.loss_sum / done.total if done.total else 0.0, meter.take(), None), stops
