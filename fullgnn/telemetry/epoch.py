"""One epoch, as the progress line, the event files and the record of a run see it."""

from dataclasses import dataclass

from fullgnn.telemetry.meter import Cost


@dataclass(frozen=True)
class Accuracies:
    """Fraction of the nodes of a split whose class is right, in [0, 1]; None for an empty split."""

    train: float | None
    val: float | None
    test: float | None


@dataclass(frozen=True)
class EpochRecord:
    """One epoch on this rank. ``accuracy`` is None where the epoch was not evaluated; evaluation is not in ``cost``."""

    epoch: int  # from 1
    loss: float  # training loss before the update, global mean
    cost: Cost  # of the training step
    accuracy: Accuracies | None
    replayed: bool = False  # as a CUDA graph: its time has no phases
