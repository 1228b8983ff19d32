"""Which values of the constants of ``kernels/support/tuning.py`` are tried, and which of them win.

``VALUES`` names values for the fields that deserve better ones than half and twice the default. A field that is not
named there is tried by its type, so that a new constant is swept as soon as it exists.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import geometric_mean
from typing import Any

import yaml

from fullgnn.kernels.support.tuning import Tuning, file_name

TUNING_FILE = "tuning.yaml"

Changed = dict[str, Any]
"""Constants of one kernel that differ from their defaults."""

Row = Mapping[str, Any]
"""One time: ``section``, ``kernel`` (that was timed), ``graph``, ``width``, ``changed``, ``median_ms``, ``correct``."""

VALUES: dict[str, dict[str, tuple[Any, ...]]] = {
    "csr": {"bins": ((2, 4, 8, 16, 32, 64), (8, 32, 128), (4, 8, 16, 32, 64, 128))},
    "panels": {"planes_stages": (3, 4, 6), "chain_groups": (2, 8)},
    "dense": {
        "product_stages": (2, 4),
        "gradient_stages": (2, 4, 5),
        "gradient_steps": (8, 16),  # more would add too many numbers one after the other
        "gradient_shared_bytes": (),  # the stages are what it bounds
    },
}

OF_PREPARATION: dict[str, tuple[str, ...]] = {
    "csr": ("bins", "heavy", "part"),
    "panels": ("split_groups", "part_groups"),
    "dense": (),
}
"""Constants by which a block is prepared, before any width is known: one value of each holds for all widths."""

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


def descent(section: str, rows: Sequence[Row]) -> list[Changed]:
    """What to try after every single change was: the gains of the constants that are not of the preparation, added one
    after the other, the largest first; each combination once.

    Args:
        rows: of one kernel and width on one graph.
    """
    right = sorted(filter(_counts, rows), key=lambda row: row["median_ms"])
    base = _base_ms(right)
    together: Changed = {}
    for row in right:
        if base is not None and row["median_ms"] <= GAIN * base:
            for name, value in row["changed"].items():
                if name not in OF_PREPARATION[section]:
                    together.setdefault(name, value)
    return [dict(list(together.items())[:count]) for count in range(2, len(together) + 1)]


def winners(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """The constants that were fastest, as the tree of a tuning file; what does not gain stays out of it.

    Where a width was swept on several graphs, the first counts.
    """
    sections: dict[str, dict[tuple[str, str, int], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in filter(_counts, rows):
        sections[row["section"]][row["kernel"], row["graph"], row["width"]].append(row)
    tree = {section: _of_every_width(section, cases) | _by_width(section, cases) for section, cases in sections.items()}
    return {section: found for section, found in tree.items() if found}


def tuning_text(rows: Iterable[Row], gpu_name: str | None) -> str:
    """The winners as a file that ``tuning.read_tuning`` reads; ``gpu_name`` None: there was no GPU."""
    if gpu_name is None:
        lines = ["# No GPU has measured anything: the defaults hold."]
    else:
        lines = [
            f"# Constants of the GPU kernels on {gpu_name}, found by ./launch/gpu_bench --part products.",
            f"# As conf/tuning/{file_name(gpu_name)} they hold on every such GPU.",
        ]
    if tree := winners(rows):
        lines.append(yaml.safe_dump(tree, default_flow_style=None, sort_keys=False, width=1000).rstrip())
    return "\n".join(lines) + "\n"


def _by_width(section: str, cases: Mapping[tuple[str, str, int], list[Row]]) -> dict[str, Any]:
    """The fastest combination at each width, where it gains; kernels that share a section have constants of their own
    in it."""
    widths: dict[int, Changed] = {}
    seen: set[tuple[str, int]] = set()
    for (kernel, _, width), rows in cases.items():
        base = _base_ms(rows)
        if base is None or (kernel, width) in seen:
            continue
        seen.add((kernel, width))
        own = [row for row in rows if row["changed"].keys().isdisjoint(OF_PREPARATION[section])]
        best = min(own, key=lambda row: row["median_ms"])
        widths.setdefault(width, {}).update(best["changed"] if best["median_ms"] <= GAIN * base else {})
    # A width that keeps its defaults is written too: the constants of a wider one would hold for it otherwise.
    return {"widths": dict(sorted(widths.items()))} if any(widths.values()) else {}


def _of_every_width(section: str, cases: Mapping[tuple[str, str, int], list[Row]]) -> Changed:
    """For each constant of the preparation, the value that gains most in the geometric mean of the cases it was tried
    in; a value that was not tried everywhere cannot win."""
    ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))  # by name and value as JSON
    for rows in cases.values():
        base = _base_ms(rows)
        for row in rows:
            for name, value in row["changed"].items():
                if base and len(row["changed"]) == 1 and name in OF_PREPARATION[section]:
                    ratios[name][json.dumps(value)].append(row["median_ms"] / base)
    found: Changed = {}
    for name, by_value in ratios.items():
        most = max(map(len, by_value.values()))
        means = {value: geometric_mean(ratio) for value, ratio in by_value.items() if len(ratio) == most}
        best = min(means, key=lambda value: means[value])
        if means[best] <= GAIN:
            found[name] = json.loads(best)
    return found


def _base_ms(rows: Iterable[Row]) -> float | None:
    """The time of the defaults."""
    return next((row["median_ms"] for row in rows if not row["changed"]), None)


def _counts(row: Row) -> bool:
    """Whether a row has a time, which one of an interpreter has not, and a right result."""
    return row["correct"] and isinstance(row["median_ms"], (int, float)) and row["median_ms"] > 0
