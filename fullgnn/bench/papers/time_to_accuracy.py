"""Seconds of training until the accuracy is near the best one: full-batch and sampled training of the same model."""

import itertools
import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from omegaconf import MISSING

from fullgnn.bench.papers.config import RunsConfig, check_fraction, check_not_empty
from fullgnn.bench.papers.graphs import Case, given_case, in_file, load
from fullgnn.bench.papers.jobs import train_by_command
from fullgnn.bench.papers.result import Cell, Curve, Curves, Result, TableRow, Value, number, over
from fullgnn.config.compose import compose
from fullgnn.config.keys import check_choices, check_minima
from fullgnn.errors import ConfigError
from fullgnn.storage.folder import temporary_folder

FULL = "full"
"""The way that ``fullgnn.train`` trains; every other way is ``fullgnn.train_minibatch``'s."""

TIME, SPEEDUP, FIRST, LAST, RESOLUTION = "time to target", "speed-up over full", "first seed", "last seed", "resolution"
EPOCHS, FIRST_EPOCH, EPOCH, STEPS = "epochs", "first epoch", "an epoch", "its steps"
BEST, SPREAD, SETUP = "best accuracy", "spread", "set-up"
COLUMNS = (TIME, SPEEDUP, FIRST, LAST, RESOLUTION, EPOCHS, FIRST_EPOCH, EPOCH, STEPS, BEST, SPREAD, SETUP)
_METRIC = "val_accuracy"


@dataclass
class Run:
    """A graph, and the overrides with which it is trained in several ways."""

    dataset: list[str] = MISSING
    """Overrides that choose the graph."""
    shared: list[str] = MISSING
    """Overrides of every way."""
    ways: dict[str, list[str]] = MISSING
    """Overrides of each way alone, ``FULL`` among them."""


@dataclass
class Config(RunsConfig):
    """Keys of ``conf/experiment/reproduce/time_to_accuracy.yaml``."""

    runs: dict[str, Run] = field(default_factory=dict)
    fraction: float = MISSING


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a training."""

    epoch: int
    seconds: float  # of training up to here: all epochs from the first one, without the evaluations
    since_last: float  # seconds of training since the evaluation before, or since the start
    accuracy: float


@dataclass(frozen=True)
class Training:
    """One training that has ended."""

    evaluations: list[Evaluation]  # at least one
    first_epoch_s: float
    epoch_ms: float  # the median, without the first epoch
    steps: int  # updates of an epoch
    setup_s: float  # before the first epoch

    @property
    def best(self) -> float:
        return max(one.accuracy for one in self.evaluations)


def run(cfg: Config) -> Result:
    """Train each graph with every seed in every way, and find when each training reaches the target of its seed.

    Raises:
        ConfigError: a key is out of range, or a graph has no validation accuracy.
    """
    check_choices("chosen_runs", cfg.chosen_runs or (), cfg.runs)
    check_minima(cfg, {"seeds": 0, "processes": 1})
    check_not_empty(cfg, "chosen_runs", "seeds", "processes", task="train")
    check_fraction(cfg, "fraction")
    if not _processes(cfg):
        raise ConfigError(f"processes={cfg.processes} are more ranks than GPUs here: give a smaller number")
    result, said, keys = Result(("graph", "ranks", "way"), COLUMNS), list[str](), list[str]()
    for name in cfg.names_of_runs:
        one = cfg.runs[name]
        if FULL not in one.ways:
            raise ConfigError(f"runs.{name}.ways lacks {FULL}, with which the others are compared: add it")
        case = _case(cfg, name, one)
        trained = _train_all(cfg, name, one, case)
        goals = targets(trained, cfg.fraction)
        rows = _rows(name, trained, goals)
        result.cases.append(case)
        result.rows += rows
        result.panels.append(_panel(name, trained, goals))
        said += compared(rows)
        keys.append(_keys(name, one, case))
        result.details[name] = {
            "targets": goals,
            **{f"{way} p={p}": [asdict(one) for one in seeds] for (way, p), seeds in trained.items()},
        }
    result.notes = [*said, *cfg.notes, *keys]
    return result


Trained = dict[tuple[str, int], list[Training]]
"""The trainings of one graph, a list over the seeds for each way and number of ranks."""


def evaluations(epochs: Iterable[dict[str, Any]]) -> list[Evaluation]:
    """The evaluations among lines of ``epochs.jsonl``, without those whose accuracy is no number."""
    found, seconds, last = [], 0.0, 0.0
    for epoch in epochs:
        seconds += epoch["time_ms"]["epoch"] / 1e3
        accuracy = epoch.get(_METRIC)
        if accuracy is not None and math.isfinite(accuracy):
            found.append(Evaluation(epoch["epoch"], seconds, seconds - last, accuracy))
            last = seconds
    return found


def arrival(found: list[Evaluation], target: float) -> Evaluation | None:
    """The first evaluation with an accuracy of ``target`` or more; None if there is none."""
    return next((one for one in found if one.accuracy >= target), None)


def targets(trained: Trained, fraction: float) -> list[float]:
    """The accuracy to reach, for each seed: ``fraction`` of the best that any training with this seed has had."""
    return [fraction * max(one.best for one in of_seed) for of_seed in zip(*trained.values(), strict=True)]


def _case(cfg: Config, name: str, one: Run) -> Case:
    """Load the graph of a run."""
    graph = load(*one.dataset, cache_dir=cfg.cache_dir)
    composed = compose(*one.dataset, *one.shared)
    node, hidden = composed.dataset, composed.model.get("hidden_channels", graph.num_classes)
    return given_case(node.name if "degree_scale" in node else name, name, graph, node, hidden)


def _train_all(cfg: Config, name: str, one: Run, case: Case) -> Trained:
    """Train one graph. The ways take turns, so that other work of the machine disturbs all alike."""
    found: Trained = {(way, p): [] for p in _processes(cfg) for way in one.ways}
    with temporary_folder() as folder:
        file = folder / "graph.npz"
        case.graph.save(file)
        for way in one.ways:  # compiles what is kept on disk, and shows whether the graph can be evaluated
            if not _train(cfg, one, way, _processes(cfg)[0], cfg.seeds[0], file, "train.epochs=1").evaluations:
                raise ConfigError(
                    f"runs.{name} has no {_METRIC}: choose a graph whose validation nodes have one class each"
                )
        for seed, (way, p) in itertools.product(cfg.seeds, found):
            found[way, p].append(_train(cfg, one, way, p, seed, file))
    return found


def _processes(cfg: Config) -> list[int]:
    """The numbers of ranks for which there are devices."""
    return [p for p in cfg.processes if cfg.device == "cpu" or p <= torch.cuda.device_count()]


def _train(cfg: Config, one: Run, way: str, p: int, seed: int, graph: Path, *own: str) -> Training:
    """Train the graph in a file on ``p`` ranks, which divide the CPU threads of the target among them."""
    assert cfg.threads is not None and cfg.nproc is not None
    overrides = [
        *one.shared,
        *one.ways[way],
        *own,
        *in_file(graph),
        f"seed={seed}",
        f"runtime.nproc={p}",
        f"runtime.threads={max(1, cfg.threads * cfg.nproc // p)}",
        f"runtime.device={cfg.device}",
    ]
    record, lines = train_by_command(overrides, sampled=way != FULL)
    steps = 1 if record.sampling is None else record.sampling["num_batches"]
    first_epoch_s = lines[0]["time_ms"]["epoch"] / 1e3
    return Training(evaluations(lines), first_epoch_s, record.epoch_time_ms["median"], steps, record.setup_time_s)


def _rows(name: str, trained: Trained, goals: list[float]) -> list[TableRow]:
    """A row for each way and number of ranks: medians over the seeds. One that never arrives counts as last."""
    rows, of_full = [], dict[int, Value]()
    for (way, p), seeds in trained.items():
        arrivals = [arrival(one.evaluations, goal) for one, goal in zip(seeds, goals, strict=True)]
        arrived = [one for one in arrivals if one is not None]
        seconds = sorted(math.inf if one is None else one.seconds for one in arrivals)
        epochs = statistics.median(math.inf if one is None else one.epoch for one in arrivals)
        best = [100 * one.best for one in seeds]
        time = _finite(statistics.median(seconds), f"not reached, best {max(best):.1f} %")
        if way == FULL:
            of_full[p] = time
        cells = {
            TIME: Cell(time, unit="s"),
            SPEEDUP: Cell(over(of_full.get(p), time), unit="x"),
            FIRST: Cell(_finite(seconds[0]), unit="s"),
            LAST: Cell(_finite(seconds[-1]), unit="s"),
            RESOLUTION: Cell(max((one.since_last for one in arrived), default=None), unit="s"),
            EPOCHS: Cell(_finite(float(epochs))),
            FIRST_EPOCH: Cell(statistics.median(one.first_epoch_s for one in seeds), unit="s"),
            EPOCH: Cell(statistics.median(one.epoch_ms for one in seeds), unit="ms"),
            STEPS: Cell(seeds[0].steps),
            BEST: Cell(statistics.fmean(best), unit="%"),
            SPREAD: Cell(max(best) - min(best), unit="points"),
            SETUP: Cell(statistics.median(one.setup_s for one in seeds), unit="s"),
        }
        rows.append(TableRow((name, f"p={p}", way), cells))
    return rows


def _finite(value: float, otherwise: str = "not reached") -> Value:
    return value if math.isfinite(value) else otherwise


def compared(rows: list[TableRow]) -> list[str]:
    """Say, for each number of ranks, whether ``FULL`` or the best of the other ways arrives sooner.

    Args:
        rows: those of one graph.
    """
    found = []
    for where in dict.fromkeys(row.labels[:2] for row in rows):
        ways = {row.labels[2]: row.cells for row in rows if row.labels[:2] == where}
        found.append(f"{', '.join(where)}: {_soonest(ways)}.")
    return found


def _soonest(ways: dict[str, dict[str, Cell]]) -> str:
    times = {way: time for way, cells in ways.items() if (time := number(cells[TIME].ours)) is not None}
    if not times:
        return "no way reaches the target with most of the seeds"
    soonest, *others = sorted(times, key=lambda way: times[way])
    later = next((way for way in others if FULL in (soonest, way)), None)
    if later is None:
        only = "no other way reaches the target" if soonest == FULL else f"{FULL} does not reach the target"
        return f"{soonest} is the soonest, and {only}"
    last, first = number(ways[soonest][LAST].ours), number(ways[later][FIRST].ours)
    apart = last is not None and first is not None and last < first
    seeds = "with every seed" if apart else "but the times of the seeds overlap"
    return f"{soonest} reaches the target {times[later] / times[soonest]:.2f} times as soon as {later}, {seeds}"


def _panel(name: str, trained: Trained, goals: list[float]) -> Curves:
    """The accuracy by seconds of training, both the mean over the seeds at each epoch."""
    curves = []
    for (way, p), seeds in trained.items():
        by_epoch = [{one.epoch: one for one in training.evaluations} for training in seeds]
        shared = [epoch for epoch in by_epoch[0] if all(epoch in one for one in by_epoch)]
        x = [statistics.fmean(one[epoch].seconds for one in by_epoch) for epoch in shared]
        y = [100 * statistics.fmean(one[epoch].accuracy for one in by_epoch) for epoch in shared]
        curves.append(Curve(f"{way}, p={p}", x, y, dashed=p > 1))
    end = max(max(curve.x, default=0.0) for curve in curves)
    curves.append(Curve("target", [0.0, end], [100 * statistics.fmean(goals)] * 2))
    return Curves(name, "seconds of training", "validation accuracy, %", curves)


def _keys(name: str, one: Run, case: Case) -> str:
    num_train, num_val = (int(mask.sum()) for mask in (case.graph.train_mask, case.graph.val_mask))
    ways = "; ".join(f"{way}: `{' '.join(own)}`" for way, own in one.ways.items())
    return (
        f"{name}: {num_train:,} training and {num_val:,} validation nodes; every way: `{' '.join(one.shared)}`; {ways}."
    )
