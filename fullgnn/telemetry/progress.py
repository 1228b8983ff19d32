"""The progress display of a run."""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from fullgnn.telemetry.epoch import EpochRecord
from fullgnn.telemetry.table import percent

T = TypeVar("T")

log = logging.getLogger(__name__)

LINE_EVERY_S = 5.0
"""Seconds between two lines of ``counted`` where there is no terminal."""


def counted(items: Sequence[T], what: str) -> Iterator[T]:
    """Yield the ``items``, and show how many of them are done: a bar on a terminal, else a line from time to time."""
    if sys.stderr.isatty():
        from tqdm import tqdm  # imported here, since this module must load without tqdm

        yield from tqdm(items, desc=what, dynamic_ncols=True, leave=False)
        return
    begin = shown = time.monotonic()
    for number, item in enumerate(items):
        now = time.monotonic()
        if number and now - shown > LINE_EVERY_S:
            log.info("%d of %d %s after %.0f s", number, len(items), what, now - begin)
            shown = now
        yield item


class Progress:
    """Rank 0's progress: one line that rewrites itself on a terminal, about ten log lines elsewhere.

    Args:
        epochs: number of planned epochs.
        visible: whether this rank shows it.
        first: the first epoch; a resumed run begins later than at 1.
        simulated: the one rank that a dry run simulates. Every line names it, and has neither the loss nor the metrics,
            which mean nothing there. Empty: a real run.
    """

    def __init__(self, epochs: int, visible: bool, first: int = 1, simulated: str = ""):
        self._epochs, self._visible, self._first, self._simulated = epochs, visible, first, simulated
        self._metrics = ""
        self._bar = None
        if visible and sys.stderr.isatty():
            from tqdm import tqdm  # imported here, since this module must load without tqdm

            self._bar = tqdm(total=epochs, initial=first - 1, desc=simulated or "epoch", unit="ep", dynamic_ncols=True)

    def add_epoch(self, record: EpochRecord) -> None:
        if not self._visible:
            return
        if record.metrics is not None:
            self._metrics = _main_metric(record.metrics)
        time = f"{record.cost.time_ms['epoch']:.1f} ms/epoch"
        line = time if self._simulated else f"loss {record.loss:.4f}  {self._metrics}  {time}"
        if self._bar is not None:
            self._bar.set_postfix_str(line, refresh=False)
            self._bar.update()
        elif record.epoch in (self._first, self._epochs) or record.epoch % max(1, self._epochs // 10) == 0:
            rank = f"{self._simulated}: " if self._simulated else ""
            log.info("%sepoch %d/%d  %s", rank, record.epoch, self._epochs, line)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _main_metric(metrics: dict[str, float | None]) -> str:
    """The first metric of every split."""
    first = next(iter(metrics)).partition("_")[2]
    of_splits = {split: metrics[f"{split}_{first}"] for split in ("train", "val", "test")}
    if first == "accuracy":
        return "  ".join(f"{split} {percent(value)}" for split, value in of_splits.items())
    values = ("-" if value is None else f"{value:.4f}" for value in of_splits.values())
    return f"{first}: " + "  ".join(f"{split} {value}" for split, value in zip(of_splits, values))
