"""Table 4 of Li et al. (2025): accuracies before and after, here of full-batch training, of DGL, and of ours."""

import functools
from dataclasses import dataclass, field
from statistics import fmean

from omegaconf import MISSING

from fullgnn.bench.harness import attempt
from fullgnn.bench.papers.config import RunsConfig
from fullgnn.bench.papers.jobs import train_by_command
from fullgnn.bench.papers.result import Cell, Result, Value
from fullgnn.bench.papers.sampled import DGL, OURS, why_missing
from fullgnn.bench.peers.sampled import Setting, dgl_accuracy
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import world_of_one
from fullgnn.graph import load_dataset

FULL, SPREAD = "full batch", "spread of ours"
COLUMNS = (FULL, DGL, OURS, SPREAD)


@dataclass
class Dataset:
    """A graph, and how it is trained."""

    dataset: list[str] = MISSING
    """Overrides that choose the graph."""
    hidden: int = MISSING
    batch_size: int = MISSING
    epochs: int = MISSING
    full_epochs: int = MISSING
    dropout: float = MISSING
    weight_decay: float = MISSING
    paper: dict[int, list[float]] = field(default_factory=dict)
    """Ranks -> accuracy before and after, in per cent."""


@dataclass
class Config(RunsConfig):
    """Keys of ``conf/experiment/reproduce/fused_table4.yaml``."""

    runs: dict[str, Dataset] = field(default_factory=dict)
    fanouts: list[int] = MISSING


def run(cfg: Config) -> Result:
    """Train with every seed, and compare the test accuracies at the best validation epoch."""
    result = Result(("graph", "ranks"), COLUMNS, notes=[*cfg.notes])
    for name in cfg.names_of_runs:
        one = cfg.runs[name]
        dgl, why = _dgl(cfg, one)
        full = [_accuracy(cfg, one, seed, 0) for seed in cfg.seeds]
        result.details[name] = {FULL: full, DGL: dgl}
        means: list[Value] = [fmean(full), fmean(dgl) if dgl else why]
        for p in cfg.processes:
            ours = [_accuracy(cfg, one, seed, p) for seed in cfg.seeds]
            before, after = one.paper.get(p, [None, None])
            cells = {
                FULL: Cell(means[0], unit="%"),
                DGL: Cell(means[1], before, "%"),
                OURS: Cell(fmean(ours), after, "%"),
                SPREAD: Cell(max(ours) - min(ours), unit="%"),
            }
            result.add((name, f"p={p}"), cells)
            if p == cfg.processes[0]:
                result.notes += [compared(name, other, own, ours) for other, own in result.details[name].items() if own]
                means = ["as above"] * 2
            result.details[name][f"{OURS} p={p}"] = ours
    return result


def compared(name: str, other: str, theirs: list[float], ours: list[float]) -> str:
    """Say whether the means lie within the spread of the seeds, the larger one of both."""
    apart = abs(fmean(ours) - fmean(theirs))
    spread = max(max(one) - min(one) for one in (ours, theirs))
    within = "within" if apart <= spread else "NOT within"
    return f"{name}: ours and {other} are {apart:.2f} points apart, {within} the {spread:.2f} points of the seeds."


def _accuracy(cfg: Config, one: Dataset, seed: int, p: int) -> float:
    """The test accuracy, in per cent, of sampled training on ``p`` ranks; of full-batch training if that is 0."""
    overrides = [
        *one.dataset,
        "model=sage",
        f"model.num_layers={len(cfg.fanouts)}",
        f"model.hidden_channels={one.hidden}",
        f"model.dropout={one.dropout}",
        f"model.input_dropout={one.dropout}",
        f"optimizer.weight_decay={one.weight_decay}",
        f"seed={seed}",
        f"runtime.nproc={max(1, p)}",
        f"runtime.device={cfg.device}",
        f"train.epochs={one.epochs if p else one.full_epochs}",
    ]
    if p:
        overrides += [
            f"sampler.fanouts=[{','.join(map(str, cfg.fanouts))}]",
            f"loader.batch_size={one.batch_size}",
        ]
    accuracy = train_by_command(overrides, sampled=p > 0)[0].test_accuracy
    assert accuracy is not None
    return 100 * accuracy


def _dgl(cfg: Config, one: Dataset) -> tuple[list[float], Value]:
    """The accuracies of DGL, and why there are none."""
    graph = load_dataset(load_config(compose(*one.dataset)).dataset)
    found = []
    for seed in cfg.seeds:
        setting = Setting(
            cfg.fanouts, one.batch_size, one.hidden, 0.01, seed, dropout=one.dropout, weight_decay=one.weight_decay
        )
        with world_of_one(cfg.torch_device):
            accuracy, _, reason = attempt(functools.partial(dgl_accuracy, graph, setting, one.epochs))
        if reason is not None:
            return [], why_missing(reason)
        found.append(100 * accuracy)
    return found, None
