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
    own = (cell, table, densities, products, named, over_naive, over_defaults, beside_measured, troubles)
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


def _ratio(one: Any, other: Any, digits: int = 2) -> str | None:
    return f"{one / other:.{digits}f}" if _numbers(one, other) else None


def densities(graph: Entry) -> list[Entry]:
    """How the entries of a graph are distributed over tiles of each density, as ordered and shuffled."""
    labels = {"tile_density": "as ordered", "tile_density_shuffled": "shuffled"}
    return [
        {"order": label} | {f"{percent} %": f"{100 * share:.1f} %" for percent, share in zip(DENSITY_BINS, graph[key])}
        for key, label in labels.items()
        if key in graph
    ]


def products(graph: Entry) -> list[dict[str, Any]]:
    """By width, in the order of the record; speed-ups are over torch's CSR on the same graph in the same order."""
    spmm, shuffled = graph.get("spmm", []), graph.get("spmm_shuffled", [])
    base = {one["width"]: one["median_ms"] for one in spmm if one["kernel"] == "torch"}
    rows = [{**one, "label": one["kernel"]} for one in spmm]
    widths = {one["width"] for one in rows}
    rows += [{**one, "label": f"{one['kernel']}, shuffled graph"} for one in shuffled if one["width"] in widths]
    for row in rows:
        row["speed_up"] = _ratio(base.get(row["width"]), row["median_ms"])
    return sorted(rows, key=itemgetter("width"))


def named(rows: Mapping[str, Entry], field: str) -> list[Entry]:
    """The rows of a mapping, each with its name as a ``field``."""
    return [{field: name, **row} for name, row in (rows or {}).items()]


def over_naive(epochs: Iterable[Entry]) -> list[Entry]:
    """The epochs, with the speed-up over the peer ``naive`` at the same dropout."""
    epochs = list(epochs)
    naive = {one["dropout"]: one["median_ms"] for one in epochs if one["preset"] == "naive"}
    return [{**one, "speed_up": _ratio(naive.get(one["dropout"]), one["median_ms"])} for one in epochs]


def over_defaults(sweep: Iterable[Entry]) -> list[Entry]:
    """The rows of the sweep, with each time over that of the defaults in its case."""
    rows = list(sweep)
    case = itemgetter("section", "kernel", "graph", "width")
    base = {case(row): row["median_ms"] for row in reversed(rows) if not row["changed"]}
    return [{**row, "over_defaults": _ratio(row["median_ms"], base.get(case(row)), digits=3)} for row in rows]


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
