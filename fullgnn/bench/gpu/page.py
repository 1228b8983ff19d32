"""The record of a part as a page of Markdown: ``page.md.j2`` says what stands where, the functions here make rows."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment, FileSystemLoader, Undefined

from fullgnn.kernels.spmm.tiles import DENSITY_BINS
from fullgnn.telemetry.screen import format_table

Entry = Mapping[str, Any]
"""The fields of one entry of a list of the record."""


def make_page(tree: dict[str, Any]) -> str:
    """Markdown of whatever the record holds so far."""
    return _render(tree, title=True)


def make_headline(tree: dict[str, Any]) -> str:
    """What is printed at the end: the checks, and the first graph."""
    graphs = list(tree.get("graphs", {}).items())[:1]
    return _render({"checks": tree.get("checks", []), "graphs": dict(graphs)}, title=False).rstrip()


def _render(tree: dict[str, Any], title: bool) -> str:
    text = _environment().get_template("page.md.j2").render(**tree, title=title)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, undefined=ChainableUndefined, trim_blocks=True, lstrip_blocks=True)
    own = (cell, table, densities, products, named, ratio, beside, beside_measured, troubles)
    environment.filters |= {function.__name__: function for function in (*own, giga)}
    return environment


@cache
def _expression(text: str) -> Callable[..., Any]:
    """The value of an expression of Jinja for the fields of a row; None if a field is missing."""
    return _environment().compile_expression(" ".join(text.split()))


def cell(value: Any) -> str:
    """A value with three digits."""
    if isinstance(value, bool) or not isinstance(value, float):
        return "-" if value is None or isinstance(value, Undefined) else str(value)
    if value == 0 or 1e-2 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:.1e}"


def table(rows: Iterable[Entry], columns: Mapping[str, str] | None = None) -> str:
    """Format a Markdown table with one line for each row; return an empty string if there are no rows.

    Args:
        columns: the expression of each column, by its header; None: every field of the rows is a column.
    """
    shown: list[Entry] = list(rows)
    if columns:
        shown = [{header: _expression(text)(**row) for header, text in columns.items()} for row in shown]
    return format_table(list(shown[0]), [[cell(value) for value in row.values()] for row in shown]) if shown else ""


def giga(value: Any) -> Any:
    """A number over 1e9; words in the place of a number stay."""
    return value / 1e9 if _numbers(value) else value


def _numbers(*values: Any) -> bool:
    """Whether all of them are numbers, not words in their place."""
    return all(isinstance(value, (int, float)) for value in values)


def ratio(one: Any, other: Any, digits: int = 2) -> str | None:
    """One number over another; None if there are words in the place of one."""
    return f"{one / other:.{digits}f}" if _numbers(one, other) else None


def beside(rows: Iterable[Entry], field: str, value: Any, *case: str) -> list[Entry]:
    """The rows, each with the time ``base_ms`` of the first row that has the same ``case`` and ``value`` in ``field``.

    Args:
        case: fields that both rows share.
    """
    rows = list(rows)
    base = {tuple(row[key] for key in case): row["median_ms"] for row in reversed(rows) if row[field] == value}
    return [{**row, "base_ms": base.get(tuple(row[key] for key in case))} for row in rows]


def densities(graph: Entry) -> list[Entry]:
    """How the entries of a graph are distributed over tiles of each density, as ordered and shuffled."""
    labels = {"tile_density": "as ordered", "tile_density_shuffled": "shuffled"}
    return [
        {"order": label} | {f"{percent} %": f"{100 * share:.1f} %" for percent, share in zip(DENSITY_BINS, graph[key])}
        for key, label in labels.items()
        if key in graph
    ]


def products(graph: Entry) -> list[Entry]:
    """By width, in the order of the record; those on the shuffled graph at the widths of the others."""
    rows: list[Entry] = [{**one, "label": one["kernel"]} for one in graph.get("spmm", [])]
    widths = {one["width"] for one in rows}
    shuffled = [one for one in graph.get("spmm_shuffled", []) if one["width"] in widths]
    rows += [{**one, "label": f"{one['kernel']}, shuffled graph"} for one in shuffled]
    return sorted(rows, key=itemgetter("width"))


def named(rows: Mapping[str, Entry], field: str) -> list[Entry]:
    """The rows of a mapping, each with its name as a ``field``."""
    return [{field: name, **row} for name, row in (rows or {}).items()]


def beside_measured(plan: Mapping[str, list[Entry]], graphs: Mapping[str, Entry]) -> list[Entry]:
    """The planner's epochs, beside the one that was measured on one GPU."""
    rows: list[Entry] = []
    for name, options in (plan or {}).items():
        epochs = (graphs or {}).get(name, {}).get("epoch", [])
        measured = next((one["median_ms"] for one in epochs if one["preset"] == "full" and not one["dropout"]), None)
        for option in options:
            rows.append({"graph": name, **option, "measured": measured if option["world_size"] == 1 else None})
    return rows


def troubles(items: Iterable[Entry]) -> dict[str, list[str]]:
    """What has no result, by the reason."""
    causes = {
        "left out": "{job}: no time was left",
        "missing": "missing: {reason}",
        "failed": "{job}: failed: {reason}",
    }
    names: dict[str, dict[str, None]] = {}
    for one in items:
        if one["state"] in causes:
            cause = causes[one["state"]].format(job=one["job"], reason=one.get("reason", ""))
            names.setdefault(cause, {})[one.get("item", "all of it")] = None
    return {cause: list(found) for cause, found in names.items()}
