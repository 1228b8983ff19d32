"""The result of one epoch, for the progress line, the event files and the record of a run."""

from dataclasses import dataclass

from fullgnn.telemetry.meter import Cost


@dataclass(frozen=True)
class Accuracies:
    """For each split, the fraction of its nodes whose predicted class is right, in [0, 1]; None for an empty split."""

    train: float | None
    val: float | None
    test: float | None


@dataclass(frozen=True)
class EpochRecord:
    """One epoch on this rank. ``accuracy`` is None without an evaluation; ``cost`` does not include evaluation."""

    epoch: int  # from 1
    loss: float  # training loss before the update, global mean
    cost: Cost  # of the training step
    accuracy: Accuracies | None
    replayed: bool = False  # as a CUDA graph: the time of ``cost`` then has no phases but ``epoch``
