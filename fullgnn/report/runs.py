"""The runs of a report, read from their folders. Runs that differ in the seed or in the split alone become one.

The statistics that a run has not counted are counted from its prepared graph, if that is kept. The folder of the run
stays as it is. The cache that has the prepared graph keeps the counts, for the next report and for other runs of the
same graph.
"""

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from fullgnn.config.trust import plain_config
from fullgnn.errors import ConfigError, FullGNNError, message_of, reason_of
from fullgnn.partition.facts import off_diagonal_share
from fullgnn.prepare.statistics import Statistics, kept_statistics
from fullgnn.reorder.structure import Structure
from fullgnn.report.folders import GIVE, SearchResult, find_runs, reading
from fullgnn.report.inspection.findings import Inspection
from fullgnn.report.replicates import NOTHING, SEED, T, are_distinct, by_key, is_draw, merged, without_draws
from fullgnn.report.sweep import distinguishing
from fullgnn.storage.archive import read_arrays
from fullgnn.storage.record import read_epochs, read_record_fields
from fullgnn.storage.text import parse_json, parse_yaml, read_text

log = logging.getLogger(__name__)

FOLDER_KEYS = ("run_dir", "overwrite", "resume")
"""Keys of the configuration that say where a run writes, not what it computes."""
MACHINE = ("world_size", "device", "hardware", "versions", "git_commit")
"""Fields of the record that may differ where the configurations do not."""


@dataclass(frozen=True, eq=False)
class ShownRun:
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
        parents = {path.parent for path in self.paths}
        if len(self.paths) == 1 or len(parents) > 1:
            return ", ".join(map(str, self.paths))
        return f"{parents.pop()}/{{{','.join(path.name for path in self.paths)}}}"

    @property
    def epoch_time(self) -> float | None:
        """Milliseconds of an epoch, the median."""
        return (self.record.get("epoch_time_ms") or {}).get("median")


def read_runs(
    folders: list[Path], check: Callable[[ShownRun], object] = lambda run: None
) -> tuple[list[ShownRun], SearchResult]:
    """The runs in ``folders``, see ``find_runs``, in this order; runs that are replicates of each other are one.

    A damaged run is left out, and the others are shown: the log and the page name it. Statistics that a run has not
    counted are counted, once for all runs of one prepared graph. One line is logged about folders that hold no run.

    Args:
        check: called with each run alone; a run for which it raises is damaged.

    Raises:
        ConfigError: a folder holds no run, or no run can be read.
    """
    search = find_runs(folders)
    is_one_run = len(folders) == 1 and folders[0].absolute() in search.places
    runs: list[ShownRun] = []
    for path, place in search.places.items():
        try:
            run = _read(path, place.name)
            with reading(path, "a file of this run is damaged: leave it out, or train it again"):
                check(run)
            runs.append(run)
        except ConfigError as error:
            if is_one_run:
                raise
            if isinstance(error, NotOfTraining):
                search.skipped.append(str(error).partition(": ")[0])
            else:
                search.damaged.append(message_of(error))
    if not runs:
        told = f" ({'; '.join(search.damaged)[:500]})" if search.damaged else ""
        raise ConfigError(f"no run in {', '.join(map(str, folders))} can be read{told}: {GIVE}")
    if search.skipped:
        log.info("skipped, since they are no runs: %s", ", ".join(search.skipped))
    for damage in search.damaged:
        log.warning("left out, since it is damaged: %s", damage)
        search.left_out.append(f"Damaged, and left out: {damage}.")
    count_once = cache(_count)
    groups = _replicates([_with_statistics(run, count_once) for run in runs])
    names = [_name_of(group) for group in groups]
    ends = [f"{group[0].name} … {group[-1].name}" for group in groups]
    shown = [_merged(group, end if names.count(name) > 1 else name) for group, name, end in zip(groups, names, ends)]
    labels = _labels([run.name for run in shown])
    prefixes = [f"{run.name}: " if len(shown) > 1 else "" for run in shown]
    return [replace(run, position=k, label=labels[k], prefix=prefixes[k]) for k, run in enumerate(shown)], search


class NotOfTraining(ConfigError):
    """A folder holds a record, but not that of a training run."""


def _read(path: Path, name: str) -> ShownRun:
    file, cure = path / "record.json", "leave this run out, or train it again"
    record = _read_file(file, lambda file: read_record_fields(file, cure), dict[str, Any]())
    if file.is_file() and not isinstance(record.get("epoch_time_ms"), dict):
        raise NotOfTraining(f"{file} is not of a training run: {GIVE}")
    with reading(path / "epochs.jsonl"):
        epochs, is_cut_off = read_epochs(path)
    file = path / "config.yaml"
    config = _read_file(file, read_text, "")
    with reading(file):
        settings = _flat(plain_config(parse_yaml(config, file) or {}))
    structure = _read_file(path / "structure.npz", _structure, None)
    inspection = _read_file(path / "inspection.json", _inspection, None)
    notes = []
    if not record:
        notes.append(f"It has not finished: there is no record.json, and the curves end with epoch {len(epochs)}.")
    if is_cut_off:
        notes.append(f"A line of epochs.jsonl is damaged: what follows epoch {len(epochs)} is left out.")
    if codec := record.get("codec"):
        smaller = f", {codec['ratio']:.3g} times smaller" if codec.get("ratio") else ""
        notes.append(f"It is inexact: it reads the features as codec={codec.get('name')} keeps them{smaller}.")
    return ShownRun(0, name, name, "", (path,), config, settings, record, epochs, structure, tuple(notes), inspection)


def _read_file(file: Path, read: Callable[[Path], T], default: T) -> T:
    """What ``read`` makes of a file; the ``default`` where there is none."""
    if not file.is_file():
        return default
    with reading(file):
        return read(file)


def _structure(file: Path) -> Structure | None:
    arrays = read_arrays(file)
    return Structure(**{field.name: arrays[field.name] for field in fields(Structure)})


def _inspection(file: Path) -> Inspection | None:
    return Inspection.from_json(parse_json(read_text(file), file))


def _with_statistics(run: ShownRun, count: Callable[[Path, bool], Statistics | str]) -> ShownRun:
    """``run`` with the statistics that it has not counted, if it has left its prepared graph.

    Args:
        count: ``_count``, perhaps one that remembers what it has returned.
    """
    density, prepared = run.record.get("tile_density"), run.record.get("prepared")
    if (density and run.structure) or not prepared:
        return run
    self_loops = run.settings.get("self_loops")
    if self_loops not in ("true", "false"):
        return replace(run, uncounted="config.yaml does not say whether there are self_loops")
    counted = count(Path(str(prepared)), self_loops == "true")
    if isinstance(counted, str):
        return replace(run, uncounted=counted)
    nnz = counted.structure.block_nnz
    if (nnz.sum(), off_diagonal_share(nnz)) != (run.record.get("nnz"), run.record.get("edge_cut")):
        # the code of a partitioner is not part of the key of a prepared graph
        return replace(run, uncounted=f"{prepared} does not hold the graph of the run any more")
    record = run.record | {"tile_density": density or counted.tile_density}
    return replace(run, record=record, structure=run.structure or counted.structure)


def _count(folder: Path, self_loops: bool) -> Statistics | str:
    """The statistics of the prepared graph in ``folder``, or why there are none."""
    try:
        return kept_statistics(folder, self_loops)
    except Exception as error:  # a damaged layout.json may say anything, and the page is written all the same
        if not os.path.isdir(folder):
            return f"{folder.parent} does not have the prepared graph any more"
        return message_of(error) if isinstance(error, FullGNNError) else f"{folder}: {reason_of(error)}"


def _flat(node: Any, prefix: str = "") -> dict[str, str]:
    """The leaves of nested dictionaries, by their dotted keys."""
    if not (isinstance(node, dict) and node):
        return {prefix: "null" if node is None else str(node).lower() if isinstance(node, bool) else str(node)}
    leaves: dict[str, str] = {}
    for name, child in node.items():
        leaves |= _flat(child, f"{prefix}.{name}" if prefix else str(name))
    return leaves


def _labels(names: list[str]) -> list[str]:
    """Names without the words that all of them share, and of a dotted key its last part: ``nproc=2 scheme=1d``."""
    labels = [re.sub(r"(?<!\S)(\w+\.)+(?=\w+=)", "", label) for label in distinguishing([n.split(" ") for n in names])]
    return labels if are_distinct(labels) else names


def settings_without(run: ShownRun, *keys: str) -> dict[str, str]:
    """The configuration of a run without where it writes, its seeds, and ``keys`` with all keys below them."""
    below = tuple(f"{key}." for key in (*FOLDER_KEYS, *keys))
    return dict(item for item in run.settings.items() if not (is_draw(*item) or f"{item[0]}.".startswith(below)))


def differing_keys(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys that are not the same in all ``settings``; ``_target_`` follows from ``name``."""
    keys = dict.fromkeys(key for setting in settings for key in setting if not key.endswith("._target_"))
    return [key for key in keys if len({setting.get(key) for setting in settings}) > 1]


def setting_and_draw(run: ShownRun) -> tuple[str, str]:
    """A text that is equal for replicates, runs that differ in their seeds and their splits alone, and one of these."""
    machine = [run.record.get(key) for key in MACHINE]
    draws = sorted((key, value) for key, value in run.settings.items() if is_draw(key, value))
    return repr((sorted(settings_without(run).items()), machine)), repr(draws)


def _replicates(runs: list[ShownRun]) -> list[list[ShownRun]]:
    """Groups of finished replicates, each in the place of its first run.

    Where seeds and splits occur twice among them, as before and after a change of the code, the runs of one folder form
    a group. A run that has not finished stays alone, and so do runs of one seed and one split.
    """
    groups = []
    by_setting = by_key(runs, lambda run: setting_and_draw(run)[0] if run.record and SEED in run.settings else run)
    for group in by_setting.values():
        of_folders = by_key(group, lambda run: run.paths[0].parent).values()
        for candidate in [group] if _distinct_draws(group) else of_folders:
            groups += [candidate] if _distinct_draws(candidate) else [[run] for run in candidate]
    return sorted(groups, key=lambda group: runs.index(group[0]))


def _distinct_draws(group: list[ShownRun]) -> bool:
    return len({setting_and_draw(run)[1] for run in group}) == len(group)


def _merged(group: list[ShownRun], name: str) -> ShownRun:
    """One run called ``name``, and how many it is, in place of a ``group`` of replicates."""
    first = group[0]
    if len(group) == 1:
        return first
    drawn = [key for key, value in first.settings.items() if is_draw(key, value)]
    values = {key: list(dict.fromkeys(run.settings.get(key, NOTHING) for run in group)) for key in drawn}
    several = {key: ", ".join(of_key) for key, of_key in values.items() if len(of_key) > 1}
    if SEED in several:
        over, counted = f"the seeds {several[SEED]}", "seeds" if len(values[SEED]) == len(group) else "runs"
    else:
        over = " and ".join(f"{key} {of_key}" for key, of_key in several.items())
        counted = "splits" if len(several) == 1 else "runs"
    lines = by_key((line for run in group for line in run.epochs), lambda line: line["epoch"])
    return replace(
        first,
        name=f"{name} ({len(group)} {counted})",
        paths=tuple(run.paths[0] for run in group),
        settings=first.settings | several,
        record=merged([run.record for run in group]) | ({SEED: several[SEED]} if SEED in several else {}),
        epochs=[merged(of_epoch) for _, of_epoch in sorted(lines.items()) if len(of_epoch) == len(group)],
        notes=(*dict.fromkeys(note for run in group for note in run.notes), f"Means over {over}."),
        uncounted=next((run.uncounted for run in group if run.uncounted), ""),
    )


def _name_of(group: list[ShownRun]) -> str:
    """What the names of a group have in common besides the seeds; the first and the last name where they differ
    more."""
    names = {without_draws(run.name) if len(group) > 1 else run.name for run in group}
    if len(names) > 1:
        return f"{group[0].name} … {group[-1].name}"
    return names.pop().rstrip(": ") or group[0].paths[0].parent.name
