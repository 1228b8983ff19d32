"""Figure 7: loss and test accuracy epoch by epoch, ours and a plain PyTorch GCN from the same weights."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from fullgnn.bench.papers.config import Keys
from fullgnn.bench.papers.graphs import load
from fullgnn.bench.papers.result import Cell, Curve, Curves, Result, TableRow, Value, cells, numbers, over, with_label
from fullgnn.bench.papers.trainings import TrainingCurve, num_epochs, overrides, run_config, train
from fullgnn.bench.peers.training import gcn, trainer
from fullgnn.bench.problem import make_problem
from fullgnn.engine.run import build_model
from fullgnn.graph import Graph
from fullgnn.telemetry.timing import wall_ms

PLAIN = "PyTorch"
TIME, LOSS_DIFFERENCE = "time to the same loss", "largest difference of the loss"
_RECORDED = ("loss", "accuracy", "seconds", "setup_s")


def convergence(result: Result, cfg: Keys) -> None:
    """Train all of them on each graph; the processes of ours are real ones."""
    result.columns = (PLAIN, *(f"ours p={p}" for p in processes(cfg)))
    chosen = [(case.title, case.graph, case.hidden, num_epochs(cfg, case)) for case in result.cases]
    chosen += [(name, load(f"dataset={name}"), cfg.other_hidden, cfg.epochs or cfg.few_epochs) for name in cfg.others]
    for title, graph, hidden, epochs in chosen:
        runs = {PLAIN: train_plain(cfg, graph, hidden, epochs)}
        runs |= {f"ours p={p}": train_ours(cfg, graph, hidden, epochs, p) for p in processes(cfg)}
        compare(result, title, runs, cfg.tolerance)
        result.details[title] = {name: {key: getattr(run, key) for key in _RECORDED} for name, run in runs.items()}
    result.notes.insert(0, losses_note(result.rows, cfg.tolerance))
    _add_largest(result, cfg)


def train_plain(cfg: Keys, graph: Graph, hidden: int, epochs: int) -> TrainingCurve:
    """Train the benchmark's layers A (H W) + b with PyTorch's sparse product and its autograd, in this process."""
    begin, device = time.perf_counter(), cfg.torch_device
    problem = make_problem(graph, hidden, device)
    model = build_model(run_config(cfg, hidden), graph.num_features, graph.num_classes, device)
    weights = [parameter.detach() for parameter in model.parameters() if parameter.dim() == 2]
    plain = gcn(problem, weights, torch.matmul, "A(HW)")
    step = trainer(plain, problem)
    test = torch.from_numpy(np.flatnonzero(graph.test_mask)).to(device)
    losses, accuracies, seconds, setup_s = list[float](), list[float](), list[float](), time.perf_counter() - begin
    for _ in range(epochs):
        seconds.append(wall_ms(lambda: losses.append(step()), device) / 1e3)
        with torch.no_grad():
            right = plain()[test].argmax(dim=1) == problem.labels[test]
        accuracies.append(right.float().mean().item())
    return TrainingCurve(accuracies, seconds, setup_s, losses)


def train_ours(cfg: Keys, graph: Graph, hidden: int, epochs: int, num_ranks: int) -> TrainingCurve:
    """Train ours on real processes of this machine. The times of a step are rank 0's, which waits for the others."""
    own = [*cfg.overrides, f"train.epochs={epochs}", "train.eval_every=1", f"runtime.nproc={num_ranks}"]
    return train(overrides(cfg, hidden, *own), sampled=False, graph=graph).curve("test_accuracy")


def processes(cfg: Keys) -> list[int]:
    """Return the numbers of processes of ours for which there are devices."""
    most = min(cfg.most_ranks, torch.cuda.device_count()) if cfg.device == "cuda" else cfg.most_ranks
    return [p for p in cfg.processes if p <= most]


def compare(result: Result, title: str, runs: dict[str, TrainingCurve], tolerance: float) -> None:
    """Add the rows of a graph, and draw loss and accuracy, each by epoch and by time.

    Args:
        runs: by column: the plain GCN, then ours by number of processes, with the accuracy of the test nodes.
    """
    plain = runs[PLAIN]
    quantities: list[tuple[str, str, Callable[[TrainingCurve], Value]]] = [
        (TIME, "s", lambda run: run.seconds_to_loss(plain.loss[-1] + tolerance)),
        ("time of all steps", "s", lambda run: run.after_first[-1]),
        ("set-up and first step", "s", lambda run: run.setup_s + run.seconds[0]),
        ("last loss", "", lambda run: run.loss[-1]),
        ("last test accuracy", "", lambda run: run.accuracy[-1]),
        (LOSS_DIFFERENCE, "", lambda run: _difference(run.loss, plain.loss)),
        ("largest difference of the test accuracy", "", lambda run: _difference(run.accuracy, plain.accuracy)),
    ]
    for of, unit, value in quantities:
        row = cells({column: value(run) for column, run in runs.items()}, unit)
        result.add((title, of), row, PLAIN if of == TIME else "")
    for what, ylabel in (("loss", "training loss"), ("accuracy", "test accuracy")):
        for by, xlabel in (("epoch", "epoch"), ("time", "seconds")):
            curves = []
            for name, run in runs.items():
                x = run.after_first if by == "time" else [float(epoch + 1) for epoch in range(len(run.loss))]
                curves.append(Curve(name, x, getattr(run, what), dashed=name != PLAIN))
            result.panels.append(Curves(f"{title}: {what} by {by}", xlabel, ylabel, curves))


def _difference(ours: Sequence[float | None], plain: Sequence[float | None]) -> float:
    return float(np.abs(np.array(ours) - np.array(plain)).max())


def _add_largest(result: Result, cfg: Keys) -> None:
    """Add the largest speed-ups over the graphs. Those of the paper's text stand beside the most processes."""
    times, ours = [row.cells for row in with_label(result.rows, TIME)], list(result.columns[1:])
    for base, paper in ((PLAIN, cfg.paper_over_plain), ("ours p=1", cfg.paper_over_single)):
        row = {}
        for column in [name for name in ours if base in result.columns and name != base]:
            ratios = [over(of_graph[base].ours, of_graph[column].ours) for of_graph in times]
            most = max((ratio for ratio in ratios if ratio is not None), default=None)
            row[column] = Cell(most, paper if column == ours[-1] else None)
        result.add(("largest", f"speed-up over {base}"), row)


def losses_note(rows: Sequence[TableRow], tolerance: float) -> str:
    """Say whether the losses of all ``rows`` are the same."""
    of_losses = with_label(rows, LOSS_DIFFERENCE)
    apart = max(difference for column in of_losses[0].cells for difference in numbers(of_losses, column))
    same = "are the same" if apart <= tolerance else "DIFFER"
    told = f"they differ by {apart:.1e} at most, {tolerance:g} counting as the same"
    return f"The curves of the loss {same}: {told}."
