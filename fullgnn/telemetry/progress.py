"""The progress display of a run."""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from fullgnn.telemetry.epoch import EpochRecord
from fullgnn.telemetry.screen import screen_width
from fullgnn.telemetry.table import percent

T = TypeVar("T")

log = logging.getLogger(__name__)

LINE_EVERY_S = 5.0
"""Seconds between two lines of ``counted`` where there is no terminal."""

BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
LEAST_BAR = 8
"""Columns of the bar itself at least, where other parts of its line can be left out."""


def counted(items: Sequence[T], what: str) -> Iterator[T]:
    """Yield the ``items``, and show how many of them are done: a bar on a terminal, else a line from time to time."""
    if sys.stderr.isatty():
        from tqdm import tqdm  # imported here, since this module must load without tqdm

        yield from tqdm(items, desc=what, ncols=screen_width(), leave=False)
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
        self._metrics: dict[str, float | None] = {}  # of the last evaluation
        self._bar = None
        if visible and sys.stderr.isatty():
            from tqdm import tqdm  # imported here, since this module must load without tqdm

            name = simulated or "epoch"
            self._bar = tqdm(total=epochs, initial=first - 1, desc=name, ncols=screen_width(), bar_format=BAR)

    def add_epoch(self, record: EpochRecord) -> None:
        if not self._visible:
            return
        self._metrics = self._metrics if record.metrics is None else record.metrics
        if self._bar is not None:
            self._bar.ncols = screen_width()  # it may have changed
            self._bar.set_postfix_str(self._postfix(record), refresh=False)
            self._bar.update()
        elif record.epoch in (self._first, self._epochs) or record.epoch % max(1, self._epochs // 10) == 0:
            rank = f"{self._simulated}: " if self._simulated else ""
            log.info("%sepoch %d/%d  %s", rank, record.epoch, self._epochs, self._lines(record)[0])

    def _lines(self, record: EpochRecord) -> list[str]:
        """What is said of an epoch, the longest first, which has all of it; each other has less."""
        time = f"{record.cost.time_ms['epoch']:.1f} ms/epoch"
        if self._simulated:
            return [time, ""]
        loss, metrics = f"loss {record.loss:.4f}", _main_metric(self._metrics)
        validation = _validation_metric(self._metrics)
        short = "  ".join(filter(None, (loss, validation)))
        return [f"{loss}  {metrics}  {time}", f"{short}  {time}", short, loss]

    def _postfix(self, record: EpochRecord) -> str:
        """The longest of ``_lines`` that leaves the bar ``LEAST_BAR`` columns."""
        assert self._bar is not None
        numbers = f"/{self._epochs} [{_clock(self._bar)}, ]"
        around = len(f"{self._bar.desc}: 100%|| ") + len(str(self._epochs)) + len(numbers)
        room = screen_width() - LEAST_BAR - around
        *longer, shortest = self._lines(record)
        return next((line for line in longer if len(line) <= room), shortest)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _clock(bar: Any) -> str:
    """About as many characters as the elapsed and the remaining time of a bar of tqdm have."""
    elapsed = bar.format_interval(bar.format_dict["elapsed"])
    return f"{elapsed}<{max('00:00', elapsed, key=len)}"


def _main_metric(metrics: dict[str, float | None]) -> str:
    """The first metric of every split; empty if nothing was evaluated yet."""
    if not metrics:
        return ""
    first = next(iter(metrics)).partition("_")[2]
    of_splits = {split: metrics[f"{split}_{first}"] for split in ("train", "val", "test")}
    if first == "accuracy":
        return "  ".join(f"{split} {percent(value)}" for split, value in of_splits.items())
    values = ("-" if value is None else f"{value:.4f}" for value in of_splits.values())
    return f"{first}: " + "  ".join(f"{split} {value}" for split, value in zip(of_splits, values))


def _validation_metric(metrics: dict[str, float | None]) -> str:
    """The first metric of the validation nodes; empty if nothing was evaluated yet."""
    if not metrics:
        return ""
    first = next(iter(metrics)).partition("_")[2]
    value = metrics[f"val_{first}"]
    if first == "accuracy":
        return f"val {percent(value)}"
    return f"val {first} {'-' if value is None else f'{value:.4f}'}"
