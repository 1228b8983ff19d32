"""Which runs a report is about: the folders that are named, and the runs and sweeps below them."""

import csv
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fullgnn.errors import ConfigError, FullGNNError, message_of, reason_of
from fullgnn.report.sweep import distinguishing
from fullgnn.storage.folder import TABLE_FILE

GIVE = "give the run_dir of a run or of a sweep, or a folder that holds some"
DEPTH = 3
"""How many folders below a named one are searched for runs."""
FIGURES = "report_figures"
"""Folder of the PNG files of a report, beside its page."""


class Place(NamedTuple):
    """A folder that holds a run."""

    name: str
    sweep: str  # name of the folder of its sweep; empty: it is not a job of a sweep


class Failure(NamedTuple):
    """A job of a sweep that has failed."""

    sweep: Path
    job: str
    overrides: str  # those that only some jobs of the sweep have
    error: str


@dataclass
class SearchResult:
    """What the folders of a report hold."""

    places: dict[Path, Place] = field(default_factory=dict)  # by absolute path, in the order of the page
    failures: list[Failure] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # what the page does not show, a sentence each
    skipped: list[str] = field(default_factory=list)  # folders that hold no run, perhaps with a reason
    damaged: list[str] = field(default_factory=list)  # what cannot be read of runs and sweeps, a reason and a cure each


def find_runs(folders: list[Path]) -> SearchResult:
    """The runs in ``folders``, in this order, each once, with names that tell them apart.

    A folder is that of a run, finished or not, of a sweep, which stands for its finished jobs, or one that holds such
    folders, up to ``DEPTH`` levels below it; its subfolders without any are skipped.

    Raises:
        ConfigError: a folder holds no run.
    """
    result = SearchResult()
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder} is no folder: {GIVE}")
        is_named = _is_sweep(folder) or _is_run(folder)
        places: dict[Path, Place] = {}
        for child in [folder] if is_named else _subfolders(folder):
            below = list(_runs_and_sweeps(child, DEPTH - 1))
            result.skipped += [] if below else [child.name]
            for path in below:
                name = path.absolute().name if is_named else path.relative_to(folder).as_posix()
                places |= _jobs(result, path) if _is_sweep(path) else {path.absolute(): Place(name, "")}
        if not places and not result.damaged:
            raise ConfigError(_why_none(folder, result.failures))
        result.places |= {path: place for path, place in places.items() if path not in result.places}
    _tell_apart(result.places)
    return result


def _why_none(folder: Path, failures: list[Failure]) -> str:
    """What is wrong with a folder in which there is no run to show."""
    if not _is_sweep(folder):
        return f"{folder} holds no run (no record.json, epochs.jsonl or sweep.csv in or below it): {GIVE}"
    errors = [f" (job {failure.job} failed: {failure.error})" for failure in failures if failure.sweep == folder]
    return f"no job of the sweep {folder} has finished{''.join(errors[:1])}: give the folder of a run, or wait for one"


def _is_sweep(folder: Path) -> bool:
    return (folder / TABLE_FILE).is_file()


def _is_run(folder: Path) -> bool:
    return (folder / "record.json").is_file() or (folder / "epochs.jsonl").is_file()


def _runs_and_sweeps(folder: Path, depth: int) -> Iterator[Path]:
    """``folder`` itself if it is a run or a sweep, or those up to ``depth`` levels below it."""
    if _is_sweep(folder) or _is_run(folder):
        yield folder
    elif depth:
        for child in _subfolders(folder):
            yield from _runs_and_sweeps(child, depth - 1)


def _subfolders(folder: Path) -> list[Path]:
    """The folders in ``folder`` that may hold runs, by their names; numbers by their values."""
    try:
        children = [child for child in folder.iterdir() if child.is_dir()]
    except OSError:
        return []
    named = [child for child in children if not child.name.startswith(".") and child.name != FIGURES]
    return sorted(named, key=lambda child: child.name.zfill(12) if child.name.isdigit() else child.name)


def _jobs(result: SearchResult, folder: Path) -> dict[Path, Place]:
    """The finished jobs of a sweep; add those that have failed to the ``result``. A damaged table stands for the jobs
    that its folder holds."""
    try:
        with reading(folder / TABLE_FILE, "the finished jobs beside it are shown"):
            with open(folder / TABLE_FILE, newline="") as file:
                rows = {row["job"]: row for row in csv.DictReader(file)}
            overrides = {job: row["overrides"].split(" ") for job, row in rows.items()}
            if any(Path(job).name != job for job in rows):
                raise ValueError("the name of a job is that of no folder")
    except ConfigError as damage:
        result.damaged.append(str(damage))
        rows = {child.name: {"status": "ok"} for child in _subfolders(folder) if _is_run(child)}
        overrides = {job: [f"job={job}"] for job in rows}
    finished = [job for job in rows if (folder / job / "record.json").is_file()]
    names = dict(zip(finished, distinguishing([overrides[job] for job in finished]))) if len(finished) > 1 else {}
    among_all = dict(zip(overrides, distinguishing(list(overrides.values()))))
    sweep = folder.absolute().name
    for job, row in rows.items():
        if job not in finished and row.get("status") == "failed":
            error = row.get("error") or f"{TABLE_FILE} does not say why"
            result.failures.append(Failure(folder, job, among_all[job], error))
        elif job not in finished:
            result.left_out.append(f"Job {job} of {folder} has not finished and is left out.")
    return {(folder / job).absolute(): Place(names.get(job) or f"{sweep}/{job}", sweep) for job in finished}


def _tell_apart(places: dict[Path, Place]) -> None:
    """Make the names of runs distinct: jobs get the name of their sweep where there are other runs, then of parents."""
    if len({place.sweep or path for path, place in places.items()}) > 1:
        for path, place in places.items():
            if place.sweep and not place.name.startswith(f"{place.sweep}/"):
                places[path] = place._replace(name=f"{place.sweep}: {place.name}")
    for longer in (lambda path, name: f"{path.parent.name}/{name}", lambda path, name: str(path)):
        count = Counter(place.name for place in places.values())
        for path, place in places.items():
            if count[place.name] > 1:
                places[path] = place._replace(name=longer(path, place.name))


@contextmanager
def reading(path: Path, advice: str = "remove it, or leave this run out") -> Iterator[None]:
    """Turn damage of the file ``path``, read inside the ``with`` block, into an error in one line."""
    try:
        yield
    except FullGNNError as error:
        told = message_of(error)
        raise ConfigError(told if str(path) in told else f"{path}: {told}") from error
    except Exception as error:  # the readers raise anything for a damaged file, also RecursionError and MemoryError
        raise ConfigError(f"{path} cannot be read: {advice} ({reason_of(error)[:200]})") from error
