"""The runs of a report, read from their folders."""

import csv
import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fullgnn.errors import ConfigError
from fullgnn.reorder.structure import Structure
from fullgnn.report.sweep import distinguishing
from fullgnn.storage.folder import TABLE_FILE
from fullgnn.storage.record import read_epochs

GIVE = "give the run_dir of a run or of a sweep"
DAMAGE: tuple[type[Exception], ...] = (OSError, ValueError, KeyError, AttributeError, EOFError)
DAMAGE += (csv.Error, zipfile.BadZipFile, YAMLError, OmegaConfBaseException)
"""What the readers of a damaged file raise."""


@dataclass(frozen=True, eq=False)
class Run:
    """What one run has left behind. What it did not write is empty."""

    position: int  # on the page, from 0
    name: str  # different from that of any other run of the report
    prefix: str  # of headings: the name with a colon; empty if there is one run
    path: Path
    config: str  # text of config.yaml
    settings: dict[str, str]  # the dotted keys of config.yaml, and their values as YAML writes them
    record: dict[str, Any]  # record.json, perhaps of an older version; empty: the run has not finished
    epochs: list[dict[str, Any]]  # epochs.jsonl, up to the first line that cannot be read
    structure: Structure | None
    notes: tuple[str, ...]  # sentences: what the reader of the page should know about this run


def read_runs(folders: list[Path]) -> tuple[list[Run], list[str]]:
    """The runs in ``folders``, in this order, each once; and what is missing, a sentence each.

    A folder is that of a run, finished or not, or of a sweep, which stands for its finished jobs.

    Raises:
        ConfigError: a folder is neither, or a file in it is damaged.
    """
    names: dict[Path, str] = {}
    left_out: list[str] = []
    for folder in folders:
        if (folder / TABLE_FILE).is_file():
            jobs, unfinished = _read_sweep(folder)
            for path, name in jobs.items():
                names.setdefault(path, name)
            left_out += [f"Job {job} of {folder} has not finished and is left out." for job in unfinished]
        elif (folder / "record.json").is_file() or (folder / "epochs.jsonl").is_file():
            names.setdefault(folder.absolute(), folder.absolute().name)
        else:
            raise ConfigError(_no_run(folder))
    for longer in (lambda path, name: f"{path.parent.name}/{name}", lambda path, name: str(path)):
        count = Counter(names.values())
        names = {path: longer(path, name) if count[name] > 1 else name for path, name in names.items()}
    runs = [
        _read(path, position, name, f"{name}: " if len(names) > 1 else "")
        for position, (path, name) in enumerate(names.items())
    ]
    return runs, left_out


def _no_run(folder: Path) -> str:
    """What is wrong with a folder that holds no run, and what to give instead."""
    if not folder.is_dir():
        return f"{folder} is no folder: {GIVE}"
    if list(folder.glob("*/record.json")):
        return f"{folder} is not a run but holds some: give {folder / '*'}"
    return f"{folder} holds no run (no record.json, epochs.jsonl or sweep.csv): {GIVE}"


def _read_sweep(folder: Path) -> tuple[dict[Path, str], list[str]]:
    """The folders and the names of its finished jobs; the numbers of its other jobs."""
    with _reading(folder / TABLE_FILE, "give the folders of the jobs instead"):
        with open(folder / TABLE_FILE, newline="") as file:
            overrides = {row["job"]: row["overrides"].split(" ") for row in csv.DictReader(file)}
    finished = [job for job in overrides if (folder / job / "record.json").is_file()]
    if not finished:
        raise ConfigError(f"no job of the sweep {folder} has finished: give the folder of a run, or wait for one")
    names = distinguishing([overrides[job] for job in finished]) if len(finished) > 1 else [""]
    jobs = {(folder / job).absolute(): name or f"{folder.name}/{job}" for job, name in zip(finished, names)}
    return jobs, [job for job in overrides if job not in finished]


def _read(path: Path, position: int, name: str, prefix: str) -> Run:
    record: dict[str, Any] = {}
    file = path / "record.json"
    if file.is_file():
        with _reading(file, "leave this run out, or train it again"):
            record = json.loads(file.read_text())
        if not isinstance(record, dict) or not isinstance(record.get("epoch_time_ms"), dict):
            raise ConfigError(f"{file} is not of a training run: {GIVE}")
    epochs, damaged = read_epochs(path)
    notes = []
    if not record:
        notes.append(f"It has not finished: there is no record.json, and the curves end with epoch {len(epochs)}.")
    if damaged:
        notes.append(f"A line of epochs.jsonl is damaged: what follows epoch {len(epochs)} is left out.")
    file = path / "config.yaml"
    with _reading(file):
        config = file.read_text() if file.is_file() else ""
        settings = _flat(OmegaConf.to_container(OmegaConf.create(config), resolve=False))
    file, structure = path / "structure.npz", None
    if file.is_file():
        with _reading(file), np.load(file, allow_pickle=False) as arrays:
            structure = Structure(**{field.name: arrays[field.name] for field in fields(Structure)})
    return Run(position, name, prefix, path, config, settings, record, epochs, structure, tuple(notes))


@contextmanager
def _reading(path: Path, advice: str = "remove it, or leave this run out") -> Iterator[None]:
    """Turn damage of the file ``path``, read inside the ``with`` block, into an error in one line."""
    try:
        yield
    except DAMAGE as error:
        raise ConfigError(f"{path} cannot be read: {advice}") from error


def _flat(node: Any, prefix: str = "") -> dict[str, str]:
    """The leaves of nested dictionaries, by their dotted keys."""
    if not (isinstance(node, dict) and node):
        return {prefix: "null" if node is None else str(node).lower() if isinstance(node, bool) else str(node)}
    leaves: dict[str, str] = {}
    for name, child in node.items():
        leaves |= _flat(child, f"{prefix}.{name}" if prefix else str(name))
    return leaves
