"""Which values of the constants of ``kernels/support/tuning.py`` are tried, and which of them win.

``VALUES`` names values for the fields that deserve better ones than half and twice the default. A field that is not
named there is tried by its type, so that a new constant is swept as soon as it exists.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import yaml

from fullgnn.kernels.support.tuning import Tuning, file_name

TUNING_FILE = "tuning.yaml"

Changed = dict[str, Any]
"""Constants of one kernel that differ from their defaults."""

Row = Mapping[str, Any]
"""One time: ``section``, ``kernel`` (that was timed), ``graph``, ``width``, ``changed``, ``median_ms``, ``correct``."""


def row_of(measurement: Mapping[str, Any]) -> Row:
    """The row of a measurement of op=sweep, as a record has it."""
    about = {**measurement["case"], "kernel": measurement["method"], "median_ms": measurement["median_ms"]}
    return about | {key: measurement["details"][key] for key in ("section", "changed", "correct")}


VALUES: dict[str, dict[str, tuple[Any, ...]]] = {
    "csr": {},
    "panels": {"planes_stages": (3, 4, 6)},
    "dense": {
        "gradient_stages": (2, 4, 5),
        "gradient_steps": (8, 16),  # more would add too many numbers one after the other
        "gradient_shared_bytes": (),  # the stages are what it bounds
    },
}

GAIN = 0.98
"""What a time must fall to, over that of the defaults, for a constant to be changed: less is noise."""


def defaults(section: str) -> dict[str, Any]:
    """The constants of a kernel by name."""
    return asdict(getattr(Tuning(), section).general)


def tries(section: str, name: str) -> list[Any]:
    """Other values than the default of the constant ``name``."""
    default = defaults(section)[name]
    if name in VALUES[section]:
        return [value for value in VALUES[section][name] if value != default]
    if isinstance(default, bool):
        return [not default]
    return [value for value in (default // 2, default * 2) if value not in (0, default)]


def single_changes(section: str) -> list[Changed]:
    """Each constant at each of its values, the others at their defaults."""
    return [{name: value} for name in defaults(section) for value in tries(section, name)]


def descent(rows: Sequence[Row]) -> list[Changed]:
    """What to try after every single change was: the gains of the constants, added one after the other, the largest
    first; each combination once.

    Args:
        rows: of one kernel and width on one graph.
    """
    right = sorted(filter(_counts, rows), key=lambda row: row["median_ms"])
    base, together = _base_ms(right) or 0.0, Changed()
    for row in right:
        if row["median_ms"] <= GAIN * base:
            together = {**together, **row["changed"], **together}  # the value of the fastest row holds
    return [dict(list(together.items())[:count]) for count in range(2, len(together) + 1)]


def winners(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """The constants that were fastest, as the tree of a tuning file; what does not gain stays out of it.

    Where a width was swept on several graphs, the first counts. A width that keeps its defaults is there too, beside
    one that does not: the constants of a wider one would hold for it otherwise.
    """
    cases: dict[tuple[str, str, str, int], list[Row]] = defaultdict(list)
    for row in filter(_counts, rows):
        cases[row["section"], row["kernel"], row["graph"], row["width"]].append(row)
    tree: dict[str, dict[int, Changed]] = defaultdict(dict)
    for (section, _, _, width), of_case in cases.items():
        if base := _base_ms(of_case):
            best = min(of_case, key=lambda row: row["median_ms"])
            tree[section].setdefault(width, best["changed"] if best["median_ms"] <= GAIN * base else {})
    return {key: {"widths": dict(sorted(widths.items()))} for key, widths in tree.items() if any(widths.values())}


def tuning_text(rows: Iterable[Row], gpu_name: str | None) -> str:
    """The winners as a file that ``tuning.read_tuning`` reads; ``gpu_name`` None: there was no GPU."""
    lines = ["# No GPU has measured anything: the defaults hold."]
    if gpu_name is not None:
        lines = [f"# Constants of the GPU kernels on {gpu_name}, found by ./launch/gpu_bench --part products."]
        lines += [f"# As conf/tuning/{file_name(gpu_name)} they hold on every such GPU."]
    if tree := winners(rows):
        lines.append(yaml.safe_dump(tree, default_flow_style=None, sort_keys=False, width=1000).rstrip())
    return "\n".join(lines) + "\n"


def _base_ms(rows: Iterable[Row]) -> float | None:
    """The time of the defaults."""
    return next((row["median_ms"] for row in rows if not row["changed"]), None)


def _counts(row: Row) -> bool:
    """Whether a row has a time, which one of an interpreter has not, and a right result."""
    return row["correct"] and isinstance(row["median_ms"], (int, float)) and row["median_ms"] > 0
