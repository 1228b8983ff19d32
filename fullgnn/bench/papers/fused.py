"""The targets of Li et al. (2025), "Fused sampling and overlapped transfer"."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from fullgnn.bench.harness import attempt
from fullgnn.bench.papers.batches import DGL, OURS, PYG, epoch_cells, measure, why_missing
from fullgnn.bench.papers.config import Keys, chosen_runs
from fullgnn.bench.papers.graphs import GraphCase, cases, configured
from fullgnn.bench.papers.result import OURS_AND_PAPER, Cell, Curve, Result, Value, bars, cells, over, with_label
from fullgnn.bench.papers.target import Target
from fullgnn.bench.papers.trainings import listed, place, train
from fullgnn.bench.peers.sampled import SampledSetting, dgl_accuracy
from fullgnn.bench.sampling import FAST, FUSED, SEPARATE
from fullgnn.distributed import world_of_one
from fullgnn.graph import load_dataset


def epochs(result: Result, cfg: Keys, case: GraphCase) -> None:
    """Figure 7: the time of an epoch beside DGL's, by number of ranks."""
    for p in cfg.processes:
        times = epoch_cells(cfg, case, p)
        result.add((case.title, f"p={p}"), {name: times[name] for name in (DGL, OURS)}, DGL)


def largest(result: Result, cfg: Keys) -> None:
    """The largest of the speed-ups of each graph, those that are measured and those that are simulated."""
    result.panels += bars("{1}: speed-up over DGL", "speed-up", result.rows, (OURS,))
    for case in result.cases:
        ours = [row.cells[OURS] for row in with_label(result.rows, case.title)]
        for origin in dict.fromkeys(cell.origin for cell in ours):
            ratios = [cell.ratio for cell in ours if cell.origin == origin and cell.ratio is not None]
            cell = Cell(max(ratios, default=None), unit="x", origin=origin)
            result.add((case.title, "largest speed-up"), {OURS: cell}, graph=case.dataset)


LIBRARIES = (DGL, PYG, "Graph-Learn")
"""The last one has numbers in the paper alone."""


def libraries(result: Result, cfg: Keys, case: GraphCase) -> None:
    """Table 2: the libraries' times of an epoch over ours, by number of ranks."""
    for p in cfg.processes:
        times, row = epoch_cells(cfg, case, p), {}
        for name in LIBRARIES:
            theirs = times.get(name, Cell("the paper's only"))
            row[f"over {name}"] = replace(theirs, ours=over(theirs.ours, times[OURS].ours) or theirs.ours, unit="x")
        result.add((case.title, f"p={p}"), row, graph=case.dataset, ranks=p)
        result.details[f"{case.title} p={p}"] = {name: cell.ours for name, cell in times.items()}


@dataclass
class BatchSizeKeys(Keys):
    """Keys of table 3."""

    batch_sizes: list[int]
    """At full size; multiplied by the scale of the graph."""


def batch_sizes(result: Result, cfg: BatchSizeKeys, case: GraphCase) -> None:
    """Table 3: the time of an epoch by the size of a batch, on one rank."""
    for size in cfg.batch_sizes:
        scaled = max(1, round(size * case.scale))
        label = f"{size:,} x {case.scale:g} = {scaled:,}"
        result.add((case.title, label), epoch_cells(cfg, case, 1, batch_size=scaled), DGL, batch_size=size)


OPERATORS = (DGL, SEPARATE, FAST, FUSED)


def operators(result: Result, cfg: Keys, case: GraphCase) -> None:
    """Figure 6: the sampling of a batch by separate operators, by toBlockFast, and fused; all take turns.

    DGL is represented by the fastest of its samplers.
    """
    times = measure(cfg, case, "sampling")
    of_dgl = [ms for name, ms in times.ms.items() if name.startswith(DGL)]
    times = replace(times, ms=times.ms | ({DGL: min(of_dgl)} if of_dgl else {}))
    row, base = {name: times.cell(name) for name in OPERATORS}, DGL if of_dgl else SEPARATE
    result.add((case.title, f"ms, speed-up over {base}"), row, base, by="sampler", value="ms", graph=case.dataset)
    result.details[case.title] = vars(times)


BLOCK, REDUNDANT, TRANSFER = "toBlock in sampling", "redundant searches in toBlock", "transfer in loading"
SHARED = (DGL, SEPARATE, OURS)


def shares(result: Result, cfg: Keys, case: GraphCase) -> None:
    """Shares: of toBlock in sampling, of redundant searches in toBlock, and, on a GPU, of the transfer in loading."""
    sampling = measure(cfg, case, "sampling")
    rows: dict[str, dict[str, Value]] = {BLOCK: {}, REDUNDANT: {}, TRANSFER: {OURS: "not measured: no GPU"}}
    for what, key in ((BLOCK, "block_share"), (REDUNDANT, "redundant_share")):
        for name in SHARED[:2]:
            share = sampling.details.get(name, {}).get(key)
            rows[what][name] = sampling.missing.get(name, "not counted") if share is None else 100 * share
    if cfg.device == "cuda":
        steps = measure(cfg, case, "minibatch").details[OURS]["steps_ms"]
        rows[TRANSFER][OURS] = float(100 * steps["load"] / (steps["gather"] + steps["load"]))
    rows[TRANSFER][DGL] = "not measured"
    for what, row in rows.items():
        result.add((case.title, what), cells(row, "%"), share=what, graph=case.dataset)


SERIAL, OVERLAPPED = "loading and training in turn", "overlapped"
PRODUCER = ("sample", "gather", "pack")
"""Steps that a worker does; the rank does the others."""


def pipeline(result: Result, cfg: Keys, case: GraphCase) -> None:
    """Figure 5: a batch without a worker and with one, measured, and as the model predicts the latter."""
    alone, ahead = (measure(cfg, case, "minibatch", workers=workers) for workers in (0, 1))
    steps = {name: ms for name, ms in ahead.details[OURS]["steps_ms"].items() if name not in ("epoch", "wait")}
    stations = [sum(ms for name, ms in steps.items() if (name in PRODUCER) == of_worker) for of_worker in (True, False)]
    many = 100
    each_ms = (makespan(stations, 2 * many) - makespan(stations, many)) / many
    result.add((case.title, "each"), {SERIAL: alone.cell(OURS), OVERLAPPED: ahead.cell(OURS)}, SERIAL)
    simulated = cells({SERIAL: sum(stations), OVERLAPPED: each_ms}, "ms", "simulated")
    result.add((case.title, "each, from its steps"), simulated, SERIAL)
    result.details[case.title] = {"alone": alone.details[OURS]["steps_ms"], "ahead": ahead.details[OURS]["steps_ms"]}


def model_pipeline(result: Result, cfg: Keys) -> None:
    """Figure 5: the pipelines of the paper by the number of batches, simulated, ahead of what is measured."""
    measured, result.rows = result.rows, []
    for n in cfg.counts:
        paper = {SERIAL: 3 * n + 1, OVERLAPPED: 2 * n + 4}
        times = {name: makespan(stations, n) for name, stations in cfg.stations.items()}
        row = {name: Cell(time, paper[name], "t", "simulated") for name, time in times.items()}
        result.add(("model", f"n={n}"), row)
    result.rows += measured
    counts = range(1, max(cfg.counts) + 1)
    for name, stations in cfg.stations.items():
        curve = Curve(name, list(map(float, counts)), [makespan(stations, n) for n in counts])
        result.draw("the pipeline's model", "batches n", "t", [curve])


def makespan(stations: Sequence[float], num_batches: int) -> float:
    """The time until the last of ``num_batches`` has left the last station.

    One finished batch may wait between two stations; a station whose batch finds another one waiting there waits.

    Args:
        stations: time that each station takes for a batch.
    """
    left = [[0.0] * num_batches for _ in stations]  # when each batch leaves each station
    for batch in range(num_batches):
        for k, time in enumerate(stations):
            arrived = left[k - 1][batch] if k else 0.0
            free = left[k][batch - 1] if batch else 0.0
            done = max(arrived, free) + time
            if k + 1 < len(stations) and batch > 1:  # the next station has taken an earlier batch by then
                done = max(done, left[k + 1][batch - 2])
            left[k][batch] = done
    return left[-1][-1]


@dataclass
class AccuracyRun:
    """A graph, and how it is trained."""

    dataset: list[str]
    """Overrides that choose the graph."""
    hidden: int
    batch_size: int
    epochs: int
    full_epochs: int
    dropout: float
    weight_decay: float


@dataclass
class FusedTable4Keys(Keys):
    """Keys of table 4."""

    runs: dict[str, AccuracyRun]


FULL = "full batch"
ACCURACIES = dict.fromkeys((FULL, DGL, OURS, "spread of ours"), "%")


def accuracies(result: Result, cfg: FusedTable4Keys) -> None:
    """Table 4: test accuracies at the best validation epoch, of full-batch training, of DGL, and of ours."""
    for name in chosen_runs(cfg):
        run = cfg.runs[name]
        dgl, why = _dgl(cfg, run)
        full = [_accuracy(cfg, run, seed, 0) for seed in cfg.seeds]
        details = result.details[name] = {FULL: full, DGL: dgl}
        means: list[Value] = [fmean(full), fmean(dgl) if dgl else why]
        for p in cfg.processes:
            ours = [_accuracy(cfg, run, seed, p) for seed in cfg.seeds]
            row = dict(zip(ACCURACIES, (*means, fmean(ours), max(ours) - min(ours))))
            result.add((name, f"p={p}"), row, run=name, ranks=p)
            if p == cfg.processes[0]:
                result.notes += [compared(name, other, theirs, ours) for other, theirs in details.items() if theirs]
                means = ["as above"] * 2
            details[f"{OURS} p={p}"] = ours


def compared(name: str, other: str, theirs: list[float], ours: list[float]) -> str:
    """Say whether the means lie within the spread of the seeds, the larger one of both."""
    apart = abs(fmean(ours) - fmean(theirs))
    spread = max(max(accuracies) - min(accuracies) for accuracies in (ours, theirs))
    within = "within" if apart <= spread else "NOT within"
    return f"{name}: ours and {other} are {apart:.2f} points apart, {within} the {spread:.2f} points of the seeds."


def _accuracy(cfg: FusedTable4Keys, run: AccuracyRun, seed: int, p: int) -> float:
    """The test accuracy, in per cent, of sampled training on ``p`` ranks; of full-batch training if that is 0."""
    keys = [f"model.{key}={run.dropout}" for key in ("dropout", "input_dropout")]
    keys += [f"model.num_layers={len(cfg.fanouts)}", f"model.hidden_channels={run.hidden}"]
    keys += [f"optimizer.weight_decay={run.weight_decay}", f"train.epochs={run.epochs if p else run.full_epochs}"]
    keys += [f"sampler.fanouts={listed(cfg.fanouts)}", f"loader.batch_size={run.batch_size}"] if p else []
    record = train([*run.dataset, "model=sage", *keys, *place(cfg, max(1, p), seed)], sampled=p > 0).record
    assert record.test_accuracy is not None
    return 100 * record.test_accuracy


def _dgl(cfg: FusedTable4Keys, run: AccuracyRun) -> tuple[list[float], Value]:
    """The accuracies of DGL, and why there are none."""
    graph = load_dataset(configured(*run.dataset).dataset)
    accuracies = []
    for seed in cfg.seeds:
        setting = SampledSetting(
            cfg.fanouts, run.batch_size, run.hidden, 0.01, seed, dropout=run.dropout, weight_decay=run.weight_decay
        )
        with world_of_one(cfg.torch_device):
            accuracy, _, reason = attempt(functools.partial(dgl_accuracy, graph, setting, run.epochs))
        if reason is not None:
            return [], why_missing(reason)
        accuracies.append(100 * accuracy)
    return accuracies, None


_BLOCKS = functools.partial(bars, f"{BLOCK} (1 rank)", "%", columns=SHARED[:2], heights=OURS_AND_PAPER, label=BLOCK)
_SAMPLING = functools.partial(bars, "sampling of a batch", "speed-up", columns=(FAST, FUSED))
_SIZES = functools.partial(bars, "{0}: speed-up over DGL", "speed-up", columns=(PYG, OURS), group=1)
_structure = functools.partial(cases, features=False)

_RANKS = ("graph", "ranks")
CASES = {
    "fused_table2": Target(_RANKS, libraries),
    "fused_table3": Target(("graph", "batch"), batch_sizes, (), [_SIZES], keys=BatchSizeKeys),
    "fused_table4": Target(_RANKS, columns=ACCURACIES, finish=accuracies, keys=FusedTable4Keys),
    "fused_fig5": Target(("what", "batches"), pipeline, (SERIAL, OVERLAPPED), finish=model_pipeline),
    "fused_fig6": Target(("graph", "a batch"), operators, OPERATORS, [_SAMPLING], cases=_structure),
    "fused_fig7": Target(_RANKS, epochs, (DGL, OURS), finish=largest),
    "fused_breakdown": Target(("graph", "share of"), shares, SHARED, [_BLOCKS]),
}
"""What the targets of this paper count or measure."""
