"""Seconds of training until the accuracy is near the best one: full-batch and sampled training of the same model."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import fmean, median

import torch

from fullgnn.bench.papers.config import Keys, chosen_runs
from fullgnn.bench.papers.graphs import GraphCase, given_case, load
from fullgnn.bench.papers.result import Curve, Curves, Result, TableRow, Value, number, over
from fullgnn.bench.papers.target import Target
from fullgnn.bench.papers.trainings import TrainingCurve, place, train
from fullgnn.config.compose import compose
from fullgnn.errors import ConfigError

FULL = "full"
"""The way that ``fullgnn.train`` trains; every other way is ``fullgnn.train_minibatch``'s."""

TIME, SPEEDUP, FIRST, LAST = "time to target", "speed-up over full", "first seed", "last seed"
_UNITS = {TIME: "s", SPEEDUP: "x", FIRST: "s", LAST: "s", "resolution": "s", "epochs": "", "first epoch": "s"}
COLUMNS = {**_UNITS, "an epoch": "ms", "its steps": "", "best accuracy": "%", "spread": "points", "set-up": "s"}
_METRIC = "val_accuracy"


@dataclass
class WaysToTrain:
    """A graph, and the overrides with which it is trained in several ways."""

    dataset: list[str]
    """Overrides that choose the graph."""
    shared: list[str]
    """Overrides of every way."""
    ways: dict[str, list[str]]
    """Overrides of each way alone, ``FULL`` among them."""


@dataclass
class TimeToAccuracyKeys(Keys):
    """Keys of ``conf/experiment/reproduce/time_to_accuracy.yaml``."""

    runs: dict[str, WaysToTrain]


def check(cfg: TimeToAccuracyKeys) -> None:
    """Refuse more ranks than devices, and a graph without the way that others are compared with.

    Raises:
        ConfigError: one line that names the key.
    """
    if not processes(cfg):
        raise ConfigError(f"processes={cfg.processes} are more ranks than GPUs here: give a smaller number")
    for name in chosen_runs(cfg):
        if FULL not in cfg.runs[name].ways:
            raise ConfigError(f"runs.{name}.ways lacks {FULL}, with which the others are compared: add it")


def graphs(cfg: TimeToAccuracyKeys) -> list[GraphCase]:
    """Load the graphs of the runs, whose names are the titles."""
    return [graph_of(cfg, name) for name in chosen_runs(cfg)]


def graph_of(cfg: TimeToAccuracyKeys, name: str) -> GraphCase:
    """Load the graph of a run."""
    run = cfg.runs[name]
    graph, composed = load(*run.dataset, cache_dir=cfg.cache_dir), compose(*run.dataset, *run.shared)
    node, hidden = composed.dataset, composed.model.get("hidden_channels", graph.num_classes)
    return given_case(node.name if "degree_scale" in node else name, name, graph, node, hidden)


def train_ways(result: Result, cfg: TimeToAccuracyKeys, case: GraphCase) -> None:
    """Train a graph with every seed in every way, and find when each training reaches the target of its seed.

    Raises:
        ConfigError: the graph has no validation accuracy.
    """
    first, trained = len(result.rows), _train_all(cfg, case)
    goals = targets(trained, cfg.fraction)
    add_rows(result, case.title, trained, goals)
    result.panels.append(_panel(case.title, trained, goals))
    result.notes += compared(result.rows[first:])
    details = result.details[case.title] = {"targets": goals}
    for (way, p), seeds in trained.items():
        details[f"{way} p={p}"] = [
            {"evaluations": list(map(asdict, training.evaluations)), "first_epoch_s": training.seconds[0]}
            | {key: getattr(training, key) for key in ("epoch_ms", "steps", "setup_s")}
            for training in seeds
        ]


def say_keys(result: Result, cfg: TimeToAccuracyKeys) -> None:
    """Say below the table how each graph has been trained."""
    for case in result.cases:
        run = cfg.runs[case.title]
        num_train, num_val = (int(mask.sum()) for mask in (case.graph.train_mask, case.graph.val_mask))
        ways = "; ".join(f"{way}: `{' '.join(own)}`" for way, own in run.ways.items())
        nodes = f"{case.title}: {num_train:,} training and {num_val:,} validation nodes"
        result.notes.append(f"{nodes}; every way: `{' '.join(run.shared)}`; {ways}.")


TrainedRuns = dict[tuple[str, int], list[TrainingCurve]]
"""The trainings of one graph, a list over the seeds for each way and number of ranks."""


def targets(trained: TrainedRuns, fraction: float) -> list[float]:
    """The accuracy to reach, for each seed: ``fraction`` of the best that any training with this seed has had."""
    return [fraction * max(training.best for training in of_seed) for of_seed in zip(*trained.values(), strict=True)]


def _train_all(cfg: TimeToAccuracyKeys, case: GraphCase) -> TrainedRuns:
    """Train one graph. The ways take turns, so that other work of the machine disturbs all alike."""
    ways = cfg.runs[case.title].ways
    trained: TrainedRuns = {(way, p): [] for p in processes(cfg) for way in ways}
    for way in ways:  # compiles what is kept on disk, and shows whether the graph can be evaluated
        if not _train(cfg, case, way, processes(cfg)[0], cfg.seeds[0], "train.epochs=1").evaluations:
            told = "choose a graph whose validation nodes have one class each"
            raise ConfigError(f"runs.{case.title} has no {_METRIC}: {told}")
    for seed, (way, p) in itertools.product(cfg.seeds, trained):
        trained[way, p].append(_train(cfg, case, way, p, seed))
    return trained


def processes(cfg: TimeToAccuracyKeys) -> list[int]:
    """The numbers of ranks for which there are devices."""
    return [p for p in cfg.processes if cfg.device == "cpu" or p <= torch.cuda.device_count()]


def _train(cfg: TimeToAccuracyKeys, case: GraphCase, way: str, p: int, seed: int, *own: str) -> TrainingCurve:
    """Train a graph on ``p`` ranks, which divide the CPU threads of the target among them."""
    run = cfg.runs[case.title]
    overrides = [*run.shared, *run.ways[way], *own, *place(cfg, p, seed)]
    return train(overrides, sampled=way != FULL, graph=case.graph).curve(_METRIC)


def add_rows(result: Result, name: str, trained: TrainedRuns, goals: list[float]) -> None:
    """Add a row for each way and number of ranks: medians over the seeds. One that never arrives counts as last."""
    of_full = dict[int, Value]()
    for (way, p), seeds in trained.items():
        arrivals = [training.reaching(goal) for training, goal in zip(seeds, goals, strict=True)]
        arrived = [evaluation for evaluation in arrivals if evaluation is not None]
        missing = [math.inf] * (len(arrivals) - len(arrived))
        seconds = sorted([*(evaluation.seconds for evaluation in arrived), *missing])
        epochs = median([*(evaluation.epoch for evaluation in arrived), *missing])
        best = [100 * training.best for training in seeds]
        time = _finite(median(seconds), f"not reached, best {max(best):.1f} %")
        if way == FULL:
            of_full[p] = time
        row: dict[str, Value] = {
            TIME: time,
            SPEEDUP: over(of_full.get(p), time),
            FIRST: _finite(seconds[0]),
            LAST: _finite(seconds[-1]),
            "resolution": max((evaluation.since_last for evaluation in arrived), default=None),
            "epochs": _finite(float(epochs)),
            "first epoch": median(training.seconds[0] for training in seeds),
            "an epoch": median(training.epoch_ms for training in seeds),
            "its steps": seeds[0].steps,
            "best accuracy": fmean(best),
            "spread": max(best) - min(best),
            "set-up": median(training.setup_s for training in seeds),
        }
        result.add((name, f"p={p}", way), row)


def _finite(value: float, otherwise: str = "not reached") -> Value:
    return value if math.isfinite(value) else otherwise


def compared(rows: list[TableRow]) -> list[str]:
    """Say, for each number of ranks, whether ``FULL`` or the best of the other ways arrives sooner.

    Args:
        rows: those of one graph, number of ranks by number of ranks.
    """
    by_ranks = itertools.groupby(rows, lambda row: row.labels[:2])
    return [f"{', '.join(where)}: {_soonest(of_ranks)}." for where, of_ranks in by_ranks]


def _soonest(rows: Iterable[TableRow]) -> str:
    ways = {row.labels[2]: row.cells for row in rows}
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


def _panel(name: str, trained: TrainedRuns, goals: list[float]) -> Curves:
    """The accuracy by seconds of training, both the mean over the seeds at each epoch."""
    curves = []
    for (way, p), seeds in trained.items():
        by_epoch = [{evaluation.epoch: evaluation for evaluation in training.evaluations} for training in seeds]
        shared = [[run[epoch] for run in by_epoch] for epoch in by_epoch[0] if all(epoch in run for run in by_epoch)]
        x = [fmean(evaluation.seconds for evaluation in of_epoch) for of_epoch in shared]
        y = [100 * fmean(evaluation.accuracy for evaluation in of_epoch) for of_epoch in shared]
        curves.append(Curve(f"{way}, p={p}", x, y, dashed=p > 1))
    end = max(max(curve.x, default=0.0) for curve in curves)
    curves.append(Curve("target", [0.0, end], [100 * fmean(goals)] * 2))
    return Curves(name, "seconds of training", "validation accuracy, %", curves)


_target = Target(
    ("graph", "ranks", "way"), train_ways, COLUMNS, finish=say_keys, cases=graphs, keys=TimeToAccuracyKeys, check=check
)
CASES = {"time_to_accuracy": _target}
"""The one target that is about no paper."""
