"""Table 4: seconds per epoch of two peers and of ours, step by step; the trainings take turns, epoch by epoch."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from omegaconf import MISSING

from fullgnn.bench.harness import Measurement, Method, measure, timed
from fullgnn.bench.ours import trainer
from fullgnn.bench.peers import EPOCH, set_up
from fullgnn.bench.problem import first_weights, make_problem
from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.graphs import Case, cases
from fullgnn.reproduce.result import Cell, Result, Row, ratio_bars, speedups
from fullgnn.reproduce.runs import layout_choices, num_epochs, run_config
from fullgnn.reproduce.table2 import Layout
from fullgnn.reproduce.table5 import TILES_ON_CPU
from fullgnn.reproduce.timing import world_of_one

_ONE_RANK = Layout("1d", 1, 1)
_BUDGET_S = 600.0  # of one method, at full size


@dataclass
class Peer:
    """A training of ``fullgnn/bench/peers/``."""

    library: str = MISSING
    method: str = MISSING


@dataclass
class Config(TargetConfig):
    peers: dict[str, Peer] = field(default_factory=dict)
    ours: dict[str, list[str]] = field(default_factory=dict)
    """Overrides of a run, by column."""
    baseline: str = MISSING
    """The column that speed-ups are over."""
    warmup: dict[str, int] = field(default_factory=dict)
    """Epochs before those that count, by device."""
    paper: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Seconds per epoch, or why there are none, by dataset and column."""


def run(cfg: Config) -> Result:
    """A row a graph, a column a training."""
    columns = (*cfg.peers, *cfg.ours)
    found, rows, details = cases(cfg), [], {}
    for case in found:
        measured, missing = _epochs(cfg, case)
        details[case.dataset] = {name: asdict(one) for name, one in measured.items()} | {"missing": missing}
        paper = cfg.paper.get(case.dataset, {})
        seconds = {name: one.median_ms / 1e3 for name, one in measured.items()}
        cells = {name: Cell(seconds.get(name, missing.get(name)), paper.get(name), "s") for name in columns}
        rows.append(Row((case.title,), speedups(cells, cfg.baseline)))
    notes = [
        f"One rank. Medians of a training step in interleaved rounds. Speed-ups are over {cfg.baseline}.",
        *(f"{name}: {peer.method} of {peer.library}, without dropout, as ours." for name, peer in cfg.peers.items()),
        *(f"{name}: {' '.join(choices)}." for name, choices in cfg.ours.items()),
    ]
    if cfg.torch_device.type == "cpu":
        notes.append(TILES_ON_CPU)
    panel = ratio_bars(f"speed-up over {cfg.baseline}", rows, columns)
    return Result(("graph",), columns, rows, [panel], found, notes, details)


def _epochs(cfg: Config, case: Case) -> tuple[dict[str, Measurement], dict[str, str]]:
    """The times of each column, and why one has none."""
    device, threads = cfg.torch_device, torch.get_num_threads()
    problem = make_problem(case.graph, case.hidden, device)
    weights = first_weights(problem.widths, cfg.seed)
    missing, methods = {}, []
    with world_of_one(device) as world:
        for name, choices in cfg.ours.items():
            run_cfg = run_config(cfg, case, *choices, *layout_choices(_ONE_RANK))
            step = timed(trainer(run_cfg, case.graph, world, weights), device)
            methods.append(Method(name, "ours", step, 1, threads))
        for name, peer in cfg.peers.items():
            maker = {peer.library: {peer.method: EPOCH[peer.library][peer.method]}}
            made, absent = set_up(maker, [peer.library], problem, weights)
            if absent:
                missing[name] = _reason(absent[0].reason)
            methods += [Method(name, "peer", timed(step, device), 1, threads) for step, _ in made.values()]
        warmup = cfg.warmup[device.type]
        rounds = max(1, num_epochs(cfg, case) - warmup)
        measurements, failed = measure(methods, world, rounds, warmup, _BUDGET_S)
    return {one.method: one for one in measurements}, missing | {one.method: _reason(one.reason) for one in failed}


def _reason(reason: str) -> str:
    """In a word, as a cell of a table has room for."""
    if reason.startswith("ModuleNotFoundError"):
        return "not installed"
    return "OOM" if "out of memory" in reason or "OutOfMemory" in reason else reason
