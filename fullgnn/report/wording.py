"""Names, numbers and gaps in the words of the page."""

import math
from collections.abc import Callable, Iterable, Sequence

from fullgnn.report.markup import Markup, paragraph
from fullgnn.report.runs import Run

NOTHING = "–"
PHASE_NAMES = {"spmm": "SpMM", "comm": "communication", "dense": "dense", "other": "other"}


def count(number: float) -> str:
    """``1,234,567``"""
    return f"{number:,.0f}"


def milliseconds(time: float) -> str:
    return f"{time:.3f} ms"


def seconds(time: float) -> str:
    return f"{time:.2f} s"


def ratio(number: float) -> str:
    return f"{number:.3f}"


def digits(number: float) -> str:
    """Six of them."""
    return f"{number:.6g}"


def shown(number: float | None, show: Callable[[float], str]) -> str:
    """``show(number)``, or a dash where there is none."""
    return NOTHING if number is None or math.isnan(number) else show(number)


def unit(largest: float, names: Sequence[str] = ("B", "kB", "MB", "GB")) -> tuple[float, str]:
    """What to divide numbers up to ``largest`` by to make them readable, and its name."""
    power = min(int(math.log10(largest)) // 3, len(names) - 1) if largest >= 1 else 0
    return 1000.0**power, names[power]


def num_ranks(number: int) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"


def of(run: Run, what: str, runs: list[Run]) -> str:
    """``what``, with the name of its run where there are several."""
    return f"{run.name}: {what}" if len(runs) > 1 else what


def absent(runs: list[Run], present: Iterable[Run], what: str) -> list[Markup]:
    """A line that names the runs that have not recorded ``what``; none where all have."""
    there = {run.path for run in present}
    names = [run.name for run in runs if run.path not in there]
    whose = f" of {', '.join(names)}" if len(runs) > 1 else ""
    return [paragraph(f"Not recorded: {what}{whose}.")] if names else []
