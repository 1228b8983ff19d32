"""Accuracy by epoch on full features, and on what codecs keep: figure 6 of the paper."""

import math
import statistics

from fullgnn.reproduce.graphs import Case
from fullgnn.reproduce.result import Cell, Curves, Result, mean_curve, reaching
from fullgnn.reproduce.sparsification.accuracy_config import Config
from fullgnn.reproduce.sparsification.training import FULL, kept_ways, train_one

SHARE = 0.99
"""The accuracy whose epoch is told is this part of the one that every run reaches at its best."""


def run(result: Result, cfg: Config, case: Case) -> None:
    """Train each model in each way with each seed."""
    for name in cfg.chosen_models:
        model, curves = cfg.models[name], []
        ways = (FULL, *kept_ways(cfg, case))
        runs = {kept: [train_one(cfg, case, model, kept, seed) for seed in cfg.seeds] for kept in ways}
        wanted = SHARE * min(max(one.curve) for own in runs.values() for one in own)
        for kept, own in runs.items():
            names = {"graph": case.dataset, "model": name, "codec": kept.name, "ratio": kept.ratio}
            cells = {
                "best accuracy": Cell(statistics.fmean(max(one.curve) for one in own), unit="%"),
                "epochs": Cell(statistics.fmean(reaching(one.curve, wanted) or math.inf for one in own)),
                "all epochs": Cell(statistics.fmean(len(one.curve) for one in own)),
            }
            labels = (case.title, model.title, kept.label)
            result.add(labels, cells, cfg.paper, **names)
            result.details[", ".join(labels)] = [vars(one) for one in own]
            curves.append(mean_curve(kept.label, [one.curve for one in own]))
        title = f"{case.title}, {model.title}"
        result.panels.append(Curves(title, "epochs", "accuracy of validation nodes, %", curves))
