"""The runs of a report, read from their folders. Runs that differ in the seed or in the split alone become one.

The statistics that a run has not counted are counted from its prepared graph, if that is kept. The folder of the run
stays as it is. The cache that has the prepared graph keeps the counts, for the next report and for other runs of the
same graph.
"""

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from fullgnn.config.trust import plain_config
from fullgnn.errors import ConfigError, FullGNNError, message_of, reason_of
from fullgnn.partition.facts import off_diagonal_share
from fullgnn.prepare.statistics import Statistics, kept_statistics
from fullgnn.reorder.structure import Structure
from fullgnn.report.folders import GIVE, Found, find_runs, reading
from fullgnn.report.inspection.findings import Inspection
from fullgnn.report.replicates import SEED, is_draw, is_override_of_draw
from fullgnn.report.spread import NOTHING, merged
from fullgnn.storage.archive import read_arrays
from fullgnn.storage.record import read_epochs, read_record_fields
from fullgnn.storage.text import parse_json, parse_yaml, read_text

log = logging.getLogger(__name__)

FOLDER_KEYS = ("run_dir", "overwrite", "resume")
"""Keys of the configuration that say where a run writes, not what it computes."""
MACHINE = ("world_size", "device", "hardware", "versions", "git_commit")
"""Fields of the record that may differ where the configurations do not."""
Count = Callable[[Path, bool], Statistics | str]
"""``_count``, perhaps one that remembers what it has returned."""


@dataclass(frozen=True, eq=False)
class Run:
    """What one run has left behind. What it did not write is empty.

    It may stand for replicates: several runs that differ in the seed or in the split alone. Its numbers that differ are
    then a ``Mean``, and its ``config`` and ``structure`` are those of the first run.
    """

    position: int  # on the page, from 0
    name: str  # different from that of any other run of the report
    label: str  # the name in a plot: shorter, and still different
    prefix: str  # of headings: the name with a colon; empty if there is one run
    paths: tuple[Path, ...]  # a folder for each replicate
    config: str  # text of config.yaml
    settings: dict[str, str]  # the dotted keys of config.yaml, and their values as YAML writes them
    record: dict[str, Any]  # record.json, perhaps of an older version, with the tile density that the report has
    # counted; empty: the run has not finished
    epochs: list[dict[str, Any]]  # epochs.jsonl, up to the first line that cannot be read
    structure: Structure | None
    notes: tuple[str, ...]  # sentences: what the reader of the page should know about this run
    inspection: Inspection | None = None  # of inspection.json, which ``python -m fullgnn.inspect`` has written there
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


def read_runs(folders: list[Path], check: Callable[[Run], object] = lambda run: None) -> tuple[list[Run], Found]:
    """The runs in ``folders``, see ``find_runs``, in this order; runs that are replicates of each other are one.

    A damaged run is left out, and the others are shown: the log and the page name it. Statistics that a run has not
    counted are counted, once for all runs of one prepared graph. One line is logged about folders that hold no run.

    Args:
        check: called with each run alone; a run for which it raises is damaged.

    Raises:
        ConfigError: a folder holds no run, or no run can be read.
    """
    found = find_runs(folders)
    runs: list[Run] = []
    errors: list[ConfigError] = []
    for path, place in found.places.items():
        try:
            run = _read(path, place.name)
            with reading(path, "a file of this run is damaged: leave it out, or train it again"):
                check(run)
            runs.append(run)
        except NotOfTraining as error:
            found.skipped.append(str(error).partition(": ")[0])
            errors.append(error)
        except ConfigError as error:
            found.damaged.append(message_of(error))
            errors.append(error)
    if not runs:
        if len(errors) == 1 and list(found.places) == [folder.absolute() for folder in folders]:
            raise errors[0]
        told = f" ({'; '.join(found.damaged)[:500]})" if found.damaged else ""
        raise ConfigError(f"no run in {', '.join(map(str, folders))} can be read{told}: {GIVE}")
    if found.skipped:
        log.info("skipped, since they are no runs: %s", ", ".join(found.skipped))
    for damage in found.damaged:
        log.warning("left out, since it is damaged: %s", damage)
        found.left_out.append(f"Damaged, and left out: {damage}.")
    count_once = cache(_count)
    groups = _replicates([_with_statistics(run, count_once) for run in runs])
    shown = [_of_replicates(group, groups) for group in groups]
    prefixes = [f"{run.name}: " if len(shown) > 1 else "" for run in shown]
    labels = _labels([run.name for run in shown])
    return [
        replace(run, position=position, prefix=prefix, label=label)
        for position, (run, prefix, label) in enumerate(zip(shown, prefixes, labels))
    ], found


class NotOfTraining(ConfigError):
    """A folder holds a record, but not that of a training run."""


def _read(path: Path, name: str) -> Run:
    record: dict[str, Any] = {}
    file = path / "record.json"
    if file.is_file():
        with reading(file):
            record = read_record_fields(file, "leave this run out, or train it again")
        if not isinstance(record.get("epoch_time_ms"), dict):
            raise NotOfTraining(f"{file} is not of a training run: {GIVE}")
    with reading(path / "epochs.jsonl"):
        epochs, damaged = read_epochs(path)
    notes = []
    if not record:
        notes.append(f"It has not finished: there is no record.json, and the curves end with epoch {len(epochs)}.")
    if damaged:
        notes.append(f"A line of epochs.jsonl is damaged: what follows epoch {len(epochs)} is left out.")
    if codec := record.get("codec"):
        smaller = f", {codec['ratio']:.3g} times smaller" if codec.get("ratio") else ""
        notes.append(f"It is inexact: it reads the features as codec={codec.get('name')} keeps them{smaller}.")
    file = path / "config.yaml"
    with reading(file):
        config = read_text(file) if file.is_file() else ""
        settings = _flat(plain_config(parse_yaml(config, file) or {}))
    file, structure = path / "structure.npz", None
    if file.is_file():
        with reading(file):
            arrays = read_arrays(file)
            structure = Structure(**{field.name: arrays[field.name] for field in fields(Structure)})
    file, inspection = path / "inspection.json", None
    if file.is_file():
        with reading(file):
            inspection = Inspection.from_json(parse_json(read_text(file), file))
    return Run(0, name, name, "", (path,), config, settings, record, epochs, structure, tuple(notes), inspection)


def _with_statistics(run: Run, count: Count) -> Run:
    """``run`` with the statistics that it has not counted."""
    density = run.record.get("tile_density")
    if density and run.structure:
        return run
    found = _statistics_of(run.record, run.settings, count)
    if isinstance(found, str):
        return replace(run, uncounted=found)
    record = run.record | {"tile_density": density or found.tile_density}
    return replace(run, record=record, structure=run.structure or found.structure)


def _count(folder: Path, self_loops: bool) -> Statistics | str:
    """The statistics of the prepared graph in ``folder``, or why there are none."""
    try:
        return kept_statistics(folder, self_loops)
    except Exception as error:  # a damaged layout.json may say anything, and the page is written all the same
        if not os.path.isdir(folder):
            return f"{folder.parent} does not have the prepared graph any more"
        return message_of(error) if isinstance(error, FullGNNError) else f"{folder}: {reason_of(error)}"


def _statistics_of(record: Mapping[str, Any], settings: Mapping[str, str], count: Count) -> Statistics | str:
    """The statistics of the prepared graph that a run has left, or why there are none; empty if it has left no graph.

    Args:
        record: content of ``record.json``.
        settings: the dotted keys of ``config.yaml``.
    """
    prepared, self_loops = record.get("prepared"), settings.get("self_loops")
    if not prepared:
        return ""
    if self_loops not in ("true", "false"):
        return "config.yaml does not say whether there are self_loops"
    found = count(Path(str(prepared)), self_loops == "true")
    if isinstance(found, str) or _is_of(found.structure, record):
        return found
    return f"{prepared} does not hold the graph of the run any more"


def _is_of(structure: Structure, record: Mapping[str, Any]) -> bool:
    """Whether the blocks have the non-zeros and the cut of the run. The code of a partitioner is not part of a key."""
    nnz = structure.block_nnz
    return (nnz.sum(), off_diagonal_share(nnz)) == (record.get("nnz"), record.get("edge_cut"))


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
    """The configuration of a run without where it writes, its seeds, and ``keys`` with all keys below them."""
    left_out = (*FOLDER_KEYS, *keys)
    return {
        key: value
        for key, value in run.settings.items()
        if not (is_draw(key, value) or any(key == one or key.startswith(f"{one}.") for one in left_out))
    }


def setting_and_draw(run: Run) -> tuple[str, str]:
    """A text that is equal for replicates, runs that differ in their seeds and their splits alone, and one of these."""
    machine = [run.record.get(key) for key in MACHINE]
    draws = {key: value for key, value in run.settings.items() if is_draw(key, value)}
    return repr((sorted(settings_without(run).items()), machine)), repr(sorted(draws.items()))


def _replicates(runs: list[Run]) -> list[list[Run]]:
    """Groups of finished replicates, each in the place of its first run.

    Where seeds and splits occur twice among them, as before and after a change of the code, the runs of one folder form
    a group. A run that has not finished stays alone, and so do runs of one seed and one split.
    """
    together: dict[object, list[Run]] = {}
    for run in runs:
        together.setdefault(setting_and_draw(run)[0] if run.record and SEED in run.settings else run, []).append(run)
    groups = []
    for group in together.values():
        apart: dict[Path, list[Run]] = {}
        for run in group:
            apart.setdefault(run.paths[0].parent, []).append(run)
        for candidate in [group] if _distinct_draws(group) else apart.values():
            groups += [candidate] if _distinct_draws(candidate) else [[run] for run in candidate]
    return sorted(groups, key=lambda group: runs.index(group[0]))


def _distinct_draws(group: list[Run]) -> bool:
    return len({setting_and_draw(run)[1] for run in group}) == len(group)


def _of_replicates(group: list[Run], groups: list[list[Run]]) -> Run:
    """One run in place of a ``group`` of replicates."""
    first = group[0]
    if len(group) == 1:
        return first
    drawn = [key for key, value in first.settings.items() if is_draw(key, value)]
    values = {key: list(dict.fromkeys(run.settings.get(key, NOTHING) for run in group)) for key in drawn}
    told = {key: ", ".join(of_key) for key, of_key in values.items() if len(of_key) > 1}
    name = _name_of(group)
    if any(name == (_name_of(one) if len(one) > 1 else one[0].name) for one in groups if one is not group):
        name = f"{first.name} … {group[-1].name}"
    by_epoch: dict[int, list[dict[str, Any]]] = {}
    for run in group:
        for line in run.epochs:
            by_epoch.setdefault(line["epoch"], []).append(line)
    if SEED in told:
        means, counted = f"Means over the seeds {told[SEED]}.", "seeds" if len(values[SEED]) == len(group) else "runs"
    else:
        means = f"Means over {' and '.join(f'{key} {of_key}' for key, of_key in told.items())}."
        counted = "splits" if len(told) == 1 else "runs"
    return replace(
        first,
        name=f"{name} ({len(group)} {counted})",
        paths=tuple(run.paths[0] for run in group),
        settings=first.settings | told,
        record=merged([run.record for run in group]) | ({SEED: told[SEED]} if SEED in told else {}),
        epochs=[merged(lines) for _, lines in sorted(by_epoch.items()) if len(lines) == len(group)],
        notes=(*dict.fromkeys(note for run in group for note in run.notes), means),
        uncounted=next((run.uncounted for run in group if run.uncounted), ""),
    )


def _name_of(group: list[Run]) -> str:
    """What the names of a group have in common besides the seeds; the first and the last name where they differ
    more."""
    names = [" ".join(word for word in run.name.split(" ") if not is_override_of_draw(word)) for run in group]
    if len(set(names)) > 1:
        return f"{group[0].name} … {group[-1].name}"
    return names[0].rstrip(": ") or group[0].paths[0].parent.name
