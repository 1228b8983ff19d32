"""A model on full features, and on what codecs keep of them: accuracy, and what the layers put out.

losses         what codecs cost: means over pairs of runs that have the same split and the same first weights
curves         the accuracy by epoch: figure 6 of the paper
similarities   how much the output of each layer resembles that of full features, before and after training: table 2
"""

import functools
import itertools
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median, stdev

import numpy as np
from torch import Tensor

from fullgnn.bench.papers import result as results
from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.graphs import GraphCase
from fullgnn.bench.papers.result import OURS_AND_PAPER, Cell, Curve, Curves, Result, TableRow, cells, number
from fullgnn.bench.papers.sparsification import training
from fullgnn.bench.papers.sparsification.training import FULL, AccuracyKeys, CodecSetting, KnownTraining, TrainingJob
from fullgnn.bench.papers.target import Target
from fullgnn.bench.papers.trainings import NEARLY, mean_curve, run_here
from fullgnn.engine.passes import predict
from fullgnn.models.stack import Stack

log = logging.getLogger(__name__)

RATIO, BYTES, LEARNT = "ratio", "bytes of a node", "learnt"
ACCURACY, LOSS, ERROR, ENCODING, EPOCH = "accuracy", "loss", "standard error", "encoding", "epoch"
COLUMNS = (RATIO, BYTES, LEARNT, ACCURACY, LOSS, ERROR, ENCODING, EPOCH)
TOO_EASY = "does not count"
POINTS = "loss of accuracy, points"

DIGITS = 9
"""Decimal places to which differences of accuracies are rounded, so that differences that are equal stay equal."""

ByCodec = dict[CodecSetting, TableRow]
"""The rows of a model, but for that with full features."""


def _jobs(cfg: AccuracyKeys, case: GraphCase) -> list[TrainingJob]:
    return [TrainingJob(cfg, case, name) for name in cfg.chosen_models]


def _runs(result: Result, job: TrainingJob) -> Iterator[tuple[CodecSetting, list[KnownTraining]]]:
    """Train with every seed, on full features first, and then on what each codec keeps."""
    for codec in (FULL, *job.codecs):
        begin, title = time.perf_counter(), f"{job.title}, {codec.label}"
        own = [job.train(codec, seed) for seed in job.cfg.seeds]
        result.details[title] = [vars(run) for run in own]
        accuracy = fmean(run.accuracy for run in own)
        log.info("%s: %.1f %%, %.0f s", title, accuracy, time.perf_counter() - begin)
        yield codec, own


def losses(result: Result, cfg: AccuracyKeys, case: GraphCase) -> None:
    """What codecs cost every model."""
    tables = {}
    for job in _jobs(cfg, case):
        runs = dict(_runs(result, job))
        full = [run.accuracy for run in runs[FULL]]
        rows = {codec: job.add(result, codec, _cells(job, codec, own, full)) for codec, own in runs.items()}
        del rows[FULL]
        result.notes += _sentences(job, rows, fmean(full))
        tables[job] = rows
    panels = [_curves(job.title, rows) for job, rows in tables.items()]
    several = any(len(curve.x) > 1 for panel in panels for curve in panel.curves)
    result.panels += panels if several else [_bars(case.title, tables)]


def _cells(job: TrainingJob, codec: CodecSetting, own: list[KnownTraining], full: list[float]) -> dict[str, Cell]:
    accuracies, encoded = [run.accuracy for run in own], job.encoded(codec)
    row = cells({RATIO: job.ratio(codec), BYTES: encoded.row_bytes}, origin="derived")
    row |= cells({ACCURACY: fmean(accuracies)}, "%")
    row |= cells({EPOCH: median(run.epoch_s for run in own)}, "s")
    if codec is not FULL:
        loss, error = paired(full, accuracies) if fmean(full) < job.cfg.ceiling else (TOO_EASY, None)
        row |= cells({LEARNT: encoded.learnt_bytes / job.case.graph.num_nodes}, origin="derived")
        row |= cells({LOSS: loss, ERROR: error}, "points") | cells({ENCODING: encoded.seconds}, "s")
    return row


def paired(full: Sequence[float], kept: Sequence[float]) -> tuple[float, float | None]:
    """The loss of accuracy in points: the mean of ``full - kept``, pair by pair, and its standard error.

    Args:
        full, kept: (pairs,) accuracies; the two of a pair have the same split and the same first weights.

    Returns:
        of one pair alone, there is no standard error: None.
    """
    differences = [round(before - after, DIGITS) for before, after in zip(full, kept, strict=True)]
    error = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else None
    return fmean(differences), error


def _sentences(job: TrainingJob, rows: ByCodec, accuracy: float) -> Iterator[str]:
    """What is to be said of a model that full features make too accurate for a loss to be seen, and of the best codec
    near each ratio of ``best_at``."""
    if not accuracy < job.cfg.ceiling:
        seen = f"Where it reaches {job.cfg.ceiling:g} %, no loss can be seen, and the rows do not count."
        yield f"{job.title}: with full features the accuracy is {accuracy:.1f} %. {seen}"
    for ratio in job.cfg.best_at:
        near = [(codec, row.cells) for codec, row in rows.items() if codec.ratio == ratio]
        losses = [(loss, codec, own) for codec, own in near if (loss := number(own[LOSS].ours)) is not None]
        if losses:
            loss, codec, own = min(losses, key=lambda cost: cost[0])
            error = number(own[ERROR].ours)
            aim = published(job.cfg.aims, "loss", graph=job.case.dataset, model=job.name, ratio=ratio)
            spread = "" if error is None else f", standard error {error:.2f}"
            within = "" if aim is None else f", {'within' if loss <= aim else 'beyond'} the aim of {aim:g}"
            yield f"{job.title}: near {ratio} x {codec.title} loses least, {loss:.2f} points{spread}{within}."


def _bars(title: str, tables: dict[TrainingJob, ByCodec]) -> results.Bars:
    """The losses of a graph, a group for each model, where no codec has several ratios."""
    series = []
    for codec in next(iter(tables.values())):
        of_codec = [rows[codec].cells for rows in tables.values()]
        ours, paper = ([number(getattr(row[LOSS], source)) for row in of_codec] for source in OURS_AND_PAPER)
        errors = [number(row[ERROR].ours) or 0.0 for row in of_codec]
        series.append(results.BarSeries(codec.label, ours, paper, error=errors))
    return results.Bars(title, POINTS, [job.model.title for job in tables], series)


def _curves(title: str, rows: ByCodec) -> Curves:
    """The losses of a model by the bytes of a node, a curve for each codec, and dashed ones of the paper."""
    curves = []
    for codec, source in itertools.product(dict.fromkeys(codec.title for codec in rows), OURS_AND_PAPER):
        own = [row.cells for setting, row in rows.items() if setting.title == codec]
        columns = [(row[BYTES].ours, getattr(row[LOSS], source), row[ERROR].ours or 0.0) for row in own]
        points = sorted(tuple(map(float, point)) for point in columns if number(point[1]) is not None)
        if points:
            x, y, error = map(list, zip(*points))
            ours = source == "ours"
            curves.append(Curve(codec if ours else f"{codec}, paper", x, y, not ours, error if ours else []))
    return Curves(title, "bytes of a node's features", POINTS, curves, log_x=True)


def curves(result: Result, cfg: AccuracyKeys, case: GraphCase) -> None:
    """The accuracy of every model by epoch."""
    for job in _jobs(cfg, case):
        by_codec = {codec: [run.curve for run in own] for codec, own in _runs(result, job)}
        wanted = NEARLY * min(max(curve) for own in by_codec.values() for curve in own)
        for codec, own in by_codec.items():
            first = [next((k for k, reached in enumerate(curve, 1) if reached >= wanted), math.inf) for curve in own]
            row = cells({"best accuracy": fmean(map(max, own))}, "%")
            job.add(result, codec, row | cells({"epochs": fmean(first), "all epochs": fmean(map(len, own))}))
        means = [mean_curve(codec.label, own) for codec, own in by_codec.items()]
        result.panels.append(Curves(job.title, "epochs", "accuracy of validation nodes, %", means))


INPUT, SAME = "input", "same prediction"
FIRST, SHARED, OWN = "first", "full's", "own"
WEIGHTS = (FIRST, SHARED, OWN)
"""Weights: those before any training; those that full features have trained; and those that each has trained with its
own features, from the same first ones. Only in the last block do the two models differ."""


def similarities(result: Result, cfg: AccuracyKeys, case: GraphCase) -> None:
    """Compare the outputs at every ratio, with the first weights and after training."""
    for job, weights in itertools.product(_jobs(cfg, case), WEIGHTS if case.dataset in cfg.trained_on else (FIRST,)):
        begin, title, rows = time.perf_counter(), f"{job.title}, {weights} weights", dict[str, TableRow]()
        for codec in job.codecs:
            *means, same = (fmean(of_seeds) for of_seeds in zip(*_similarities(job, codec, weights)))
            layers = {f"layer {layer}" if layer else INPUT: mean for layer, mean in enumerate(means)}
            row = cells({RATIO: job.ratio(codec)}, origin="derived") | cells(layers) | cells({SAME: same}, "%")
            rows[codec.label] = job.add(result, codec, row, weights=weights)
        drawn = [row for row in results.transposed(rows) if row.labels[0] not in (RATIO, SAME)]
        result.panels += results.bars(title, "cosine similarity", drawn, list(rows), OURS_AND_PAPER)
        log.info("%s: %.0f s", title, time.perf_counter() - begin)
    result.columns = [*dict.fromkeys(name for row in result.rows for name in row.cells if name != SAME), SAME]


def _similarities(job: TrainingJob, codec: CodecSetting, weights: str) -> Iterator[list[float]]:
    """For each seed: the similarity of each layer, and the share of predictions that are the same."""
    for seed in job.cfg.seeds:
        full = _full_outputs(job, seed, weights != FIRST)
        own = outputs(job, codec, seed, {FIRST: None, SHARED: FULL, OWN: codec}[weights])
        layers = [similarity(before, after) for before, after in zip(full, own, strict=True)]
        yield [*layers, 100 * float(np.mean(full[-1].argmax(1) == own[-1].argmax(1)))]


def similarity(full: np.ndarray, kept: np.ndarray) -> float:
    """The cosine of two rows, the mean over the nodes; a node without a direction in one of the two does not count.

    Args:
        full, kept: (num_nodes, F).
    """
    product = functools.partial(np.einsum, "ij,ij->i", dtype=np.float64)
    lengths = np.sqrt(product(full, full)) * np.sqrt(product(kept, kept))
    counts = lengths > 0
    return float(np.mean(product(full, kept)[counts] / lengths[counts]))


def outputs(job: TrainingJob, codec: CodecSetting, seed: int, trained: CodecSetting | None) -> list[np.ndarray]:
    """The input of a layered model, and the (num_nodes, F) output of each layer without dropout.

    Args:
        trained: what the features were read as where the weights were trained; None: they are the first ones.
    """
    overrides = [*job.overrides(codec, seed), "optimizations.cache_aggregation=false"]
    weights = None if trained is None else _weights(job, trained, seed)
    with run_here(overrides, job.graph(seed), job.context(codec)) as run:
        if weights is not None:
            run.model.load_state_dict(weights)
        assert isinstance(run.model, Stack) and isinstance(run.graph.features, Tensor)
        rows = [run.graph.features.cpu().numpy()]
        for layer in run.model.layers:
            layer.register_forward_hook(lambda module, args, output: rows.append(output.detach().cpu().numpy()))
        predict(run)
    return rows


@functools.lru_cache(maxsize=4)
def _full_outputs(job: TrainingJob, seed: int, trained: bool) -> list[np.ndarray]:
    """The outputs with full features, with which those of all codecs are compared."""
    return outputs(job, FULL, seed, FULL if trained else None)


@functools.cache
def _weights(job: TrainingJob, codec: CodecSetting, seed: int) -> Mapping[str, Tensor]:
    """The parameters by name after training, at the epoch with the best validation."""
    best = job.fit(codec, seed).best
    assert best is not None, "there are validation nodes"
    return best.model


_target = functools.partial(Target, cases=training.cases, keys=AccuracyKeys, check=training.check_split)
CASES = {
    "losses": _target(("graph", "model", "features"), losses, COLUMNS),
    "similarity": _target(("graph", "model", "features", "weights"), similarities),
    "curves": _target(("graph", "model", "features"), curves),
}
"""What the targets of accuracy measure, by their key ``case``."""
