"""Accuracy by epoch where every rank shuffles training nodes of its own, and where all are shuffled together."""

import statistics
from dataclasses import dataclass
from typing import Any

from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.graphs import Case, in_file
from fullgnn.bench.papers.jobs import train_by_command
from fullgnn.bench.papers.pagraph.config import Config, batch_size
from fullgnn.bench.papers.pagraph.epochs import Setting, preset, settings
from fullgnn.bench.papers.result import Cell, Curves, Result, Value, mean_curve, over, reaching
from fullgnn.storage.folder import temporary_folder

TOGETHER, PRECOMPUTED, LOCALLY = "plain, together", "cached + PP, together", "cached + PP, locally"
WAYS: dict[str, dict[str, Any]] = {
    TOGETHER: {},
    PRECOMPUTED: {"precomputed": True, "share": 1.0},
    LOCALLY: {"precomputed": True, "share": 1.0, "split": True},
}
SHARE = 0.99
"""The accuracy whose time is told is this part of the one that every run reaches at its best."""


@dataclass(frozen=True)
class Training:
    """The epochs of a run."""

    accuracy: list[float]  # of the validation nodes, per cent, after each
    seconds: list[float]  # of each, without its evaluation

    @property
    def epoch_s(self) -> float:
        """Seconds of an epoch, the median over those after the first, which compiles."""
        return statistics.median(self.seconds[1:] or self.seconds)


def run(result: Result, cfg: Config, case: Case) -> None:
    """Train in each way, with each seed."""
    for one in settings(cfg, [case]):
        runs = {way: [_train(cfg, one, keys, seed) for seed in cfg.seeds] for way, keys in WAYS.items()}
        wanted = SHARE * min(max(each.accuracy) for own in runs.values() for each in own)
        base = _reached(runs[TOGETHER], wanted)[1]
        for way, own in runs.items():
            best = [max(each.accuracy) for each in own]
            epochs, time = _reached(own, wanted)
            paper = published(cfg.paper, "speedup", **one.row(way=way))
            cells = {
                "accuracy": Cell(statistics.fmean(best), unit="%"),
                "spread": Cell(max(best) - min(best), unit="points"),
                "epochs": Cell(epochs),
                "time": Cell(time, unit="s", ratio=over(base, time), paper_ratio=paper),
            }
            labels = (case.title, one.name, way)
            result.add(labels, cells)
            result.details[", ".join(labels)] = [vars(each) for each in own]
        curves = [mean_curve(way, [each.accuracy for each in own]) for way, own in runs.items()]
        result.panels.append(Curves(f"{case.title}, {one.name}", "epochs", "accuracy of validation nodes, %", curves))


def _reached(runs: list[Training], wanted: float) -> tuple[Value, Value]:
    """The epochs in which all runs reach the accuracy, and their seconds, in the mean; or how many runs do."""
    epochs = [epoch for each in runs if (epoch := reaching(each.accuracy, wanted)) is not None]
    if len(epochs) < len(runs):
        return f"{len(epochs)} of {len(runs)} runs", "not reached"
    return statistics.fmean(epochs), statistics.fmean(n * each.epoch_s for n, each in zip(epochs, runs))


def _train(cfg: Config, one: Setting, keys: dict[str, Any], seed: int) -> Training:
    with temporary_folder() as folder:
        one.case.graph.save(folder / "graph.npz")
        overrides = [
            *in_file(folder / "graph.npz"),
            f"model.num_layers={len(one.draws)}",
            f"model.hidden_channels={one.case.hidden}",
            "optimizer.weight_decay=0",
            f"loader.batch_size={batch_size(cfg, one.case) * one.ranks}",
            f"train.epochs={cfg.epochs}",
            f"runtime.nproc={one.ranks}",
            f"runtime.threads={cfg.threads}",
            f"runtime.device={cfg.device}",
            f"seed={seed}",
            *preset(cfg, one, **keys).split()[1:],
        ]
        _, epochs = train_by_command(overrides, sampled=True)
    accuracy = [100 * epoch["val_accuracy"] for epoch in epochs]
    return Training(accuracy, [epoch["time_ms"]["epoch"] / 1e3 for epoch in epochs])
