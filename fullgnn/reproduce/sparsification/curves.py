"""Accuracy by epoch on full features, and on what codecs keep: figure 6 of the paper."""

import math
import statistics
from typing import Any

from fullgnn.reproduce.result import Cell, Curves, Result, TableRow, mean_curve, reaching
from fullgnn.reproduce.sparsification.accuracy_config import Config
from fullgnn.reproduce.sparsification.data import cases
from fullgnn.reproduce.sparsification.training import FULL, kept_ways, train_one

SHARE = 0.99
"""The accuracy whose epoch is told is this part of the one that every run reaches at its best."""

BEST, EPOCHS, ALL = "best accuracy", "epochs", "all epochs"


def run(cfg: Config) -> Result:
    """Train each model in each way with each seed."""
    found, rows, panels, details = cases(cfg), [], [], dict[str, Any]()
    for case in found:
        for name in cfg.chosen_models:
            model = cfg.models[name]
            ways = (FULL, *kept_ways(cfg, case))
            runs = {kept: [train_one(cfg, case, model, kept, seed) for seed in cfg.seeds] for kept in ways}
            wanted = SHARE * min(max(one.curve) for own in runs.values() for one in own)
            curves = []
            for kept, own in runs.items():
                row = {"graph": case.dataset, "model": name, "codec": kept.name, "ratio": kept.ratio}
                cells = {
                    BEST: Cell(statistics.fmean(max(one.curve) for one in own), cfg.published(BEST, **row), "%"),
                    EPOCHS: Cell(statistics.fmean(reaching(one.curve, wanted) or math.inf for one in own)),
                    ALL: Cell(statistics.fmean(len(one.curve) for one in own)),
                }
                rows.append(TableRow((case.title, model.title, kept.label), cells))
                curves.append(mean_curve(kept.label, [one.curve for one in own]))
                details[f"{case.title}, {model.title}, {kept.label}"] = [vars(one) for one in own]
            title = f"{case.title}, {model.title}"
            panels.append(Curves(title, "epochs", "accuracy of validation nodes, %", curves))
    labels = ("graph", "model", "features")
    return Result(labels, (BEST, EPOCHS, ALL), rows, panels, found, cfg.notes, details)
