"""Which values of the constants of ``kernels/support/tuning.py`` are tried, and what is written of what was found.

The table below names values for the fields that deserve better ones than half and twice the default. It need not know
every field: one that it does not name is tried by its type, so a new constant is swept as soon as there is one.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import fields
from math import exp, log
from statistics import mean
from typing import Any

from fullgnn.kernels.support.tuning import Tuning, file_name

Changed = dict[str, Any]
"""Constants of one kernel that differ from their defaults."""

Case = tuple[str, str, int]
"""Kernel, graph and width whose times are compared with each other."""

VALUES: dict[str, dict[str, tuple[Any, ...]]] = {
    "csr": {"bins": ((2, 4, 8, 16, 32, 64), (8, 32, 128), (4, 8, 16, 32, 64, 128))},
    "persistent": {"columns_a_pass": (32, 64), "num_stages": (2, 3), "programs_a_processor": (3, 4, 6, 8)},
    "panels": {"num_stages": (2, 4, 5), "planes_stages": (3, 4, 6), "chain_groups": (2, 8)},
    "dense": {
        "product_stages": (2, 4),
        "gradient_stages": (2, 4, 5),
        "gradient_steps": (8, 16),  # more would add too many numbers one after the other
        "gradient_shared_bytes": (),  # the stages are what it bounds
    },
}

OF_PREPARATION: dict[str, tuple[str, ...]] = {
    "csr": ("bins", "heavy", "part"),
    "persistent": ("short_edges", "short_lanes", "heavy"),
    "panels": ("split_groups", "part_groups"),
}
"""Constants by which a block is prepared, before any width is known: one value of each holds for all widths."""

GAIN = 0.98
"""What a time must fall to, over that of the defaults, for a constant to be changed: less is noise."""


def sections() -> list[str]:
    """The kernels that have constants."""
    return [one.name for one in fields(Tuning)]


def defaults(section: str) -> dict[str, Any]:
    """The constants of a kernel by name."""
    general = getattr(Tuning(), section).general
    return {one.name: getattr(general, one.name) for one in fields(general)}


def tries(section: str, name: str) -> list[Any]:
    """Other values than the default of the constant ``name``."""
    default = defaults(section)[name]
    named = VALUES.get(section, {}).get(name)
    if named is not None:
        return [value for value in named if value != default]
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, int):
        return [value for value in (default // 2, default * 2) if value not in (0, default)]
    if isinstance(default, tuple) and default and all(type(value) is int for value in default):
        return [tuple(max(1, value // 2) for value in default), tuple(value * 2 for value in default)]
    return []


def single_changes(section: str, names: Iterable[str] | None = None) -> list[Changed]:
    """Each constant, or each of ``names``, at each of its values, the others at their defaults."""
    chosen = defaults(section) if names is None else names
    return [{name: value} for name in chosen for value in tries(section, name)]


def descent(section: str, rows: Iterable[Mapping[str, Any]]) -> list[Changed]:
    """What to try after every single change was: the gains of the constants that are not of the preparation, added one
    after the other, the largest first; each combination once.

    Args:
        rows: of the sweep, of one kernel and width on one graph, see ``winners``.
    """
    base, best = None, dict[str, tuple[float, Any]]()
    for row in rows:
        changed, ms = row["changed"], row.get("median_ms")
        if ms is None or not row["correct"]:
            continue
        if not changed:
            base = ms
        for name, value in changed.items():
            if len(changed) == 1 and name not in OF_PREPARATION.get(section, ()):
                best[name] = min(best.get(name, (ms, value)), (ms, value), key=lambda pair: pair[0])
    if base is None:
        return []
    gained = sorted((ms, name) for name, (ms, _) in best.items() if ms <= GAIN * base)
    names = [name for _, name in gained]
    return [{name: best[name][1] for name in names[:count]} for count in range(2, len(names) + 1)]


def winners(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The constants that were fastest, as the tree of a tuning file; what does not gain stays out of it.

    Args:
        rows: one for each time that was taken: ``section``, ``kernel`` (that was timed), ``graph``, ``width``,
            ``changed`` (the constants that differ from the defaults), ``median_ms`` and ``correct``. Of a width that
            was swept on several graphs, the first counts.
    """
    sections: dict[str, dict[Case, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["correct"] and _is_time(row.get("median_ms")):
            sections[row["section"]][row["kernel"], row["graph"], row["width"]].append(row)
    tree = {}
    for section, cases in sections.items():
        found = {**_of_every_width(section, cases), **_by_width(section, cases)}
        if found:
            tree[section] = found
    return tree


def tuning_text(rows: Iterable[Mapping[str, Any]], gpu_name: str | None) -> str:
    """The winners as a file that ``tuning.read_tuning`` reads; ``gpu_name`` None: there was no GPU."""
    lines = ["# No GPU has measured anything: the defaults hold."]
    if gpu_name is not None:
        lines = [
            f"# Constants of the GPU kernels on {gpu_name}, found by ./launch/gpu_bench --part products.",
            f"# As conf/tuning/{file_name(gpu_name)} they hold on every such GPU.",
        ]
    for section, values in winners(rows).items():
        lines.append(f"{section}:")
        for name, value in values.items():
            if name != "widths":
                lines.append(f"  {name}: {_plain(value)}")
        if "widths" in values:
            lines.append("  widths:")
            for bound, own in sorted(values["widths"].items()):
                lines.append(f"    {bound}: {{{', '.join(f'{name}: {_plain(value)}' for name, value in own.items())}}}")
    return "\n".join(lines) + "\n"


def _by_width(section: str, cases: Mapping[Case, list[Mapping[str, Any]]]) -> dict[str, Any]:
    """The fastest combination at each width, where it gains; kernels that share a section have constants of their own
    in it."""
    widths: dict[int, Changed] = {}
    shared, seen = OF_PREPARATION.get(section, ()), set[tuple[str, int]]()
    for (kernel, _, width), rows in cases.items():
        base = _base_ms(rows)
        own = [row for row in rows if not any(name in shared for name in row["changed"])]
        if base is None or (kernel, width) in seen:
            continue
        seen.add((kernel, width))
        best = min(own, key=lambda row: row["median_ms"])
        widths.setdefault(width, {}).update(best["changed"] if best["median_ms"] <= GAIN * base else {})
    # A width that keeps its defaults is written too: the constants of a wider one would hold for it otherwise.
    return {"widths": widths} if any(widths.values()) else {}


def _of_every_width(section: str, cases: Mapping[Case, list[Mapping[str, Any]]]) -> Changed:
    """For each constant of the preparation, the value that gains most in the geometric mean of the cases it was tried
    in; a value that costs more than it gains there is not taken."""
    ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    values: dict[str, Any] = {}
    for rows in cases.values():
        base = _base_ms(rows)
        for row in rows if base else ():
            if len(row["changed"]) == 1:
                ((name, value),) = row["changed"].items()
                if name in OF_PREPARATION.get(section, ()):
                    values[_plain(value)] = value
                    ratios[name][_plain(value)].append(row["median_ms"] / base)
    found: Changed = {}
    for name, by_value in ratios.items():
        most = max(len(ratio) for ratio in by_value.values())  # a value that was not tried everywhere cannot win
        means = {value: exp(mean(map(log, ratio))) for value, ratio in by_value.items() if len(ratio) == most}
        best = min(means, key=lambda value: means[value])
        if means[best] <= GAIN:
            found[name] = values[best]
    return found


def _base_ms(rows: Iterable[Mapping[str, Any]]) -> float | None:
    return next((row["median_ms"] for row in rows if not row["changed"]), None)


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and value > 0


def _plain(value: Any) -> str:
    """A number, truth or list as YAML has it."""
    return json.dumps(list(value) if isinstance(value, (list, tuple)) else value)
