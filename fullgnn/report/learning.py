"""Section of a report: what the runs learned."""

import math

from fullgnn.report.figures import Figures
from fullgnn.report.markup import Markup, numbers, paragraph, side_by_side
from fullgnn.report.plots import curves
from fullgnn.report.runs import Run
from fullgnn.report.wording import absent, digits, of, shown
from fullgnn.telemetry.table import percent

CURVES = (
    ("loss", "training loss"),
    ("train_accuracy", "train accuracy"),
    ("val_accuracy", "validation accuracy"),
    ("test_accuracy", "test accuracy"),
)


def loss_and_accuracy(runs: list[Run], figures: Figures) -> list[Markup]:
    """Curves of all runs in one plot each."""
    drawn, columns = [], []
    for key, title in CURVES:
        show = digits if key == "loss" else percent
        lines = {}
        for position, run in enumerate(runs):
            points = {line["epoch"]: _number(line[key]) for line in run.epochs if key in line}
            if not all(map(math.isnan, points.values())):  # none at all, or a split without nodes
                lines[position] = run.name, points
                columns.append((of(run, title, runs), points, show))
        if lines:
            ends = "; ".join(
                f"{name} from {shown(list(points.values())[0], show)} to {shown(list(points.values())[-1], show)}"
                for name, points in lines.values()
            )
            alt = f"{title.capitalize()} by epoch: {ends}."
            drawn.append(figures.add(key, alt, curves(title, lines, in_percent=key != "loss")))
    epochs = sorted({epoch for _, points, _ in columns for epoch in points})
    rows = [[str(epoch), *(shown(points.get(epoch), show) for _, points, show in columns)] for epoch in epochs]
    header = ["epoch", *(name for name, *_ in columns)]
    return [
        paragraph(
            "The loss is the mean over the training nodes before the update, with dropout. Accuracies are those after "
            "it, without dropout, where the epoch was evaluated.",
            class_="muted",
        ),
        side_by_side(drawn),
        *([numbers("Loss and accuracy by epoch", header, rows)] if rows else []),
        *absent(runs, (run for run in runs if run.epochs), "epochs.jsonl"),
    ]


def _number(recorded: float | None) -> float:
    """null is a loss that was not finite, or the accuracy of a split without nodes."""
    return math.nan if recorded is None else float(recorded)
