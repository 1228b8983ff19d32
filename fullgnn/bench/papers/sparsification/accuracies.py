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

from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.result import (
    Bars,
    Cell,
    Curve,
    Curves,
    Result,
    Series,
    TableRow,
    mean_curve,
    number,
    reaching,
)
from fullgnn.bench.papers.sparsification.accuracy_config import Config
from fullgnn.bench.papers.sparsification.training import FLOAT_BYTES, FULL, Kept, Trained, encode, kept_ways, train_one

log = logging.getLogger(__name__)

RATIO, BYTES, LEARNT = "ratio", "bytes of a node", "learnt"
ACCURACY, LOSS, ERROR, ENCODING, EPOCH = "accuracy", "loss", "standard error", "encoding", "epoch"
COLUMNS = (RATIO, BYTES, LEARNT, ACCURACY, LOSS, ERROR, ENCODING, EPOCH)
TOO_EASY = "does not count"

DIGITS = 9
"""Decimal places to which differences of accuracies are rounded, so that differences that are equal stay equal."""


@dataclass(frozen=True)
class Loss:
    """The loss of accuracy over pairs, in points."""

    mean: float
    standard_error: float | None  # None: of one pair alone


def paired(full: Sequence[float], kept: Sequence[float]) -> Loss:
    """The mean of the differences ``full - kept``, pair by pair, and its standard error.

    Args:
        full, kept: (pairs,) accuracies; the two of a pair have the same split and the same first weights.
    """
    differences = [round(before - after, DIGITS) for before, after in zip(full, kept, strict=True)]
    several = len(differences) > 1
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if several else None
    return Loss(statistics.fmean(differences), error)


def _runs(result: Result, cfg: Config, case: Case, name: str) -> Iterator[tuple[Kept, list[Trained]]]:
    """Train a model with every seed, on full features first, and then on what each codec keeps."""
    for kept in (FULL, *kept_ways(cfg, case)):
        begin = time.perf_counter()
        own = [train_one(cfg, case, cfg.models[name], kept, seed) for seed in cfg.seeds]
        labels, accuracy = _labels(cfg, case, name, kept), statistics.fmean(one.accuracy for one in own)
        result.details[", ".join(labels)] = [vars(one) for one in own]
        log.info("%s, %s, %s: %.1f %%, %.0f s", *labels, accuracy, time.perf_counter() - begin)
        yield kept, own


def _labels(cfg: Config, case: Case, name: str, kept: Kept) -> tuple[str, str, str]:
    return case.title, cfg.models[name].title, kept.label


def _add(result: Result, cfg: Config, case: Case, name: str, kept: Kept, cells: dict[str, Cell]) -> None:
    names = {"graph": case.dataset, "model": name, "codec": kept.name, "ratio": kept.ratio}
    result.add(_labels(cfg, case, name, kept), cells, cfg.paper, **names)


def losses(result: Result, cfg: Config, case: Case) -> None:
    """What codecs cost every model."""
    tables = []
    for name in cfg.chosen_models:
        first, full = len(result.rows), list[float]()
        for kept, own in _runs(result, cfg, case, name):
            full = full or [one.accuracy for one in own]
            _add(result, cfg, case, name, kept, _cells(cfg, case, name, kept, own, full))
        tables.append(result.rows[first:])
        result.notes += [*_too_easy(cfg, tables[-1]), *_best(cfg, case, name, tables[-1])]
    result.panels += _panels(case.title, tables)


def _cells(cfg: Config, case: Case, name: str, kept: Kept, own: list[Trained], full: list[float]) -> dict[str, Cell]:
    cells = {
        RATIO: Cell(1.0, origin="derived"),
        BYTES: Cell(FLOAT_BYTES * case.graph.num_features, origin="derived"),
        ACCURACY: Cell(statistics.fmean(one.accuracy for one in own), unit="%"),
        EPOCH: Cell(statistics.median(one.epoch_s for one in own), unit="s"),
    }
    encoding = encode(cfg, case, cfg.models[name], kept)
    if encoding is None:
        return cells
    loss = paired(full, [one.accuracy for one in own])
    counts = statistics.fmean(full) < cfg.ceiling
    return cells | {
        RATIO: Cell(FLOAT_BYTES * case.graph.num_features / encoding.row_bytes, origin="derived"),
        BYTES: Cell(encoding.row_bytes, origin="derived"),
        LEARNT: Cell(encoding.learnt_bytes / case.graph.num_nodes, origin="derived"),
        LOSS: Cell(loss.mean if counts else TOO_EASY, unit="points"),
        ERROR: Cell(loss.standard_error if counts else None, unit="points"),
        ENCODING: Cell(encoding.seconds, unit="s"),
    }


def _too_easy(cfg: Config, rows: list[TableRow]) -> list[str]:
    """A sentence on a model that full features make too accurate for a loss to be seen."""
    accuracy = number(rows[0].cells[ACCURACY].ours)
    if accuracy is None or accuracy < cfg.ceiling:
        return []
    return [
        f"{_name(rows)}: with full features the accuracy is {accuracy:.1f} %. Where it reaches {cfg.ceiling:g} %, no"
        " loss can be seen, and the rows do not count."
    ]


def _best(cfg: Config, case: Case, model: str, rows: list[TableRow]) -> list[str]:
    """Sentences on the best codec near each ratio of ``best_at``."""
    found = []
    for ratio in cfg.best_at:
        near = [row for row in rows[1:] if row.labels[2].endswith(f" {ratio} x")]
        losses = [(loss, row) for row in near if (loss := number(row.cells[LOSS].ours)) is not None]
        if losses:
            loss, best = min(losses, key=lambda one: one[0])
            error, aim = (
                number(best.cells[ERROR].ours),
                published(cfg.aims, "loss", graph=case.dataset, model=model, ratio=ratio),
            )
            spread = "" if error is None else f", standard error {error:.2f}"
            within = "" if aim is None else f", {'within' if loss <= aim else 'beyond'} the aim of {aim:g}"
            told = f"near {ratio} x {codec_title(best)} loses least, {loss:.2f} points{spread}{within}"
            found.append(f"{_name(rows)}: {told}.")
    return found


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
        ours, paper = [number(one.ours) for one in losses], [number(one.paper) for one in losses]
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


SHARE = 0.99
"""The accuracy whose epoch is told is this part of the one that every run reaches at its best."""


def curves(result: Result, cfg: Config, case: Case) -> None:
    """The accuracy of every model by epoch."""
    for name in cfg.chosen_models:
        runs = dict(_runs(result, cfg, case, name))
        wanted = SHARE * min(max(one.curve) for own in runs.values() for one in own)
        for kept, own in runs.items():
            cells = {
                "best accuracy": Cell(statistics.fmean(max(one.curve) for one in own), unit="%"),
                "epochs": Cell(statistics.fmean(reaching(one.curve, wanted) or math.inf for one in own)),
                "all epochs": Cell(statistics.fmean(len(one.curve) for one in own)),
            }
            _add(result, cfg, case, name, kept, cells)
        means = [mean_curve(kept.label, [one.curve for one in own]) for kept, own in runs.items()]
        title = f"{case.title}, {cfg.models[name].title}"
        result.panels.append(Curves(title, "epochs", "accuracy of validation nodes, %", means))
