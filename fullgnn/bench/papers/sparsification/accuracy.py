"""Accuracy on full features, and on what codecs keep.

``losses`` has what codecs cost: means over pairs of runs that have the same split and the same first weights.
``curves`` has the accuracy by epoch: figure 6 of the paper.
"""

import logging
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.curves import NEARLY, mean_curve, reaching
from fullgnn.bench.papers.graphs import GraphCase
from fullgnn.bench.papers.result import Bars, Cell, Curve, Curves, Result, Series, TableRow, number
from fullgnn.bench.papers.sparsification import similarity
from fullgnn.bench.papers.sparsification.data import AccuracyKeys, check, data_cases
from fullgnn.bench.papers.sparsification.training import (
    FLOAT_BYTES,
    FULL,
    Kept,
    KnownTraining,
    encode,
    kept_ways,
    train_one,
)
from fullgnn.bench.papers.target import Target

log = logging.getLogger(__name__)

RATIO, BYTES, LEARNT = "ratio", "bytes of a node", "learnt"
ACCURACY, LOSS, ERROR, ENCODING, EPOCH = "accuracy", "loss", "standard error", "encoding", "epoch"
COLUMNS = (RATIO, BYTES, LEARNT, ACCURACY, LOSS, ERROR, ENCODING, EPOCH)
TOO_EASY = "does not count"

DIGITS = 9
"""Decimal places to which differences of accuracies are rounded, so that differences that are equal stay equal."""


@dataclass(frozen=True)
class PairedLoss:
    """The loss of accuracy over pairs, in points."""

    mean: float
    standard_error: float | None  # None: of one pair alone


def paired(full: Sequence[float], kept: Sequence[float]) -> PairedLoss:
    """The mean of the differences ``full - kept``, pair by pair, and its standard error.

    Args:
        full, kept: (pairs,) accuracies; the two of a pair have the same split and the same first weights.
    """
    differences = [round(before - after, DIGITS) for before, after in zip(full, kept, strict=True)]
    several = len(differences) > 1
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if several else None
    return PairedLoss(statistics.fmean(differences), error)


def _runs(result: Result, cfg: AccuracyKeys, case: GraphCase, name: str) -> Iterator[tuple[Kept, list[KnownTraining]]]:
    """Train a model with every seed, on full features first, and then on what each codec keeps."""
    for kept in (FULL, *kept_ways(cfg, case)):
        begin = time.perf_counter()
        own = [train_one(cfg, case, cfg.models[name], kept, seed) for seed in cfg.seeds]
        labels, accuracy = _labels(cfg, case, name, kept), statistics.fmean(run.accuracy for run in own)
        result.details[", ".join(labels)] = [vars(run) for run in own]
        log.info("%s, %s, %s: %.1f %%, %.0f s", *labels, accuracy, time.perf_counter() - begin)
        yield kept, own


def _labels(cfg: AccuracyKeys, case: GraphCase, name: str, kept: Kept) -> tuple[str, str, str]:
    return case.title, cfg.models[name].title, kept.label


def _add(result: Result, cfg: AccuracyKeys, case: GraphCase, name: str, kept: Kept, cells: dict[str, Cell]) -> None:
    names: dict[str, Any] = {"graph": case.dataset, "model": name, "codec": kept.name, "ratio": kept.ratio}
    result.add(_labels(cfg, case, name, kept), cells, **names)


def losses(result: Result, cfg: AccuracyKeys, case: GraphCase) -> None:
    """What codecs cost every model."""
    tables = []
    for name in cfg.chosen_models:
        first, full = len(result.rows), list[float]()
        for kept, own in _runs(result, cfg, case, name):
            full = full or [run.accuracy for run in own]
            _add(result, cfg, case, name, kept, _cells(cfg, case, name, kept, own, full))
        tables.append(result.rows[first:])
        result.notes += [*_too_easy(cfg, tables[-1]), *_best(cfg, case, name, tables[-1])]
    result.panels += _panels(case.title, tables)


def _cells(
    cfg: AccuracyKeys, case: GraphCase, name: str, kept: Kept, own: list[KnownTraining], full: list[float]
) -> dict[str, Cell]:
    cells = {
        RATIO: Cell(1.0, origin="derived"),
        BYTES: Cell(FLOAT_BYTES * case.graph.num_features, origin="derived"),
        ACCURACY: Cell(statistics.fmean(run.accuracy for run in own), unit="%"),
        EPOCH: Cell(statistics.median(run.epoch_s for run in own), unit="s"),
    }
    encoding = encode(cfg, case, cfg.models[name], kept)
    if encoding is None:
        return cells
    loss = paired(full, [run.accuracy for run in own])
    counts = statistics.fmean(full) < cfg.ceiling
    return cells | {
        RATIO: Cell(FLOAT_BYTES * case.graph.num_features / encoding.row_bytes, origin="derived"),
        BYTES: Cell(encoding.row_bytes, origin="derived"),
        LEARNT: Cell(encoding.learnt_bytes / case.graph.num_nodes, origin="derived"),
        LOSS: Cell(loss.mean if counts else TOO_EASY, unit="points"),
        ERROR: Cell(loss.standard_error if counts else None, unit="points"),
        ENCODING: Cell(encoding.seconds, unit="s"),
    }


def _too_easy(cfg: AccuracyKeys, rows: list[TableRow]) -> list[str]:
    """A sentence on a model that full features make too accurate for a loss to be seen."""
    accuracy = number(rows[0].cells[ACCURACY].ours)
    if accuracy is None or accuracy < cfg.ceiling:
        return []
    return [
        f"{_name(rows)}: with full features the accuracy is {accuracy:.1f} %. Where it reaches {cfg.ceiling:g} %, no"
        " loss can be seen, and the rows do not count."
    ]


def _best(cfg: AccuracyKeys, case: GraphCase, model: str, rows: list[TableRow]) -> list[str]:
    """Sentences on the best codec near each ratio of ``best_at``."""
    sentences = []
    for ratio in cfg.best_at:
        near = [row for row in rows[1:] if row.labels[2].endswith(f" {ratio} x")]
        losses = [(loss, row) for row in near if (loss := number(row.cells[LOSS].ours)) is not None]
        if losses:
            loss, best = min(losses, key=lambda pair: pair[0])
            error, aim = (
                number(best.cells[ERROR].ours),
                published(cfg.aims, "loss", graph=case.dataset, model=model, ratio=ratio),
            )
            spread = "" if error is None else f", standard error {error:.2f}"
            within = "" if aim is None else f", {'within' if loss <= aim else 'beyond'} the aim of {aim:g}"
            told = f"near {ratio} x {codec_title(best)} loses least, {loss:.2f} points{spread}{within}"
            sentences.append(f"{_name(rows)}: {told}.")
    return sentences


def codec_title(row: TableRow) -> str:
    """The codec of a row, whose label is ``Kept.label``."""
    return row.labels[2].rsplit(" ", 2)[0]


def _name(rows: list[TableRow]) -> str:
    return ", ".join(rows[0].labels[:2])


YLABEL = "loss of accuracy, points"


def _panels(title: str, tables: list[list[TableRow]]) -> Sequence[Bars | Curves]:
    """The losses of a graph by the bytes of a node, a panel for each model; bars, if no codec has several ratios.

    Args:
        tables: the rows of each model.
    """
    panels = [_curves(rows) for rows in tables]
    if any(len(curve.x) > 1 for panel in panels for curve in panel.curves):
        return panels
    series = []
    for rows in zip(*(table[1:] for table in tables), strict=True):  # of all models, with the same codec
        losses = [row.cells[LOSS] for row in rows]
        errors = [number(row.cells[ERROR].ours) or 0.0 for row in rows]
        ours, paper = [number(cell.ours) for cell in losses], [number(cell.paper) for cell in losses]
        series.append(Series(rows[0].labels[2], ours, paper, error=errors))
    return [Bars(title, YLABEL, [rows[0].labels[1] for rows in tables], series)]


def _curves(rows: list[TableRow]) -> Curves:
    """The losses of a model, a curve for each codec, and dashed ones of the paper."""
    points: dict[tuple[str, bool], list[tuple[float, float, float]]] = {}
    for row in rows[1:]:
        cell, title, num_bytes = row.cells[LOSS], codec_title(row), number(row.cells[BYTES].ours)
        for loss, name in ((number(cell.ours), (title, False)), (number(cell.paper), (f"{title}, paper", True))):
            if loss is not None and num_bytes is not None:
                error = 0.0 if name[1] else number(row.cells[ERROR].ours) or 0.0
                points.setdefault(name, []).append((num_bytes, loss, error))
    lines = {name: [list(column) for column in zip(*sorted(some))] for name, some in points.items()}
    curves = [Curve(name, x, y, dashed, [] if dashed else error) for (name, dashed), (x, y, error) in lines.items()]
    return Curves(_name(rows), "bytes of a node's features", YLABEL, curves, log_x=True)


def curves(result: Result, cfg: AccuracyKeys, case: GraphCase) -> None:
    """The accuracy of every model by epoch."""
    for name in cfg.chosen_models:
        runs = dict(_runs(result, cfg, case, name))
        wanted = NEARLY * min(max(run.curve) for own in runs.values() for run in own)
        for kept, own in runs.items():
            cells = {
                "best accuracy": Cell(statistics.fmean(max(run.curve) for run in own), unit="%"),
                "epochs": Cell(statistics.fmean(reaching(run.curve, wanted) or math.inf for run in own)),
                "all epochs": Cell(statistics.fmean(len(run.curve) for run in own)),
            }
            _add(result, cfg, case, name, kept, cells)
        means = [mean_curve(kept.label, [run.curve for run in own]) for kept, own in runs.items()]
        title = f"{case.title}, {cfg.models[name].title}"
        result.panels.append(Curves(title, "epochs", "accuracy of validation nodes, %", means))


def _cases(cfg: AccuracyKeys) -> list[GraphCase]:
    """The graphs, of which all codecs have taken their keys, before hours of training."""
    cases = data_cases(cfg)
    for case in cases:
        kept_ways(cfg, case)
    return cases


_target = partial(Target, cases=_cases, keys=AccuracyKeys, check=check)
CASES = {
    "losses": _target(("graph", "model", "features"), losses, COLUMNS),
    "similarity": _target(("graph", "model", "features", "weights"), similarity.similarities),
    "curves": _target(("graph", "model", "features"), curves),
}
"""What the targets of accuracy measure, by their key ``case``."""
