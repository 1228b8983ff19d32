"""Runs as they lie on disk: what a report reads."""

import csv
import json
import zipfile
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fullgnn.errors import ConfigError
from fullgnn.reorder.structure import Structure


@dataclass(frozen=True)
class Run:
    """What one run has left. A part that is not there is empty."""

    name: str  # unlike that of any other run of the report
    path: Path
    config: str  # text of config.yaml
    record: dict[str, Any]  # record.json, which an older version may have written; empty: the run has not finished
    epochs: list[dict[str, Any]]  # of epochs.jsonl, up to the first line that cannot be read
    structure: Structure | None
    notes: tuple[str, ...] = ()  # what a reader should know of it, a sentence each

    @property
    def settings(self) -> dict[str, str]:
        """The keys of its configuration, dotted, and their values as YAML writes them."""
        return _flat(OmegaConf.to_container(OmegaConf.create(self.config), resolve=False))


def read_runs(folders: list[Path]) -> tuple[list[Run], list[str]]:
    """The runs in ``folders``, in this order, each once; and what was left out, a sentence each.

    A folder is that of a run, finished or not, or of a sweep, which stands for its finished jobs.

    Raises:
        ConfigError: a folder is neither, or a file in it is damaged.
    """
    named: dict[Path, str] = {}  # path of a run to its short name
    left_out: list[str] = []
    for folder in folders:
        if (folder / "sweep.csv").is_file():
            jobs, absent = _sweep(folder)
            named |= {path.absolute(): name for path, name in jobs.items() if path.absolute() not in named}
            left_out += [f"Job {job} of {folder} has not finished and is left out." for job in absent]
        elif (folder / "record.json").is_file() or (folder / "epochs.jsonl").is_file():
            named.setdefault(folder.absolute(), folder.absolute().name)
        else:
            raise ConfigError(_no_run(folder))
    return [_read(path, name) for path, name in _apart(named).items()], left_out


def _no_run(folder: Path) -> str:
    """What is wrong with a folder that holds no run, and what to give instead."""
    if not folder.is_dir():
        return f"{folder} is no folder: give the run_dir of a run or of a sweep"
    if list(folder.glob("*/record.json")):
        return f"{folder} is not a run but holds some: give {folder / '*'}"
    return f"{folder} holds no run (no record.json, epochs.jsonl or sweep.csv): give the run_dir of a run or of a sweep"


def _sweep(folder: Path) -> tuple[dict[Path, str], list[str]]:
    """The folders of its finished jobs, each named by the overrides that are not common to all; the other jobs."""
    try:
        with open(folder / "sweep.csv", newline="") as file:
            rows = [(row["job"], row["overrides"].split(" ")) for row in csv.DictReader(file)]
    except (OSError, ValueError, KeyError, AttributeError, csv.Error) as error:
        raise ConfigError(f"{folder / 'sweep.csv'} cannot be read: give the folders of the jobs instead") from error
    finished = [(job, overrides) for job, overrides in rows if (folder / job / "record.json").is_file()]
    if not finished:
        raise ConfigError(f"no job of the sweep {folder} has finished: give the folder of a run, or wait for one")
    common = set.intersection(*(set(overrides) for _, overrides in finished))
    names = {
        folder / job: " ".join(one for one in overrides if one not in common) if len(finished) > 1 else ""
        for job, overrides in finished
    }
    absent = [job for job, _ in rows if not (folder / job / "record.json").is_file()]
    return {path: name or f"{folder.name}/{path.name}" for path, name in names.items()}, absent


def _apart(named: dict[Path, str]) -> dict[Path, str]:
    """Longer names for runs that share a short one."""
    for longer in (lambda path, name: f"{path.parent.name}/{name}", lambda path, name: str(path)):
        count = Counter(named.values())
        named = {path: longer(path, name) if count[name] > 1 else name for path, name in named.items()}
    return named


def _read(path: Path, name: str) -> Run:
    record = _record(path / "record.json")
    epochs, torn = _epochs(path / "epochs.jsonl")
    notes = []
    if not record:
        notes.append(f"It has not finished: there is no record.json, and the curves end with epoch {len(epochs)}.")
    if torn:
        notes.append(f"A line of epochs.jsonl is damaged: what follows epoch {len(epochs)} is left out.")
    config = path / "config.yaml"
    try:
        text = config.read_text() if config.is_file() else ""
        OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{config} cannot be read: remove it, or leave this run out") from error
    return Run(name, path, text, record, epochs, _structure(path / "structure.npz"), tuple(notes))


def _record(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: leave this run out, or train it again") from error
    if not isinstance(record, dict) or not isinstance(record.get("epoch_time_ms"), dict):
        raise ConfigError(f"{path} is not of a training run: give the run_dir of a run or of a sweep")
    return record


def _epochs(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The lines, and whether one could not be read; a killed run leaves half a line at the end."""
    epochs: list[dict[str, Any]] = []
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else []:
        try:
            epoch = json.loads(line)
            epochs.append({"epoch": int(epoch["epoch"]), **epoch})
        except (ValueError, TypeError, KeyError):
            return epochs, True
    return epochs, False


def _structure(path: Path) -> Structure | None:
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            structure = Structure(**{field.name: arrays[field.name] for field in fields(Structure)})
        cells, parts = len(structure.cell_bounds) - 1, len(structure.part_bounds) - 1
        shapes = structure.cell_nnz_before.shape, structure.cell_nnz_after.shape, structure.block_nnz.shape
        if shapes != ((cells, cells), (cells, cells), (parts, parts)):
            raise ValueError("arrays that do not fit each other")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} cannot be read: remove it, or leave this run out") from error
    return structure


def _flat(node: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(node, dict) and node:
        return {
            key: value
            for name, child in node.items()
            for key, value in _flat(child, f"{prefix}.{name}" if prefix else str(name)).items()
        }
    return {prefix: "null" if node is None else str(node).lower() if isinstance(node, bool) else str(node)}
