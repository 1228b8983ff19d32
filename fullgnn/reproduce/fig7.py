"""Figure 7: loss and test accuracy epoch by epoch, ours and a plain PyTorch GCN from the same weights."""

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from omegaconf import MISSING
from torch import Tensor

from fullgnn.api import train_graph
from fullgnn.bench.config import load_bench
from fullgnn.bench.peers.torch_sparse import normalized
from fullgnn.bench.problem import as_problem
from fullgnn.config.compose import compose, load_config
from fullgnn.config.overrides import quote
from fullgnn.engine.job import build_model
from fullgnn.graph import Graph, load_dataset
from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import cases
from fullgnn.reproduce.jobs import num_epochs, overrides, run_config
from fullgnn.reproduce.result import Bars, Cell, Curve, Curves, Result, Row, Value, speedups

PLAIN = "PyTorch"
TIME = "time to the same loss"


@dataclass
class Config(TargetConfig):
    others: list[str] = field(default_factory=list)
    other_hidden: int = MISSING
    processes: list[int] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    tolerance: float = MISSING
    paper_over_plain: float = MISSING
    paper_over_single: float = MISSING


@dataclass(frozen=True)
class Training:
    """One run, epoch by epoch."""

    loss: list[float]  # before the update
    accuracy: list[float]  # of the test nodes, after it
    seconds: list[float]  # of the step alone, without evaluation
    setup_s: float  # before the first step

    @property
    def elapsed_s(self) -> list[float]:
        """At the end of each step, from the end of the first, which warms up: it allocates, compiles and connects."""
        return [float(total) for total in np.cumsum([0.0, *self.seconds[1:]])]

    def seconds_to(self, loss: float) -> float | None:
        """When a step first had this ``loss`` or less; None: none had."""
        return next((seconds for seconds, own in zip(self.elapsed_s, self.loss) if own <= loss), None)


def run(cfg: Config) -> Result:
    """Every process of ours is a real one: nothing is simulated."""
    found = cases(cfg)
    chosen = [(case.title, case.graph, case.hidden, num_epochs(cfg, case)) for case in found]
    for name in cfg.others:
        graph = load_dataset(load_config(compose(f"dataset={name}")).dataset)
        chosen.append((name, graph, cfg.other_hidden, cfg.epochs or cfg.few_epochs))
    rows, panels, details = [], [], {}
    for title, graph, hidden, epochs in chosen:
        runs = trainings(cfg, graph, hidden, epochs)
        rows += _rows(title, runs, cfg.tolerance)
        panels += _panels(title, runs)
        details[title] = {name: vars(one) for name, one in runs.items()}
    rows += _largest(cfg, rows)
    columns = (PLAIN, *map(_ours, _processes(cfg)))
    return Result(("graph", "of"), columns, rows, panels, found, _notes(cfg, rows), details)


def trainings(cfg: Config, graph: Graph, hidden: int, epochs: int) -> dict[str, Training]:
    """Column -> its training on ``graph``: the plain GCN's, then ours by number of processes."""
    runs = {PLAIN: train_plain(cfg, graph, hidden, epochs)}
    for p in _processes(cfg):
        runs[_ours(p)] = train_ours(cfg, graph, hidden, epochs, p)
    return runs


def train_plain(cfg: Config, graph: Graph, hidden: int, epochs: int) -> Training:
    """Two layers A (H W) + b with PyTorch's sparse product and its autograd, in this process."""
    begin, device = time.perf_counter(), cfg.torch_device
    problem = as_problem(load_bench("op=epoch", f"hidden={hidden}"), graph, device)
    model = build_model(run_config(cfg, hidden), graph.num_features, graph.num_classes, device)
    weights = [parameter.detach().clone().requires_grad_() for parameter in model.parameters() if parameter.dim() == 2]
    biases = [torch.zeros(weight.shape[1], device=device, requires_grad=True) for weight in weights]
    optimizer = torch.optim.Adam([*weights, *biases], lr=0.01)
    adj, target = normalized(problem), problem.labels[problem.train_index]
    test = torch.from_numpy(np.flatnonzero(graph.test_mask)).to(device)

    def forward() -> Tensor:
        inner = F.relu(adj @ (problem.features @ weights[0]) + biases[0])
        return adj @ (inner @ weights[1]) + biases[1]

    run = Training([], [], [], time.perf_counter() - begin)
    for _ in range(epochs):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(forward().index_select(0, problem.train_index), target)
        loss.backward()
        optimizer.step()
        run.loss.append(loss.item())
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        run.seconds.append(time.perf_counter() - begin)
        with torch.no_grad():
            right = forward()[test].argmax(dim=1) == problem.labels[test]
        run.accuracy.append(right.float().mean().item())
    return run


def train_ours(cfg: Config, graph: Graph, hidden: int, epochs: int, num_processes: int) -> Training:
    """Ours on real processes of this machine; the times of a step are rank 0's, which waits for the others in it."""
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
        training = [f"train.epochs={epochs}", "train.eval_every=1", f"run_dir={quote(folder)}"]
        record = train_graph(
            graph, *overrides(cfg, hidden, *cfg.overrides), *training, f"runtime.nproc={num_processes}"
        )
        lines = [json.loads(line) for line in (Path(folder) / "epochs.jsonl").read_text().splitlines()]
    return Training(
        [line["loss"] for line in lines],
        [line["test_accuracy"] for line in lines],
        [line["time_ms"]["epoch"] / 1e3 for line in lines],
        record.setup_time_s,
    )


def _processes(cfg: Config) -> list[int]:
    """Those that there are devices for."""
    assert cfg.nproc is not None
    most = min(cfg.nproc, torch.cuda.device_count()) if cfg.device == "cuda" else cfg.nproc
    return [p for p in cfg.processes if p <= most]


def _ours(num_processes: int) -> str:
    return f"ours p={num_processes}"


def _rows(title: str, runs: dict[str, Training], tolerance: float) -> list[Row]:
    plain = runs[PLAIN]

    def row(of: str, values: dict[str, Value], unit: str = "") -> Row:
        return Row((title, of), {name: Cell(value, unit=unit) for name, value in values.items()})

    target = plain.loss[-1] + tolerance
    times = row(TIME, {name: one.seconds_to(target) for name, one in runs.items()}, "s")
    return [
        replace(times, cells=speedups(times.cells, PLAIN)),
        row("time of all steps", {name: one.elapsed_s[-1] for name, one in runs.items()}, "s"),
        row("set-up and first step", {name: one.setup_s + one.seconds[0] for name, one in runs.items()}, "s"),
        row("last loss", {name: one.loss[-1] for name, one in runs.items()}),
        row("last test accuracy", {name: one.accuracy[-1] for name, one in runs.items()}),
        row("largest difference of the loss", {name: _apart(one.loss, plain.loss) for name, one in runs.items()}),
        row(
            "largest difference of the test accuracy",
            {name: _apart(one.accuracy, plain.accuracy) for name, one in runs.items()},
        ),
    ]


def _apart(one: Sequence[float], other: Sequence[float]) -> float:
    return float(np.abs(np.array(one) - np.array(other)).max())


def _largest(cfg: Config, rows: Sequence[Row]) -> list[Row]:
    """The largest speed-ups over the graphs, as the paper's text gives them."""
    times = [row.cells for row in rows if row.labels[1] == TIME]
    processes = _processes(cfg)
    largest = []
    for base, paper in ((PLAIN, cfg.paper_over_plain), (_ours(1), cfg.paper_over_single)):
        cells = {}
        for p in processes:
            if _ours(p) != base and base in times[0]:
                ratios = [speedups(cells_of, base)[_ours(p)].ratio for cells_of in times]
                known = [ratio for ratio in ratios if ratio is not None]
                cells[_ours(p)] = Cell(max(known, default=None), paper if p == max(processes) else None)
        largest.append(Row(("largest", f"speed-up over {base}"), cells))
    return largest


def _panels(title: str, runs: dict[str, Training]) -> list[Bars | Curves]:
    def curves(what: str, xlabel: str, ylabel: str) -> Curves:
        made = []
        for name, one in runs.items():
            y = getattr(one, ylabel.split()[-1])
            x = one.elapsed_s if xlabel == "seconds" else [float(epoch) for epoch in range(1, len(y) + 1)]
            made.append(Curve(name, x, y, dashed=name != PLAIN))
        return Curves(f"{title}: {what}", xlabel, ylabel, made)

    return [
        curves("loss by epoch", "epoch", "training loss"),
        curves("loss by time", "seconds", "training loss"),
        curves("accuracy by epoch", "epoch", "test accuracy"),
        curves("accuracy by time", "seconds", "test accuracy"),
    ]


def _notes(cfg: Config, rows: Sequence[Row]) -> list[str]:
    differences = [
        cell.ours for row in rows if "difference of the loss" in row.labels[1] for cell in row.cells.values()
    ]
    largest = max(float(value) for value in differences if isinstance(value, float))
    same = "are the same" if largest <= cfg.tolerance else "DIFFER"
    return [
        f"The curves of the loss {same}: they differ by {largest:.1e} at most, {cfg.tolerance:g} counting as the same.",
        f"The same loss: PyTorch's last one, plus {cfg.tolerance:g}. Times are of the steps alone, without evaluation, "
        "from the end of the first, which warms up. In the set-up ours reads the graph from a file, orders it, hands "
        "it out and multiplies A H0; the start of its processes is not in it.",
        f"Every process, PyTorch's too, has {cfg.threads} thread(s); dropout and weight decay are off.",
        "The paper's speed-ups are its largest, over graphs and numbers of GPUs that our sources do not name.",
    ]
