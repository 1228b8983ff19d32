"""A target's folder: ``<target>.md``, ``.csv`` and ``.png``, and ``record.json``, each written whole."""

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fullgnn.errors import ConfigError
from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import cache_capacity
from fullgnn.reproduce.plot import draw
from fullgnn.reproduce.result import Cell, Result
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.machine import git_commit, hardware, versions
from fullgnn.telemetry.table import format_table, num_bytes

_CSV = ("column", "ours", "unit", "origin", "ratio", "paper", "paper_ratio")


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
        "hardware": hardware(device) | {"cache_bytes": cache_capacity(device)},
        "versions": versions("matplotlib"),
        "git_commit": git_commit(),
        "seconds": seconds,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def check_folder(path: Path) -> None:
    """Make the folder now, rather than fail at the end."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out={path} cannot be made ({error.strerror}): choose another folder") from error


def write(folder: Path, record: dict[str, Any], result: Result) -> None:
    """All files of a target; ``record.json`` last, so that a folder with one is complete."""
    target = record["target"]
    if result.panels:
        write_whole(folder / f"{target}.png", lambda path: draw(result.panels, record["title"], path))
    write_text(folder / f"{target}.csv", csv_text(result))
    write_text(folder / f"{target}.md", page_text(record, result))
    write_text(folder / "record.json", strict_json(record, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """A file that appears at once."""
    write_whole(path, lambda temporary: temporary.write_text(text))


def write_whole(path: Path, make: Callable[[Path], object]) -> None:
    """The file that ``make`` writes to the path that it is given, put in place at once."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        make(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def page_text(record: dict[str, Any], result: Result) -> str:
    """Markdown: the table, what it was made from and where, the figure."""
    machine = record["hardware"]
    where = f"{machine['gpu'] or machine['cpu']}, {record['threads']} CPU threads"
    cache = "cache of unknown size" if machine["cache_bytes"] is None else f"{num_bytes(machine['cache_bytes'])} cache"
    lines = [f"# {record['title']}", "", f"`{record['command']}`", "", table_text(result), ""]
    lines += [legend(result), ""]
    lines += [f"- {note}" for note in result.notes]
    lines += ["", "## Graphs", "", graphs_text(record["graphs"]), ""]
    lines += ["## Where", "", f"{where}, {cache}, torch {record['versions']['torch']}, commit {record['git_commit']},"]
    lines += [f"{record['seconds']:.0f} s, {record['finished']}."]
    if result.panels:
        lines += ["", f"![{record['title']}]({record['target']}.png)"]
    return "\n".join(lines) + "\n"


def table_text(result: Result) -> str:
    """The rows as Markdown; the paper's value in a column of its own beside ours, where a column has any."""
    header, body = list(result.labels), [list(map(_text, row.labels)) for row in result.rows]
    of_columns = [[row.cells.get(column, Cell(None)) for row in result.rows] for column in result.columns]
    of_rows = [_origins(row.cells.values()) for row in result.rows]
    by_row = max(map(len, of_rows)) <= 1 < max(len(_origins(cells)) for cells in of_columns)
    if by_row:
        header.append("ours is")
        body = [[*line, _text(_only(origins) or None)] for line, origins in zip(body, of_rows)]
    for column, cells in zip(result.columns, of_columns):
        unit = _only({cell.unit for cell in cells if _is_number(cell.ours)})
        origin = "" if by_row else _only(_origins(cells))
        header.append(", ".join(filter(None, [column, unit, origin])))
        for line, cell in zip(body, cells):
            own = [cell.unit] if cell.unit != unit and _is_number(cell.ours) else []
            own += [] if by_row or origin or not _is_number(cell.ours) else [f"[{cell.origin}]"]
            line.append(" ".join([_with_ratio(cell.ours, cell.ratio), *own]))
        if any(cell.paper is not None or cell.paper_ratio is not None for cell in cells):
            header.append(f"{column}, paper")
            for line, cell in zip(body, cells):
                line.append(_with_ratio(cell.paper, cell.paper_ratio))
    return format_table(header, body)


def csv_text(result: Result) -> str:
    """One line a cell: labels, column, ours, unit, origin, ratio, paper, its ratio. Numbers are not rounded."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*result.labels, *_CSV])
    for row in result.rows:
        for column, cell in row.cells.items():
            fields = asdict(cell)
            values = [column if key == "column" else fields[key] for key in _CSV]
            writer.writerow([*row.labels, *("" if value is None else value for value in values)])
    return out.getvalue()


def legend(result: Result) -> str:
    """How to read the table."""
    origins = sorted(_origins(cell for row in result.rows for cell in row.cells.values()))
    text = f"Ours is {' or '.join(origins)}, as the table says where."
    if any(cell.ratio or cell.paper_ratio for row in result.rows for cell in row.cells.values()):
        text += " In parentheses: the speed-up within the row, of ours over ours and of the paper's over the paper's."
    return text


def graphs_text(graphs: Sequence[dict[str, Any]]) -> str:
    """The graphs of a target, with what decides whether a shrunk one behaves as the real one: density and caches."""
    if not graphs:
        return "No graph is involved, so neither density nor cache plays a part."
    header = ["graph", "source", "nodes", "nnz", "mean degree", "density", "real density", "ratio"]
    header += ["H", "cache here", "modelled cache"]
    rows = []
    for one in graphs:
        shrunk = "" if one["source"] == "real" else f", scale {one['scale']:g}, degree_scale {one['degree_scale']:g}"
        cache = "unknown" if one["cache_bytes"] is None else num_bytes(one["cache_bytes"])
        modelled = f"{one['modelled_cache_rows']:,} rows = {100 * one['modelled_cache_share']:.2f} % of H"
        rows.append(
            [
                one["graph"],
                one["source"] + shrunk,
                f"{one['num_nodes']:,}",
                f"{one['nnz']:,}",
                f"{one['mean_degree']:.1f}",
                f"{one['density']:.2e}",
                f"{one['real_density']:.2e}",
                f"{one['density_ratio']:.2f}",
                num_bytes(one["h_bytes"]),
                cache,
                modelled,
            ]
        )
    return format_table(header, rows)


def _with_ratio(value: object, ratio: float | None) -> str:
    return _text(value) if ratio is None else f"{'' if value is None else _text(value)} ({ratio:.2f} x)".strip()


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else re.sub(r"\s*\|\s*", " / ", str(value))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _only(values: set[str]) -> str:
    """The one value that there is; empty where there are several, or none."""
    return next(iter(values)) if len(values) == 1 else ""


def _origins(cells: Iterable[Cell]) -> set[str]:
    """Of all numbers among ``cells``."""
    return {cell.origin for cell in cells if _is_number(cell.ours)}
