"""The section of the means over seeds and splits, and the files that have them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fullgnn.report.content import Block, Table
from fullgnn.report.means import Setting, as_csv, as_markdown, means_table
from fullgnn.report.runs import Run
from fullgnn.storage.folder import write_text

FILES = {"report_means.csv": as_csv, "report_means.md": as_markdown}
"""Files beside the page, and what they hold."""


def has_replicates(runs: Sequence[Run]) -> bool:
    """Whether a run of the page stands for several that differ in seeds or splits alone."""
    return any(len(run.paths) > 1 for run in runs)


def write_means(runs: Sequence[Run], folder: Path) -> None:
    """Write the files of the means to ``folder``; without replicates, remove those of an earlier report.

    Raises:
        OSError: the folder cannot be written.
    """
    for name, make in FILES.items():
        if has_replicates(runs):
            write_text(folder / name, make(settings_of(runs)))
        else:
            (folder / name).unlink(missing_ok=True)


def settings_of(runs: Sequence[Run]) -> list[Setting]:
    """The finished runs of a page as settings; a run that stands for one run alone has one."""
    return [
        Setting(
            run.name if len(runs) > 1 else run.record.get("model") or run.name,
            len(run.paths),
            {**_metrics(run), "epoch_time_ms": (run.record.get("epoch_time_ms") or {}).get("median")},
        )
        for run in runs
        if run.record
    ]


def _metrics(run: Run) -> dict[str, Any]:
    """The metrics of a run; none if its record lacks them."""
    return run.record.get("metrics") or {}


def means(runs: list[Run]) -> Iterator[Block]:
    """A row for each setting, the best first."""
    header, rows = means_table(settings_of(runs))
    yield "table", Table("Mean ± standard deviation, the best validation metric first", header, rows)
