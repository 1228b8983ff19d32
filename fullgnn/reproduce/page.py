"""The files of a target: ``<target>.md``, ``.csv`` and ``.png``, and ``record.json``, each written in one step."""

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.plot import draw
from fullgnn.reproduce.result import Cell, Result, number
from fullgnn.storage.atomic import replacing, write_text
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.machine import cache_bytes, git_commit, hardware, versions
from fullgnn.telemetry.table import format_table, num_bytes, percent

_CSV = ("column", "ours", "unit", "origin", "ratio", "paper", "paper_ratio")

_GRAPHS = {
    "graph": "{graph}",
    "source": "{source}",
    "nodes": "{num_nodes:,}",
    "nnz": "{nnz:,}",
    "mean degree": "{mean_degree:.1f}",
    "density": "{density:.2e}",
    "real density": "{real_density:.2e}",
    "ratio": "{density_ratio:.2f}",
    "H": "{h_bytes}",
    "cache here": "{cache_bytes}",
    "modelled cache": "{modelled_cache_rows:,} rows = {modelled_cache_share} of H",
}
"""The table of the graphs: head and cell, from ``Case.facts``. Density and cache decide whether a shrunk graph behaves
as the real one."""


def make_record(target: str, command: str, cfg: TargetConfig, result: Result, seconds: float) -> dict[str, Any]:
    """Everything that is known of a finished target."""
    device = cfg.torch_device
    return {
        "target": target,
        "title": cfg.title,
        "command": command,
        "config": asdict(cfg),
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
    """All files of a target; ``record.json`` last, so that a folder that has it is complete."""
    target = record["target"]
    if result.panels:
        with replacing(folder / f"{target}.png") as path:
            draw(result.panels, record["title"], path)
    write_text(folder / f"{target}.csv", csv_text(result))
    write_text(folder / f"{target}.md", page_text(record, result))
    write_text(folder / "record.json", strict_json(record, indent=2) + "\n")


def page_text(record: dict[str, Any], result: Result) -> str:
    """Markdown: the table, its notes, the graphs, the machine, the figure."""
    machine = record["hardware"]
    where = f"{machine['gpu'] or machine['cpu']}, {record['threads']} CPU threads"
    cache = "cache of unknown size" if machine["cache_bytes"] is None else f"{num_bytes(machine['cache_bytes'])} cache"
    lines = [f"# {record['title']}", "", f"`{record['command']}`", "", table_text(result), ""]
    lines += [_legend(result), "", *(f"- {note}" for note in result.notes)]
    lines += ["", "## Graphs", "", _graphs_text(record["graphs"]), ""]
    lines += ["## Where", "", f"{where}, {cache}, torch {record['versions']['torch']}, commit {record['git_commit']},"]
    lines += [f"{record['seconds']:.0f} s, {record['finished']}."]
    if result.panels:
        lines += ["", f"![{record['title']}]({record['target']}.png)"]
    return "\n".join(lines) + "\n"


def table_text(result: Result) -> str:
    """The rows as Markdown; the paper's value in a column of its own beside ours, where a column has any.

    Unit and origin of our numbers are said as rarely as possible: in the head of a column whose numbers share them;
    the origin in a column ``ours is`` where each row has one of its own; otherwise in the cells.
    """
    columns = {name: [row.cells.get(name, Cell(None)) for row in result.rows] for name in result.columns}
    of_rows = [_origins(row.cells.values()) for row in result.rows]
    by_row = max(map(len, of_rows)) <= 1 < max(len(_origins(cells)) for cells in columns.values())
    table = {label: [_text(row.labels[k]) for row in result.rows] for k, label in enumerate(result.labels)}
    if by_row:
        table["ours is"] = [_text(_only(origins) or None) for origins in of_rows]
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
    """One line a cell: labels, column, ours, unit, origin, ratio, paper, its ratio. Numbers are not rounded."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*result.labels, *_CSV])
    for row in result.rows:
        for column, cell in row.cells.items():
            fields = {"column": column, **asdict(cell)}
            writer.writerow([*row.labels, *(fields[key] for key in _CSV)])
    return out.getvalue()


def _legend(result: Result) -> str:
    """How to read the table."""
    cells = [cell for row in result.rows for cell in row.cells.values()]
    text = f"Ours is {' or '.join(sorted(_origins(cells)))}, as the table says where."
    if any(cell.ratio or cell.paper_ratio for cell in cells):
        text += " In parentheses: the speed-up within the row, of ours over ours and of the paper's over the paper's."
    return text


def _graphs_text(graphs: list[dict[str, Any]]) -> str:
    if not graphs:
        return "No graph is involved, so neither density nor cache plays a part."
    rows = []
    for facts in graphs:
        shrunk = "" if facts["source"] == "real" else ", scale {scale:g}, degree_scale {degree_scale:g}".format(**facts)
        texts = {
            "source": facts["source"] + shrunk,
            "h_bytes": num_bytes(facts["h_bytes"]),
            "cache_bytes": "unknown" if facts["cache_bytes"] is None else num_bytes(facts["cache_bytes"]),
            "modelled_cache_share": percent(facts["modelled_cache_share"]),
        }
        rows.append([cell.format(**facts | texts) for cell in _GRAPHS.values()])
    return format_table(list(_GRAPHS), rows)


def _with_ratio(value: object, ratio: float | None) -> str:
    return _text(value) if ratio is None else f"{'' if value is None else _text(value)} ({ratio:.2f} x)".strip()


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else re.sub(r"\s*\|\s*", " / ", str(value))


def _only(values: set[str]) -> str:
    """The one value that there is; empty where there are several, or none."""
    return next(iter(values)) if len(values) == 1 else ""


def _origins(cells: Iterable[Cell]) -> set[str]:
    """The origins of all numbers among ``cells``."""
    return {cell.origin for cell in cells if number(cell.ours) is not None}
