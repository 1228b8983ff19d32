"""The end of a training before its last epoch: it has gone wrong, or its evaluations do not improve any more.

``Watch`` ends a training whose loss, parameter, or loss in an evaluation is not a finite number:

    loss          looked at where it is read for the records, so at most one epoch, or one batch, late on a GPU
    evaluation    two numbers, summed over the ranks, are launched with it and read after its metrics
    checkpoint    is refused if a parameter is not finite; it counts as good only when the next loss is finite

So nothing waits for the device only to be looked at. All ranks have the same numbers, so they end alike. ``Patience``
says what ``train.patience`` does, and when it cannot act.
"""

import logging
import math
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from fullgnn.config import TrainConfig
from fullgnn.distributed import broadcast_object, in_dry_run
from fullgnn.engine.checkpoints import Checkpoints
from fullgnn.engine.passes import AsyncNumbers
from fullgnn.engine.run import Run
from fullgnn.engine.state import TrainState, split_parameters
from fullgnn.errors import TrainingDiverged
from fullgnn.schemes.block import SumsRows
from fullgnn.tasks.task import part_of_loss


class Watch:
    """Raises ``TrainingDiverged`` on every rank where a training has gone wrong; never in a dry run, whose numbers have
    no meaning.

    Args:
        ranks: adds up what the ranks find.
        checkpoints: of the run; None: none are written.
    """

    def __init__(self, state: TrainState, ranks: SumsRows, checkpoints: Checkpoints | None = None):
        self._state, self._ranks, self._checkpoints = state, ranks, checkpoints
        self._active = not in_dry_run()
        self._not_finite: AsyncNumbers | None = None  # by the latest evaluation

    def loss(self, loss: float, epoch: int, batch: int | None = None) -> None:
        """Look at the ``loss`` of an epoch, or of one of its batches, which was computed before the update."""
        if not self._active:
            return
        if not math.isfinite(loss):
            place = f"epoch {epoch}" if batch is None else f"batch {batch} of epoch {epoch}"
            self._end(f"the loss of {place} is {loss}")
        if self._checkpoints is not None:
            self._checkpoints.prove()

    @torch.no_grad()
    def look(self, output: Tensor, run: Run) -> None:
        """Look at the parameters and the (num_local_nodes, num_outputs) ``output`` of an evaluation, for ``evaluated``.

        Every rank calls it.
        """
        if self._active:
            self._not_finite = self._sum(_undefined(output, run))

    def evaluated(self, epoch: int) -> None:
        """End the training if the evaluation after ``epoch`` has shown that it has gone wrong."""
        if self._not_finite is None:
            return
        num_parameters, num_outputs = self._not_finite.read()
        self._not_finite = None
        if num_parameters:
            self._end(f"parameters are not finite after epoch {epoch}")
        if num_outputs:
            self._end(f"what the model computes for the training data gives no finite loss after epoch {epoch}")

    def parameters(self, epoch: int) -> None:
        """End the training if a parameter is not finite, before a checkpoint is written. Every rank calls it."""
        if self._active and self._sum(self._state.gradients.flat.new_zeros(())).read()[0]:
            self._end(f"parameters are not finite after epoch {epoch}")

    def finished(self, metric: str) -> None:
        """After the last epoch. ``metric`` is the name of the one that chooses the best epoch."""
        if self._active and self._state.best is None:
            self._end(f"{metric} has not been a finite number at any evaluation")
        if self._checkpoints is not None:
            self._checkpoints.prove()

    def _sum(self, undefined: Tensor) -> AsyncNumbers:
        """(2,) how often parameters are not finite, and ``undefined``, both added over the ranks."""
        replicated, sharded = split_parameters(self._state.model)
        bad = [_bad(parameter.detach()) for parameter in (*replicated, *sharded) if parameter.numel()]
        any_bad = torch.stack(bad).any() if bad else torch.zeros_like(undefined)  # a rank may have no rows
        numbers = torch.stack([any_bad.double(), undefined.double()])
        return AsyncNumbers(self._ranks.sum_over_rows(numbers))

    def _end(self, problem: str) -> NoReturn:
        last = "" if self._checkpoints is None else self._checkpoints.last_good()
        good = broadcast_object([last])[0]
        there = f"; the last good checkpoint is {good}" if good else "; there is no good checkpoint of it"
        raise TrainingDiverged(f"the training has diverged: {problem}{there}. Start anew with {self._cure()}")

    def _cure(self) -> str:
        state = self._state
        rate = state.optimizer.param_groups[0].get("lr")
        now = f" (now {float(rate):g})" if rate is not None else ""
        clip = "train.clip_norm=1" if state.clip_norm is None else f"a train.clip_norm below {state.clip_norm:g}"
        wider = "" if state.gradients.flat.dtype == torch.float64 else ", runtime.dtype=float64"
        return f"a smaller optimizer.lr{now}, {clip}{wider}, or features scaled to about 1"


def _bad(parameter: Tensor) -> Tensor:
    """Whether ``parameter`` has an element that is not finite; a bool on its device, with no copy of the tensor."""
    least, most = torch.aminmax(parameter)
    return ~(least.isfinite() & most.isfinite())


def _undefined(output: Tensor, run: Run) -> Tensor:
    """This rank's part of a number that is positive if the model's ``output`` for the training data gives a loss that
    is not finite, or for a task that finds links is NaN. One infinite output may be meant: the logarithm of 0."""
    graph = run.graph
    if graph.pairs is None:
        of_train = output.index_select(0, graph.train_index)
        return part_of_loss(run.task, of_train, graph.train_labels).isfinite().logical_not()
    owns = torch.from_numpy(np.diff(graph.pairs.train.indptr) > 0).to(output.device)
    return (output.sum(dim=1).isnan() & owns).any()


log = logging.getLogger(__name__)

EPOCHS, PATIENCE = "epochs", "patience"
"""Why a run has ended: see ``RunRecord.ended_by``."""


class Patience:
    """Logs, each reason once, why ``train.patience`` cannot act, and where it has stopped the training.

    Args:
        metric: name of the validation metric that chooses the best epoch, such as val_accuracy.
    """

    def __init__(self, train: TrainConfig, metric: str):
        self._train, self._metric = train, metric
        self._said = set[str]()
        if not train.patience:
            return
        num_evaluations = (train.epochs - 1) // train.eval_every if train.eval_every else 0
        if num_evaluations <= train.patience:  # the first evaluation is always the best so far
            self._say(
                f"there are {num_evaluations} evaluations before the last epoch (train.epochs={train.epochs},"
                f" train.eval_every={train.eval_every}), and it needs more than {train.patience}"
            )

    def evaluated(self, state: TrainState) -> None:
        """Called after each evaluation that ``state`` has noted."""
        if self._train.patience and not state.has_validated(self._metric):
            self._say(
                f"{self._metric} is null, as without a validation split, or with one that lacks what the metric"
                " compares: give the graph another one, choose another of task.metrics, or leave train.patience out"
            )

    def ended(self, state: TrainState) -> None:
        """Log why a training has ended before its last epoch."""
        if ended_by(state.epoch, self._train) == PATIENCE and state.best is not None:
            best = state.best.metrics[self._metric]
            log.info(
                "stopped early after epoch %d of %d: %s has not been better than %.4f, that of epoch %d, for %d"
                " evaluation%s (train.patience=%d)",
                state.epoch,
                self._train.epochs,
                self._metric,
                best,
                state.best.epoch,
                state.stale,
                "" if state.stale == 1 else "s",
                self._train.patience,
            )

    def _say(self, reason: str) -> None:
        if reason not in self._said:
            log.info("train.patience=%d cannot act: %s", self._train.patience, reason)
        self._said.add(reason)


def ended_by(epoch: int, train: TrainConfig) -> str:
    """Why a training that has finished after ``epoch`` has ended: ``EPOCHS`` or ``PATIENCE``."""
    return EPOCHS if epoch >= train.epochs else PATIENCE
