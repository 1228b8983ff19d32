"""The files of a target: ``<target>.md``, ``.csv`` and ``.png``, and ``record.json``, each written in one step.

Of the panels, ours are filled, and the paper's are outlined in the same colour."""

import csv
import importlib.util
import io
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fullgnn.bench.papers.config import PROSE, Keys
from fullgnn.bench.papers.result import Bars, Cell, Curves, Result, number
from fullgnn.errors import UnsupportedError
from fullgnn.storage.folder import replacing, write_text
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.machine import cache_bytes, git_commit, hardware, versions
from fullgnn.telemetry.screen import format_table, num_bytes, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CSV = ("column", "ours", "unit", "origin", "ratio", "paper", "paper_ratio")


def make_record(target: str, command: str, cfg: Keys, result: Result, seconds: float) -> dict[str, Any]:
    """Collect everything that is known about a finished target."""
    device = cfg.torch_device
    return {
        "target": target,
        "title": cfg.title,
        "command": command,
        "config": {key: value for key, value in asdict(cfg).items() if key not in PROSE},
        "columns": result.columns,
        "rows": [asdict(row) for row in result.rows],
        "panels": [asdict(panel) for panel in result.panels],
        "graphs": [case.facts(device) for case in result.cases],
        "notes": result.notes,
        "details": result.details,
        "device": device.type,
        "threads": torch.get_num_threads(),
        "hardware": hardware(device) | {"cache_bytes": cache_bytes(device)},
        "versions": versions("matplotlib"),
        "git_commit": git_commit(),
        "seconds": seconds,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write(folder: Path, record: dict[str, Any], result: Result) -> None:
    """Write all files of a target; ``record.json`` comes last, so that a folder that has it is complete."""
    target = record["target"]
    if result.panels:
        with replacing(folder / f"{target}.png") as path:
            draw(result.panels, record["title"], path)
    write_text(folder / f"{target}.csv", csv_text(result))
    write_text(folder / f"{target}.md", page_text(record, result))
    write_text(folder / "record.json", strict_json(record, indent=2) + "\n")


def page_text(record: dict[str, Any], result: Result) -> str:
    """Fill the template ``page.md.j2`` with ``record``."""
    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    loader, extensions = FileSystemLoader(Path(__file__).parent), ["jinja2.ext.do"]
    pages = Environment(loader=loader, extensions=extensions, undefined=StrictUndefined, **blocks)
    pages.filters |= {"num_bytes": num_bytes, "percent": percent}
    cells = [cell for row in result.rows for cell in row.cells.values()]
    return pages.get_template("page.md.j2").render(
        record,
        table=table_text(result),
        origins=sorted(_origins(cells)),
        has_ratios=any(cell.ratio or cell.paper_ratio for cell in cells),
        format_table=format_table,
    )


def table_text(result: Result) -> str:
    """Format the rows as Markdown; the paper's values have a column of their own beside ours, where there are any.

    Unit and origin of our numbers are said as rarely as possible: in the head of a column whose numbers share them;
    the origin in a column ``ours is`` where each row has one of its own; otherwise in the cells.
    """
    columns = {name: [row.cells.get(name, Cell(None)) for row in result.rows] for name in result.columns}
    row_origins = [_origins(row.cells.values()) for row in result.rows]
    by_row = max(map(len, row_origins)) <= 1 < max(len(_origins(cells)) for cells in columns.values())
    table = {label: [_text(row.labels[k]) for row in result.rows] for k, label in enumerate(result.labels)}
    if by_row:
        table["ours is"] = [_text(_only(origins) or None) for origins in row_origins]
    for name, cells in columns.items():
        unit = _only({cell.unit for cell in cells if number(cell.ours) is not None})
        origin = "" if by_row else _only(_origins(cells))
        texts = []
        for cell in cells:
            own = ["" if unit else cell.unit, "" if by_row or origin else f"[{cell.origin}]"]
            own = own if number(cell.ours) is not None else []
            texts.append(" ".join(filter(None, [_with_ratio(cell.ours, cell.ratio), *own])))
        table[", ".join(filter(None, [name, unit, origin]))] = texts
        if any(cell.paper is not None or cell.paper_ratio is not None for cell in cells):
            table[f"{name}, paper"] = [_with_ratio(cell.paper, cell.paper_ratio) for cell in cells]
    return format_table(list(table), list(zip(*table.values())))


def csv_text(result: Result) -> str:
    """Write one line a cell: labels, column, ours, unit, origin, ratio, paper, its ratio. Numbers are not rounded."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [*result.labels, *_CSV], lineterminator="\n")
    writer.writeheader()
    for row in result.rows:
        labels = dict(zip(result.labels, row.labels))
        writer.writerows({**labels, "column": column, **asdict(cell)} for column, cell in row.cells.items())
    return out.getvalue()


def _with_ratio(value: object, ratio: float | None) -> str:
    return _text(value) if ratio is None else f"{'' if value is None else _text(value)} ({ratio:.2f} x)".strip()


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else re.sub(r"\s*\|\s*", " / ", str(value))


def _only(values: set[str]) -> str:
    """Return the one value that there is; an empty text where there are several, or none."""
    return next(iter(values)) if len(values) == 1 else ""


def _origins(cells: Iterable[Cell]) -> set[str]:
    """Collect the origins of all numbers among ``cells``."""
    return {cell.origin for cell in cells if number(cell.ours) is not None}


def check_installed() -> None:
    """Raise ``UnsupportedError`` if matplotlib is missing, before a target measures what could not be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UnsupportedError("figures need matplotlib, which is not installed: pip install '.[report]'")


def draw(panels: Sequence[Bars | Curves], title: str, path: Path) -> None:
    """Write ``panels`` to the PNG ``path``, two in a row."""
    from matplotlib import style
    from matplotlib.figure import Figure

    across = min(2, len(panels))
    down = -(-len(panels) // across)
    with style.context(Path(__file__).with_name("plot.mplstyle")):
        figure = Figure((5.8 * across, 3.2 * down + 0.4))  # inches
        figure.suptitle(title)
        grid = figure.subplots(down, across, squeeze=False).flat
        for axes, panel in itertools.zip_longest(grid, panels):
            if panel is None:
                axes.set_axis_off()
                continue
            axes.set(title=panel.title, ylabel=panel.ylabel)
            _bars(axes, panel) if isinstance(panel, Bars) else _curves(axes, panel)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))  # beside the panel
        figure.savefig(path)


def _bars(axes: "Axes", panel: Bars) -> None:
    """Draw groups of bars; each series has one bar of ours and one of the paper's, if it has any values."""
    slots: list[tuple[str, Sequence[float | None], Sequence[float], dict[str, Any]]] = []
    for k, series in enumerate(panel.series):
        outlined = {"facecolor": "none", "edgecolor": f"C{k}", "hatch": "////", "linewidth": 0.8}
        slots.append((series.name, series.values, series.error, {"color": f"C{k}"}))
        slots.append((f"{series.name}, paper", series.paper, [], outlined))
    slots = [slot for slot in slots if any(value is not None for value in slot[1])]
    width = 0.8 / max(1, len(slots))  # a group takes so much of the distance of two groups
    for place, (name, values, errors, style) in enumerate(slots):
        drawn = {group: value for group, value in enumerate(values) if value is not None}
        x = [group + (place - (len(slots) - 1) / 2) * width for group in drawn]
        spread = [errors[group] for group in drawn] if errors else None
        axes.bar(x, list(drawn.values()), 0.92 * width, yerr=spread, capsize=2, label=name, **style)
    axes.set_xticks(range(len(panel.groups)), panel.groups)
    if sum(map(len, panel.groups)) > 40:
        axes.tick_params(axis="x", rotation=30)
    axes.grid(axis="y")


def _curves(axes: "Axes", panel: Curves) -> None:
    for curve in panel.curves:
        style, errors = ("--" if curve.dashed else "-") + "o" * bool(curve.error), curve.error or None
        axes.errorbar(curve.x, curve.y, errors, fmt=style, markersize=3, capsize=2, label=curve.name)
    if panel.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(panel.xlabel)
    axes.grid()
