"""Logging for many processes: rank 0 logs INFO, and every rank logs warnings and errors."""

import logging
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any


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
        tqdm: Any = sys.modules.get("tqdm")  # loaded where a bar is shown, see progress.py
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
