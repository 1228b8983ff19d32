"""What ``train.patience`` does in a run, in words: when it stops the training, and when it cannot."""

import logging

from fullgnn.config import TrainConfig
from fullgnn.engine.state import TrainState

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
