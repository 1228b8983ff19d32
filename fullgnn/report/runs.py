"""The runs of a report, read from their folders. Runs that differ in the seed alone become one."""

import logging
import re
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from fullgnn.config.trust import plain_config
from fullgnn.errors import ConfigError
from fullgnn.reorder.structure import Structure
from fullgnn.report.folders import GIVE, Found, find_runs, reading
from fullgnn.report.spread import merged
from fullgnn.report.statistics import Count, count, statistics_of_run
from fullgnn.storage.arrays import read_arrays
from fullgnn.storage.record import read_epochs
from fullgnn.storage.text import parse_json, parse_yaml, read_text

log = logging.getLogger(__name__)

FOLDER_KEYS = ("run_dir", "overwrite", "resume")
"""Keys of the configuration that say where a run writes, not what it computes."""
SEED = "seed"
MACHINE = ("world_size", "device", "hardware", "versions", "git_commit")
"""Fields of the record that may differ where the configurations do not."""


@dataclass(frozen=True, eq=False)
class Run:
    """What one run has left behind. What it did not write is empty.

    It may stand for several runs that differ in the seed alone. Its numbers that differ are then a ``Mean``, and its
    ``config`` and ``structure`` are those of the first run.
    """

    position: int  # on the page, from 0
    name: str  # different from that of any other run of the report
    label: str  # the name in a plot: shorter, and still different
    prefix: str  # of headings: the name with a colon; empty if there is one run
    paths: tuple[Path, ...]  # a folder for each seed
    config: str  # text of config.yaml
    settings: dict[str, str]  # the dotted keys of config.yaml, and their values as YAML writes them
    record: dict[str, Any]  # record.json, perhaps of an older version, with the tile density that the report has
    # counted; empty: the run has not finished
    epochs: list[dict[str, Any]]  # epochs.jsonl, up to the first line that cannot be read
    structure: Structure | None
    notes: tuple[str, ...]  # sentences: what the reader of the page should know about this run
    uncounted: str = ""  # why its statistics cannot be counted from its prepared graph; empty: they are, or it has none

    @property
    def folder(self) -> str:
        """The folder; several folders of one parent as a shell would expand them."""
        if len(self.paths) == 1:
            return str(self.paths[0])
        parents = {path.parent for path in self.paths}
        if len(parents) > 1:
            return ", ".join(map(str, self.paths))
        return f"{parents.pop()}/{{{','.join(path.name for path in self.paths)}}}"


def read_runs(folders: list[Path]) -> tuple[list[Run], Found]:
    """The runs in ``folders``, see ``find_runs``, in this order; runs that differ in the seed alone are one.

    Statistics that a run has not counted are counted, once for all runs of one prepared graph. One line is logged about
    folders that hold no run.

    Raises:
        ConfigError: a folder holds no run, or a file of a run that the user has named is damaged.
    """
    found = find_runs(folders)
    runs = []
    for path, place in found.places.items():
        try:
            runs.append(_read(path, place.name))
        except ConfigError as error:
            if place.asked_for:
                raise
            found.skipped.append(str(error).partition(": ")[0])
    if found.skipped:
        log.info("skipped, since they are no runs: %s", ", ".join(found.skipped))
    if not runs:
        raise ConfigError(f"no run in {', '.join(map(str, folders))} can be read: {GIVE}")
    count_once = cache(count)
    groups = _by_seed([_with_statistics(run, count_once) for run in runs])
    shown = [_of_seeds(group, groups) for group in groups]
    prefixes = [f"{run.name}: " if len(shown) > 1 else "" for run in shown]
    labels = _labels([run.name for run in shown])
    return [
        replace(run, position=position, prefix=prefix, label=label)
        for position, (run, prefix, label) in enumerate(zip(shown, prefixes, labels))
    ], found


def _read(path: Path, name: str) -> Run:
    record: dict[str, Any] = {}
    file = path / "record.json"
    if file.is_file():
        with reading(file, "leave this run out, or train it again"):
            record = parse_json(read_text(file), file)
        if not isinstance(record, dict) or not isinstance(record.get("epoch_time_ms"), dict):
            raise ConfigError(f"{file} is not of a training run: {GIVE}")
    epochs, damaged = read_epochs(path)
    notes = []
    if not record:
        notes.append(f"It has not finished: there is no record.json, and the curves end with epoch {len(epochs)}.")
    if damaged:
        notes.append(f"A line of epochs.jsonl is damaged: what follows epoch {len(epochs)} is left out.")
    file = path / "config.yaml"
    with reading(file):
        config = read_text(file) if file.is_file() else ""
        settings = _flat(plain_config(parse_yaml(config, file) or {}))
    file, structure = path / "structure.npz", None
    if file.is_file():
        with reading(file):
            arrays = read_arrays(file)
            structure = Structure(**{field.name: arrays[field.name] for field in fields(Structure)})
    return Run(0, name, name, "", (path,), config, settings, record, epochs, structure, tuple(notes))


def _with_statistics(run: Run, count: Count) -> Run:
    """``run`` with the statistics that it has not counted."""
    density = run.record.get("tile_density")
    if density and run.structure:
        return run
    found = statistics_of_run(run.record, run.settings, count)
    if isinstance(found, str):
        return replace(run, uncounted=found)
    record = run.record | {"tile_density": density or found.tile_density}
    return replace(run, record=record, structure=run.structure or found.structure)


def _labels(names: list[str]) -> list[str]:
    """Names without the words that all of them share, and of a dotted key its last part: ``nproc=2 scheme=1d``."""
    words = [name.split(" ") for name in names]
    shared = set.intersection(*map(set, words)) if len(names) > 1 else set()
    labels = [" ".join(re.sub(r"^(\w+\.)+(?=\w+=)", "", word) for word in one if word not in shared) for one in words]
    return labels if all(labels) and len(set(labels)) == len(labels) else names


def _flat(node: Any, prefix: str = "") -> dict[str, str]:
    """The leaves of nested dictionaries, by their dotted keys."""
    if not (isinstance(node, dict) and node):
        return {prefix: "null" if node is None else str(node).lower() if isinstance(node, bool) else str(node)}
    leaves: dict[str, str] = {}
    for name, child in node.items():
        leaves |= _flat(child, f"{prefix}.{name}" if prefix else str(name))
    return leaves


def settings_without(run: Run, *keys: str) -> dict[str, str]:
    """The configuration of a run without where it writes, its seed, and ``keys`` with all keys below them."""
    left_out = (*FOLDER_KEYS, SEED, *keys)
    return {
        key: value
        for key, value in run.settings.items()
        if not any(key == one or key.startswith(f"{one}.") for one in left_out)
    }


def _by_seed(runs: list[Run]) -> list[list[Run]]:
    """Groups of finished runs that differ in the seed alone, each in the place of its first run.

    Where a seed occurs twice among them, as before and after a change of the code, the runs of one folder form a
    group. A run that has not finished stays alone, and so do runs of one seed.
    """
    together: dict[object, list[Run]] = {}
    for run in runs:
        machine = [run.record.get(key) for key in MACHINE]
        same = repr((sorted(settings_without(run).items()), machine))
        together.setdefault(same if run.record and SEED in run.settings else run, []).append(run)
    groups = []
    for group in together.values():
        apart: dict[Path, list[Run]] = {}
        for run in group:
            apart.setdefault(run.paths[0].parent, []).append(run)
        for candidate in [group] if _distinct_seeds(group) else apart.values():
            groups += [candidate] if _distinct_seeds(candidate) else [[run] for run in candidate]
    return sorted(groups, key=lambda group: runs.index(group[0]))


def _distinct_seeds(group: list[Run]) -> bool:
    return len({run.settings.get(SEED) for run in group}) == len(group)


def _of_seeds(group: list[Run], groups: list[list[Run]]) -> Run:
    """One run in place of a ``group`` of runs that differ in the seed."""
    first = group[0]
    if len(group) == 1:
        return first
    seeds = ", ".join(run.settings[SEED] for run in group)
    name = _name_of(group)
    if any(name == (_name_of(one) if len(one) > 1 else one[0].name) for one in groups if one is not group):
        name = f"{first.name} … {group[-1].name}"
    by_epoch: dict[int, list[dict[str, Any]]] = {}
    for run in group:
        for line in run.epochs:
            by_epoch.setdefault(line["epoch"], []).append(line)
    return replace(
        first,
        name=f"{name} ({len(group)} seeds)",
        paths=tuple(run.paths[0] for run in group),
        settings=first.settings | {SEED: seeds},
        record=merged([run.record for run in group]) | {SEED: seeds},
        epochs=[merged(lines) for _, lines in sorted(by_epoch.items()) if len(lines) == len(group)],
        notes=(*dict.fromkeys(note for run in group for note in run.notes), f"Means over the seeds {seeds}."),
        uncounted=next((run.uncounted for run in group if run.uncounted), ""),
    )


def _name_of(group: list[Run]) -> str:
    """What the names of a group have in common besides the seed; the first and the last name where they differ more."""
    names = [" ".join(word for word in run.name.split(" ") if not word.startswith("seed=")) for run in group]
    if len(set(names)) > 1:
        return f"{group[0].name} … {group[-1].name}"
    return names[0].rstrip(": ") or group[0].paths[0].parent.name
