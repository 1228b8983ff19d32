"""A training epoch by epoch: what is known after each, when it arrives at an accuracy, and the mean of several."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from fullgnn.bench.papers.result import Curve

NEARLY = 0.99
"""The accuracy whose epoch is told is this part of the one that every run reaches at its best."""


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a training."""

    epoch: int
    seconds: float  # of training up to here: all epochs from the first one, without the evaluations
    since_last: float  # seconds of training since the evaluation before, or since the start
    accuracy: float


@dataclass(frozen=True)
class TrainingCurve:
    """One training that has ended."""

    accuracy: Sequence[float | None]  # after each epoch; None, or no number: this epoch has no evaluation
    seconds: Sequence[float]  # of each epoch, without its evaluation
    setup_s: float = 0.0  # before the first epoch
    loss: Sequence[float] = ()  # before each epoch's update
    epoch_ms: float = 0.0  # the median, without the first epoch, of the busiest rank
    steps: int = 1  # updates of an epoch

    @property
    def evaluations(self) -> list[Evaluation]:
        """The epochs whose accuracy is a number."""
        found, last = list[Evaluation](), 0.0
        for epoch, (seconds, accuracy) in enumerate(zip(accumulate(self.seconds), self.accuracy), 1):
            if accuracy is not None and math.isfinite(accuracy):
                found.append(Evaluation(epoch, seconds, seconds - last, accuracy))
                last = seconds
        return found

    @property
    def accuracies(self) -> list[float]:
        """Those of the ``evaluations``."""
        return [evaluation.accuracy for evaluation in self.evaluations]

    @property
    def best(self) -> float:
        """The largest accuracy; there is at least one evaluation."""
        return max(self.accuracies)

    def reaching(self, accuracy: float) -> Evaluation | None:
        """The first evaluation with this ``accuracy`` or more; None if there is none."""
        return next((evaluation for evaluation in self.evaluations if evaluation.accuracy >= accuracy), None)

    def seconds_to_loss(self, loss: float) -> float | None:
        """When the first step has this ``loss`` or less, as ``after_first`` has it; None if no step has it."""
        return next((seconds for seconds, own in zip(self.after_first, self.loss) if own <= loss), None)

    @property
    def after_first(self) -> list[float]:
        """Seconds at the end of each epoch, from the end of the first: that allocates, compiles and connects."""
        return list(accumulate(self.seconds[1:], initial=0.0))


def reaching(curve: Sequence[float], accuracy: float) -> int | None:
    """The epoch, from 1, that first has an ``accuracy``; None: no epoch of the curve has it."""
    return next((epoch for epoch, own in enumerate(curve, 1) if own >= accuracy), None)


def mean_curve(name: str, curves: Sequence[Sequence[float]]) -> Curve:
    """The mean of the ``curves`` of several runs after each epoch that all of them have."""
    means = list(map(fmean, zip(*curves)))
    return Curve(name, [float(epoch) for epoch in range(1, len(means) + 1)], means)
