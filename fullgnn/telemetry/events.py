"""TensorBoard event files of a run."""

import functools
import threading
from pathlib import Path
from typing import Any

from fullgnn.errors import UnsupportedError
from fullgnn.telemetry.meter import EpochRecord


def summary_writer() -> Any:
    """The class that writes event files.

    Raises:
        UnsupportedError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UnsupportedError(
            "train.tensorboard=true needs the package tensorboard: pip install tensorboard, or leave it out"
        ) from error
    return SummaryWriter


class EventFiles:
    """Event files with one point per epoch for the loss, the metrics, each phase's time and each collective's bytes.

    The numbers are those of ``epochs.jsonl``, rounded to single precision, which TensorBoard uses for scalars.

    Args:
        run_dir: the run folder; the files are written to its folder ``tensorboard``.
        first: the first epoch. TensorBoard then leaves out later points of earlier files.

    Raises:
        UnsupportedError: see ``summary_writer``.
    """

    def __init__(self, run_dir: Path, first: int = 1):
        _hear_of_errors_once()
        self._writer = summary_writer()(str(run_dir / "tensorboard"), purge_step=first if first > 1 else None)

    def add_epoch(self, record: EpochRecord) -> None:
        """Add the points of an epoch.

        Raises:
            OSError: an earlier point could not be written.
        """
        points: dict[str, float | None] = {"loss/train": record.loss}
        for name, value in (record.metrics or {}).items():
            split, _, metric = name.partition("_")
            points[f"{metric}/{split}"] = value
        points |= {f"time_ms/{phase}": time for phase, time in record.cost.time_ms.items()}
        points |= {f"bytes_received/{name}": count for name, count in record.cost.bytes_received.items()}
        for tag, value in points.items():
            if value is not None:  # an empty split has no metrics
                self._writer.add_scalar(tag, value, record.epoch)

    def close(self) -> None:
        """Write what is left.

        Raises:
            OSError: it, or an earlier point, cannot be written.
        """
        self._writer.close()


@functools.cache
def _hear_of_errors_once() -> None:
    """TensorBoard writes in a thread. An error there is raised again where the next point is added, and need not be
    printed with a traceback as well."""
    usual = threading.excepthook

    def quiet(error: threading.ExceptHookArgs) -> None:
        if not (isinstance(error.exc_value, OSError) and type(error.thread).__module__.startswith("tensorboard.")):
            usual(error)

    threading.excepthook = quiet
