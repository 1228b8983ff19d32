"""The log of a run while it works: that of each rank, phases that take long, and the progress of its epochs.

Rank 0 logs INFO, and every rank logs warnings and errors. A bar on a terminal stays below the lines of the log.
"""

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from fullgnn.telemetry.meter import EpochRecord
from fullgnn.telemetry.screen import percent, screen_width

T = TypeVar("T")

log = logging.getLogger(__name__)

LEAST_S = 5.0
"""A phase that takes less is not announced."""

SECONDS_PER_MILLION = {
    "generating": 0.15,
    "generating=rmat": 0.45,
    "partition=metis": 0.2,
    "reorder=metis": 0.3,
    "reorder=rcm": 0.02,
    "reorder=slashburn": 0.1,
    "sorting": 0.08,
    "writing": 0.06,
}
"""Seconds for a million non-zeros, as measured on two cores of an AMD EPYC with 10 to 126 million of them. METIS and
SlashBurn differ from graph to graph by a factor of up to 6."""

LINE_EVERY_S = 5.0
"""Seconds between two lines of ``counted`` where there is no terminal."""

BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
LEAST_BAR = 8
"""Columns of the bar itself at least, where other parts of its line can be left out."""


class _RankFilter(logging.Filter):
    """Pass INFO only on rank 0, and prefix the messages of other ranks with the rank."""

    def __init__(self, rank: int):
        super().__init__()
        self.rank = rank

    def filter(self, record: logging.LogRecord) -> bool:
        record.rank_prefix = f"[rank {self.rank}] " if self.rank else ""
        record.level_prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return self.rank == 0 or record.levelno >= logging.WARNING


class _BesideBars(logging.StreamHandler[Any]):
    """Writes a line above the progress bars of this process, which are drawn again below it."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm: Any = sys.modules.get("tqdm")  # loaded where a bar is shown
        bars: AbstractContextManager[None] = (
            nullcontext() if tqdm is None else tqdm.tqdm.external_write_mode(self.stream)
        )
        with bars:
            super().emit(record)


def setup_logging(rank: int = 0, level: int = logging.INFO) -> None:
    """Send the package's log to stderr, filtered by ``rank``; a second call replaces the first."""
    handler = _BesideBars(sys.stderr)
    handler.setFormatter(logging.Formatter("%(rank_prefix)s%(level_prefix)s%(message)s"))
    handler.addFilter(_RankFilter(rank))
    package = logging.getLogger("fullgnn")
    package.handlers = [handler]
    package.setLevel(level)
    package.propagate = False


def announce(phase: str, num_edges: int, works: Iterable[str]) -> None:
    """Log that a ``phase`` begins and how long its ``works`` take, if that is long.

    Args:
        num_edges: non-zeros that are worked on.
        works: keys of ``SECONDS_PER_MILLION``; another one, such as a method of the user, takes an unknown time.
    """
    seconds = num_edges / 1e6 * sum(SECONDS_PER_MILLION.get(work, 0.0) for work in works)
    if seconds >= LEAST_S:
        log.info("%s: about %s", phase, _rounded(seconds))


def _rounded(seconds: float) -> str:
    """Few digits, since it is an estimate."""
    if seconds < 90:
        return f"{round(seconds, -1) if seconds > 20 else round(seconds):.0f} s"
    return f"{seconds / 60:.0f} min"


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
        self.metrics: dict[str, float | None] = {}  # of the last evaluation
        self._bar = None
        if visible and sys.stderr.isatty():
            from tqdm import tqdm  # imported here, since this module must load without tqdm

            name = simulated or "epoch"
            self._bar = tqdm(total=epochs, initial=first - 1, desc=name, ncols=screen_width(), bar_format=BAR)

    def add_epoch(self, record: EpochRecord) -> None:
        if not self._visible:
            return
        self.metrics = self.metrics if record.metrics is None else record.metrics
        if self._bar is not None:
            self._bar.ncols = screen_width()  # it may have changed
            self._bar.set_postfix_str(self._postfix(record), refresh=False)
            self._bar.update()
        elif record.epoch in (self._first, self._epochs) or record.epoch % max(1, self._epochs // 10) == 0:
            rank = f"{self._simulated}: " if self._simulated else ""
            log.info("%sepoch %d/%d  %s", rank, record.epoch, self._epochs, self.lines_of(record)[0])

    def lines_of(self, record: EpochRecord) -> list[str]:
        """What is said of an epoch, the longest first, which has all of it; each other has less."""
        time = f"{record.cost.time_ms['epoch']:.1f} ms/epoch"
        if self._simulated:
            return [time, ""]
        name, values = _first_metric(self.metrics)
        loss = f"loss {record.loss:.4f}"
        metrics = (f"{name}: " if name else "") + "  ".join(f"{split} {value}" for split, value in values.items())
        validation = " ".join(filter(None, ("val", name, values["val"]))) if values else ""
        short = "  ".join(filter(None, (loss, validation)))
        return [f"{loss}  {metrics}  {time}", f"{short}  {time}", short, loss]

    def _postfix(self, record: EpochRecord) -> str:
        """The longest of ``lines_of`` that leaves the bar ``LEAST_BAR`` columns."""
        assert self._bar is not None
        numbers = f"/{self._epochs} [{_clock(self._bar)}, ]"
        around = len(f"{self._bar.desc}: 100%|| ") + len(str(self._epochs)) + len(numbers)
        room = screen_width() - LEAST_BAR - around
        *longer, shortest = self.lines_of(record)
        return next((line for line in longer if len(line) <= room), shortest)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _clock(bar: Any) -> str:
    """About as many characters as the elapsed and the remaining time of a bar of tqdm have."""
    elapsed = bar.format_interval(bar.format_dict["elapsed"])
    return f"{elapsed}<{max('00:00', elapsed, key=len)}"


def _first_metric(metrics: dict[str, float | None]) -> tuple[str, dict[str, str]]:
    """The name of the first metric, empty for the accuracy, and its value in each split; no values if nothing was
    evaluated yet."""
    if not metrics:
        return "", {}
    name = next(iter(metrics)).partition("_")[2]
    values = {split: metrics[f"{split}_{name}"] for split in ("train", "val", "test")}
    if name == "accuracy":
        return "", {split: percent(value) for split, value in values.items()}
    return name, {split: "-" if value is None else f"{value:.4f}" for split, value in values.items()}
