"""The result of one epoch, for the progress line, the event files and the record of a run."""

from dataclasses import dataclass

from fullgnn.telemetry.meter import Cost


@dataclass(frozen=True)
class EpochRecord:
    """One epoch on this rank. ``metrics`` is None without an evaluation; ``cost`` does not include evaluation."""

    epoch: int  # from 1
    loss: float  # training loss before the update, global mean
    cost: Cost  # of the training step
    metrics: dict[str, float | None] | None  # by split and name, as ``val_accuracy``; see ``Task.measure``
    replayed: bool = False  # as a CUDA graph: the time of ``cost`` then has no phases but ``epoch``
