"""Sampled training: one gradient step for each batch, whose mathematics does not depend on the number of ranks.

Every rank computes the loss of its own targets of a batch, divided by the normaliser of the whole batch; the gradients
are added. A batch has a part for every rank, which may be empty: all ranks make the same steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from fullgnn.config import MinibatchConfig
from fullgnn.distributed import Axis, StopRequest, World
from fullgnn.engine.checkpoints import Checkpoints
from fullgnn.engine.cuda_graph import StateSnapshot
from fullgnn.engine.ending import Watch
from fullgnn.engine.fit import FitResult
from fullgnn.engine.passes import AsyncNumbers, defers_reads, evaluate
from fullgnn.engine.rehearse import rehearse
from fullgnn.engine.run import Run
from fullgnn.engine.state import Batches
from fullgnn.errors import ConfigError
from fullgnn.graph.remarks import noted
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.trials import TensorPeak
from fullgnn.nn import set_epoch
from fullgnn.sampling.loader import Loader, Minibatch
from fullgnn.sampling.summary import sampling_summary, sampling_table
from fullgnn.schemes.block import SumsRows
from fullgnn.storage.record import RunRecord
from fullgnn.tasks.task import NodeTask, part_of_loss
from fullgnn.telemetry.meter import EpochRecord, Meter


class DataParallel:
    """Adds what the ranks have computed from their own targets."""

    def __init__(self, world: World, meter: Meter):
        self._axis = Axis(world.group, meter)

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor`` over all ranks, in place; every rank receives the same bits."""
        return self._axis.all_reduce(tensor)


class SampledSteps:
    """The ``Steps`` of sampled training.

    Args:
        run: whose blocks are sampled; it has no part of the whole graph.
        distribute: makes the run on the whole graph, with the same model. Every rank calls it, at the first evaluation.
        codec: see ``RunRecord``; None: the features are as they are.
        sampler_remarks: what the sampler has found in the graph, see ``graph/remarks.py``.
    """

    defers = False
    outcome = "no: every batch is another one"

    def __init__(
        self,
        run: Run,
        loader: Loader,
        distribute: Callable[[], Run],
        codec: dict[str, Any] | None = None,
        sampler_remarks: Mapping[str, int] | None = None,
    ):
        self.run, self.state, self.meter, self.loader = run, run.state, run.meter, loader
        self.codec, self.sampler_remarks = codec, sampler_remarks or {}
        self.ranks: SumsRows = DataParallel(run.world, run.meter)
        self.row_id = torch.empty(0, dtype=torch.int64)  # no parameter is sharded
        self._distribute = distribute
        self._peak = TensorPeak(loader.device)
        self._rehearses = gpu.runs_triton(loader.device)

    @cached_property
    def full(self) -> Run:
        """The run on the whole graph, distributed as in full-batch training. The first use is a collective."""
        return self._distribute()

    def train_epoch(
        self, epoch: int, watch: Watch, checkpoints: Checkpoints | None, request: StopRequest | None
    ) -> "TrainedBatches | None":
        """See ``Steps``. Batches that a checkpoint has seen already are left out."""
        state, loader, meter = self.state, self.loader, self.meter
        every = cast(MinibatchConfig, self.run.cfg).train.checkpoint_every_batches
        stops, defers = False, defers_reads(loader.device)
        late: tuple[AsyncNumbers, float, Watch, int] | None = None  # the results of a step that are not read yet
        meter.take()
        with meter.interval("epoch"):
            for batch in loader.epoch(epoch, state.batches.count):
                if request is not None and request.is_asked:
                    state.gradients.ask_to_stop()
                state.model.train()
                set_epoch(state.model, state.epoch * loader.num_batches + state.batches.count + 1)
                if self._rehearses and batch.total:
                    self._rehearses = False
                    self._rehearse(batch)
                results = self.watched_step(batch, self._peak)
                if late is not None:
                    stops |= self._note(*late)
                late, last = (results, batch.total, watch, state.batches.count), self._is_last
                due = checkpoints is not None and every and state.batches.count % every == 0
                if last or stops or due or not defers:
                    stops |= self._note(*late)
                    late = None
                if last:
                    break
                if stops:
                    return None
                if checkpoints is not None and due:
                    watch.parameters(state.epoch)
                    checkpoints.write(state)
        done = state.batches
        if state.schedule is not None:
            state.schedule.step()
        state.epoch, state.batches = epoch, Batches()
        loss = done.loss_sum / done.total if done.total else 0.0
        return TrainedBatches(EpochRecord(epoch, loss, meter.take(), None), stops)

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

    def watched_step(self, batch: Minibatch, peak: TensorPeak) -> AsyncNumbers:
        """``step``, which ``peak`` watches while the loader is new: in the first batch, and in the one after it if a
        cache of automatic size has taken what the first one has left."""
        if not self.loader.is_new:
            return self.step(batch)
        with peak.watch(*self.state.tensors(), *self.loader.tensors(), *batch.tensors()):
            results = self.step(batch)
        self.loader.trained(peak.bytes)
        return results

    def evaluate(self, look: Callable[[Tensor, Run], None] | None = None) -> dict[str, float | None]:
        """See ``Steps``."""
        with self.meter.untimed():
            return evaluate(self.full, look)

    def check_resumed(self) -> None:
        """See ``Steps``."""
        batches, num_parts = self.state.batches, self.loader.num_parts
        if batches.count and batches.num_parts != num_parts:
            raise ConfigError(
                f"resume: the checkpoint is in the midst of an epoch whose training nodes were divided among"
                f" {batches.num_parts} processes (loader.split=pagraph): go on with as many, or from a checkpoint at"
                " the end of an epoch"
            )

    def complete(self, record: RunRecord, result: FitResult) -> RunRecord:
        """See ``Steps``."""
        cfg, remarks = cast(MinibatchConfig, self.run.cfg), noted(record.remarks, self.sampler_remarks)
        record = replace(record, sampling=sampling_summary(cfg, self.loader, result), remarks=remarks)
        return record if self.codec is None else replace(record, codec=self.codec)

    def closing_table(self, record: RunRecord) -> str:
        """See ``Steps``."""
        return sampling_table(record, self.run.cfg.train.table == "full")

    def peak_bytes(self) -> int:
        """See ``Steps``."""
        return self._peak.bytes

    def close(self) -> None:
        """End the workers."""
        self.loader.close()

    @property
    def _is_last(self) -> bool:
        """Whether all batches of the epoch have been trained."""
        return self.state.batches.count == self.loader.num_batches

    def _rehearse(self, batch: Minibatch) -> None:
        """Compile the kernels of the step on ``batch``, which is trained afterwards. Every rank calls it."""
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
            task = cast(NodeTask, self.run.task)
            loss = part_of_loss(task, output, batch.targets, total) if total else output.new_zeros(())
        with meter.phase("backward"):
            if total:
                loss.backward()
        state.gradients.sum_with(loss.detach(), self.ranks)
        with meter.phase("update"):
            if total:
                if state.clip_norm is not None:
                    state.gradients.clip(state.clip_norm, self.ranks)
                state.optimizer.step()

    def _note(self, results: AsyncNumbers, total: float, watch: Watch, number: int) -> bool:
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


@dataclass(frozen=True)
class TrainedBatches:
    """The ``TrainedEpoch`` of sampled training, whose batches have been read already."""

    record: EpochRecord
    asked_to_stop: bool

    def read(self, watch: Watch) -> tuple[EpochRecord, bool]:
        """See ``TrainedEpoch``."""
        return self.record, self.asked_to_stop
