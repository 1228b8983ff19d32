"""Figure 7: loss and test accuracy epoch by epoch, ours and a plain PyTorch GCN from the same weights."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fullgnn.bench.papers.config import Keys
from fullgnn.bench.papers.graphs import load
from fullgnn.bench.papers.result import (
    Cell,
    Curve,
    Curves,
    Result,
    TableRow,
    number,
    over,
    rows_of,
    speedups,
    with_label,
)
from fullgnn.bench.papers.trainings import num_epochs, run_config, train_ranks
from fullgnn.bench.peers.torch_sparse import gcn
from fullgnn.bench.peers.training import trainer
from fullgnn.bench.problem import make_problem
from fullgnn.engine.run import build_model
from fullgnn.graph import Graph
from fullgnn.telemetry.timing import wall_ms

PLAIN = "PyTorch"
TIME, LOSS_DIFFERENCE = "time to the same loss", "largest difference of the loss"


@dataclass(frozen=True)
class LossCurve:
    """One run, epoch by epoch."""

    loss: list[float]  # before the update
    accuracy: list[float]  # of the test nodes, after the update
    seconds: list[float]  # of the step alone, without evaluation
    setup_s: float  # before the first step

    @property
    def elapsed_s(self) -> list[float]:
        """At the end of each step, from the end of the first, which warms up: it allocates, compiles and connects."""
        return [float(total) for total in np.cumsum([0.0, *self.seconds[1:]])]

    def seconds_to(self, loss: float) -> float | None:
        """The time of the first step with this ``loss`` or less; None if no step has it."""
        return next((seconds for seconds, own in zip(self.elapsed_s, self.loss) if own <= loss), None)


Runs = dict[str, LossCurve]
"""By column: the plain GCN, then ours by number of processes."""


def convergence(result: Result, cfg: Keys) -> None:
    """Train all of them on each graph; the processes of ours are real ones."""
    result.columns = (PLAIN, *(f"ours p={p}" for p in processes(cfg)))
    chosen = [(case.title, case.graph, case.hidden, num_epochs(cfg, case)) for case in result.cases]
    chosen += [(name, load(f"dataset={name}"), cfg.other_hidden, cfg.epochs or cfg.few_epochs) for name in cfg.others]
    for title, graph, hidden, epochs in chosen:
        runs = {PLAIN: train_plain(cfg, graph, hidden, epochs)}
        runs |= {f"ours p={p}": train_ours(cfg, graph, hidden, epochs, p) for p in processes(cfg)}
        result.rows += _rows(title, runs, cfg.tolerance)
        result.panels += _panels(title, runs)
        result.details[title] = {name: vars(run) for name, run in runs.items()}
    result.notes.insert(0, _losses_note(result.rows, cfg.tolerance))
    result.rows += _largest(cfg, result.rows, list(result.columns))


def train_plain(cfg: Keys, graph: Graph, hidden: int, epochs: int) -> LossCurve:
    """Train the benchmark's layers A (H W) + b with PyTorch's sparse product and its autograd, in this process."""
    begin, device = time.perf_counter(), cfg.torch_device
    problem = make_problem(graph, hidden, device)
    model = build_model(run_config(cfg, hidden), graph.num_features, graph.num_classes, device)
    weights = [parameter.detach() for parameter in model.parameters() if parameter.dim() == 2]
    plain = gcn(problem, weights, torch.matmul, "A(HW)")
    step = trainer(plain, problem)
    test = torch.from_numpy(np.flatnonzero(graph.test_mask)).to(device)

    run = LossCurve([], [], [], time.perf_counter() - begin)
    for _ in range(epochs):
        run.seconds.append(wall_ms(lambda: run.loss.append(step()), device) / 1e3)
        with torch.no_grad():
            right = plain()[test].argmax(dim=1) == problem.labels[test]
        run.accuracy.append(right.float().mean().item())
    return run


def train_ours(cfg: Keys, graph: Graph, hidden: int, epochs: int, num_ranks: int) -> LossCurve:
    """Train ours on real processes of this machine. The times of a step are rank 0's, which waits for the others."""
    own = [*cfg.overrides, f"train.epochs={epochs}", "train.eval_every=1"]
    run = train_ranks(cfg, graph, hidden, num_ranks, *own)
    return LossCurve(run.by_epoch("loss"), run.by_epoch("test_accuracy"), run.seconds, run.record.setup_time_s)


def processes(cfg: Keys) -> list[int]:
    """Return the numbers of processes of ours for which there are devices."""
    most = min(cfg.most_ranks, torch.cuda.device_count()) if cfg.device == "cuda" else cfg.most_ranks
    return [p for p in cfg.processes if p <= most]


def _rows(title: str, runs: Runs, tolerance: float) -> list[TableRow]:
    plain = runs[PLAIN]
    times, *others = rows_of(
        {
            column: {
                (title, TIME): Cell(run.seconds_to(plain.loss[-1] + tolerance), unit="s"),
                (title, "time of all steps"): Cell(run.elapsed_s[-1], unit="s"),
                (title, "set-up and first step"): Cell(run.setup_s + run.seconds[0], unit="s"),
                (title, "last loss"): Cell(run.loss[-1]),
                (title, "last test accuracy"): Cell(run.accuracy[-1]),
                (title, LOSS_DIFFERENCE): Cell(_difference(run.loss, plain.loss)),
                (title, "largest difference of the test accuracy"): Cell(_difference(run.accuracy, plain.accuracy)),
            }
            for column, run in runs.items()
        }
    )
    return [TableRow(times.labels, speedups(times.cells, PLAIN)), *others]


def _difference(ours: Sequence[float], plain: Sequence[float]) -> float:
    return float(np.abs(np.array(ours) - np.array(plain)).max())


def _largest(cfg: Keys, rows: Sequence[TableRow], columns: list[str]) -> list[TableRow]:
    """Find the largest speed-ups over the graphs. Those of the paper's text stand beside the most processes."""
    times, largest = [row.cells for row in with_label(rows, TIME)], []
    for base, paper in ((PLAIN, cfg.paper_over_plain), ("ours p=1", cfg.paper_over_single)):
        row = {}
        for column in columns[1:] if base in columns else ():
            if column != base:
                ratios = [over(of_graph[base].ours, of_graph[column].ours) for of_graph in times]
                most = max((ratio for ratio in ratios if ratio is not None), default=None)
                row[column] = Cell(most, paper if column == columns[-1] else None)
        largest.append(TableRow(("largest", f"speed-up over {base}"), row))
    return largest


def _panels(title: str, runs: Runs) -> list[Curves]:
    """Draw loss and accuracy, each by epoch and by time."""
    panels = []
    for what, ylabel in (("loss", "training loss"), ("accuracy", "test accuracy")):
        for by, xlabel in (("epoch", "epoch"), ("time", "seconds")):
            curves = []
            for name, run in runs.items():
                x = run.elapsed_s if by == "time" else [float(epoch + 1) for epoch in range(len(run.loss))]
                curves.append(Curve(name, x, getattr(run, what), dashed=name != PLAIN))
            panels.append(Curves(f"{title}: {what} by {by}", xlabel, ylabel, curves))
    return panels


def _losses_note(rows: Sequence[TableRow], tolerance: float) -> str:
    differences = [number(cell.ours) or 0.0 for row in with_label(rows, LOSS_DIFFERENCE) for cell in row.cells.values()]
    same = "are the same" if max(differences) <= tolerance else "DIFFER"
    apart = f"they differ by {max(differences):.1e} at most, {tolerance:g} counting as the same"
    return f"The curves of the loss {same}: {apart}."
