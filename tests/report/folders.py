"""Run folders that are written without training, and a parser of the report's page."""

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.reorder.structure import Structure
from fullgnn.report.__main__ import report

COMMAND = [sys.executable, "-m", "fullgnn.report"]
EPOCHS = 4
PREDICTED = {
    "hardware": "a profile",
    "epoch_time_ms": 10.0,
    "time_ms": {"spmm": 4.0, "comm": 3.0, "dense": 2.0, "other": 1.0},
    "comm_bytes_per_epoch": {"exchange": 1800.0, "broadcast": 7.0},
    "peak_tensor_bytes": 2_500_000,
}


def record(**changes: Any) -> dict[str, Any]:
    """A record of two ranks."""
    ranks = [
        {
            "time_ms": {"epoch": 10.5 + k, "spmm": 4.0 + k, "comm": 3.0, "dense": 2.25, "other": 1.25},
            "bytes_received": {"exchange": 1200.0 * (k + 1), "all_reduce": 80.0},
            "peak_memory_bytes": 500_000_000 + k,
            "peak_tensor_bytes": 1_000_000 * (k + 1),
            "nnz": 55 + k,
        }
        for k in range(2)
    ]
    told = {
        "dataset": "karate",
        "model": "gcn",
        "num_nodes": 6,
        "num_edges": 9,
        "nnz": 15,
        "scheme": "1d",
        "world_size": 2,
        "reorder": "rcm",
        "device": "cpu",
        "epochs": EPOCHS,
        "epoch_time_ms": {"median": 11.5, "p20": 11.0, "p80": 12.0},
        "spmm_time_ms": 5.0,
        "comm_time_ms": 3.0,
        "dense_time_ms": 2.25,
        "other_time_ms": 1.25,
        "comm_bytes_per_epoch": {"exchange": 1800.0, "all_reduce": 80.0},
        "peak_tensor_bytes": 2_000_000,
        "final_loss": 0.25,
        "test_accuracy": 0.75,
        "tile_density": {"0-1": 0.25, "1-3": 0.75},
        "ranks": ranks,
        "predicted": None,
        "hardware": {"cpu": "a CPU", "num_cores": 2, "gpu": None},
        "versions": {"torch": "2"},
        "git_commit": "abc",
    }
    return told | changes


def structure() -> Structure:
    before = np.array([[3, 1, 0], [1, 0, 0], [0, 0, 4]])
    after = np.array([[0, 2, 0], [2, 1, 0], [0, 0, 4]])
    return Structure(np.array([0, 2, 4, 6]), before, after, np.array([0, 2, 6]), np.array([[2, 2], [2, 9]]))


def write_run(
    folder: Path,
    told: dict[str, Any] | None = None,
    config: str = "seed: 0\nmodel: {name: gcn}\ndataset: {name: karate}\n",
    arrays: Structure | None = None,
    metric: str = "accuracy",
) -> Path:
    """A run folder. Without ``told`` it has no record.json, like that of an unfinished run.

    Args:
        metric: what the lines of epochs.jsonl have of each split.
    """
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config)
    lines: list[dict[str, Any]] = [
        {"epoch": k, "loss": 1 / k, "time_ms": {"epoch": 10.0}} for k in range(1, EPOCHS + 1)
    ]
    for line in lines[1::2]:
        line |= {f"train_{metric}": 0.5, f"val_{metric}": None, f"test_{metric}": line["epoch"] / 8}
    write_epochs(folder, lines)
    if arrays is not None:
        np.savez(folder / "structure.npz", **asdict(arrays))
    if told is not None:
        (folder / "record.json").write_text(json.dumps(told))
    return folder


def write_epochs(folder: Path, lines: Iterable[dict[str, Any]]) -> None:
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def sweep(folder: Path, statuses: list[str]) -> Path:
    """A folder of a sweep over seeds, whose jobs ended with these statuses."""
    folder.mkdir()
    lines = ["job,status,overrides,error"]
    for job, status in enumerate(statuses):
        lines.append(f"{job},{status},seed={job} optimizer.lr=1,{'out of memory' if status == 'failed' else ''}")
        if status == "ok":
            write_run(folder / str(job), record())
    (folder / "sweep.csv").write_text("\n".join(lines) + "\n")
    return folder


@dataclass
class Section:
    text: str = ""
    images: list[dict[str, str]] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)  # by caption: rows of cells, the header first


class Page(HTMLParser):
    """A parsed page: ``sections`` by heading, all ``elements`` with their attributes, and the ``bold`` texts."""

    def __init__(self, text: str):
        super().__init__()
        self.sections: dict[str, Section] = {"": Section()}
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.bold: list[str] = []
        self._open: list[str] = []
        self._heading, self._caption = "", ""
        self._rows: list[list[str]] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {key: value or "" for key, value in attrs}
        self.elements.append((tag, attributes))
        if tag == "img":
            self.sections[self._heading].images.append(attributes)
        if tag not in ("img", "meta"):
            self._open.append(tag)
        if tag == "table":
            self._rows = []
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append("")
        if tag in ("h2", "caption"):
            self._text = ""

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "h2":
            self._heading = self._text
            self.sections[self._heading] = Section()
        if tag == "caption":
            self._caption = self._text
        if tag == "table":
            self.sections[self._heading].tables[self._caption] = self._rows

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.sections[self._heading].text += data
        if {"h2", "caption"} & set(self._open):
            self._text += data
        if {"td", "th"} & set(self._open):
            self._rows[-1][-1] += data
        if "b" in self._open:
            self.bold.append(data)


def page_of(*folders: Path, out: Path | None = None) -> Page:
    """The page about the runs in ``folders``."""
    return Page(report([*map(str, folders), *([f"out={out}"] if out else [])]).read_text())


def numbers(section: Section, caption: str) -> dict[str, list[str]]:
    """The cells of a table by the heading of their row; headings of groups of rows are left out."""
    return {row[0]: row[1:] for row in section.tables[caption][1:] if len(row) > 1}
