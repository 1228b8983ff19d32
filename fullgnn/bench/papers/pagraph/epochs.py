"""Epochs of sampled training by the way in which features come to the device: measured here, and simulated on the
paper's kind of GPU (``batches.py``), one step after the other, or overlapped where the table says so. And accuracy by
epoch where every rank shuffles training nodes of its own, and where all are shuffled together."""

import itertools
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullgnn.bench.papers import batches
from fullgnn.bench.papers.batches import BatchSeconds, MeasuredBatches, SampledJob
from fullgnn.bench.papers.config import BOTH, CACHED, LAYER, PLAIN, PP, WAYS, published
from fullgnn.bench.papers.graphs import GraphCase
from fullgnn.bench.papers.pagraph.counts import (
    PagraphDraws,
    PagraphKeys,
    batch_size,
    cached_share,
    labels_of,
    most_inputs,
    name_of,
    paper_names,
    rules,
    sampled_jobs,
)
from fullgnn.bench.papers.result import (
    NEARLY,
    Cell,
    Curve,
    Curves,
    Origin,
    Result,
    Value,
    bars,
    mean_curve,
    numbers,
    over,
    reaching,
)
from fullgnn.bench.papers.trainings import epoch_s, fan_outs, place, train
from fullgnn.sampling.caches import most

Presets = Callable[[PagraphKeys, SampledJob], dict[str, str]]
"""Column of a table -> the preset of the benchmark that trains a job in this way."""


def row_bytes(cfg: PagraphKeys, job: SampledJob, precomputed: bool) -> int:
    """Bytes of the features of a node at full size."""
    return 4 * job.case.full.num_features * (cfg.models[job.model].products if precomputed else 1)


def preset(
    cfg: PagraphKeys,
    job: SampledJob,
    precomputed: bool = False,
    share: float | None = None,
    split: bool = False,
    workers: int = 0,
) -> str:
    """The preset of the benchmark that trains ``job``.

    Args:
        share: of the rows that stay on the device; None: there is no cache.
        split: whether ranks have training nodes of their own.
        workers: processes of a rank that make batches ahead.
    """
    model, draws = cfg.models[job.model], list(job.draws[:-1] if precomputed else job.draws)
    keys = [*model.keys, *cfg.training]
    if precomputed:
        keys += [*model.precomputed, "loader.precompute=true"]
    if job.sampler == LAYER:
        draws = [max(1, round(size * job.case.scale)) for size in draws]
        keys += ["sampler=layer", f"sampler.sizes=[{','.join(map(str, draws))}]"]
    else:
        keys += [fan_outs(draws)]
    if share is not None:
        megabytes = share * job.case.graph.num_nodes * row_bytes(cfg, job, precomputed) / 1e6
        keys += ["cache=degree", f"cache.megabytes={megabytes + 1e-6:.6f}"]
    if split:
        keys += ["loader.split=pagraph"]
    if workers:
        keys += [f"loader.num_workers={workers}"]
    return " ".join(["default", *keys])


def presets_of(cfg: PagraphKeys, job: SampledJob) -> dict[str, str]:
    """Way -> its preset. What a cache holds is what fits the device of the paper.

    All ways are measured together, also where a target shows some of them, so that targets of one command share them.
    """
    presets = {}
    for way in WAYS:
        precomputed, cached = way in (PP, BOTH), way in (CACHED, BOTH)
        inputs = most_inputs(cfg, job.sampler, list(job.draws[:-1] if precomputed else job.draws))
        share = cached_share(cfg, job.case, row_bytes(cfg, job, precomputed), inputs) if cached else None
        presets[way] = preset(cfg, job, precomputed, share, split=cached and job.ranks > 1)
    return presets


def counted(times: MeasuredBatches, presets: Mapping[str, str], way: str) -> dict[str, Any]:
    """What is counted and measured of a batch of ``way``.

    A GPU has the same operations for plain features as for cached ones; here, the plain ones are read where they lie.
    """
    details = times.details[presets[way]]
    return details | {"operations": times.details[presets[CACHED]]["operations"]} if way == PLAIN else details


def gather_s(case: GraphCase) -> float:
    """Seconds in which this machine gathers a byte of random rows of the features."""
    features = case.graph.features
    count = min(case.graph.num_nodes, 4096)
    return batches.row_s(features, count, (case.dataset, case.scale)) / (features.itemsize * features.shape[1])


def simulated(cfg: PagraphKeys, job: SampledJob, details: dict[str, Any]) -> BatchSeconds:
    """A batch of the whole graph on the modelled machine.

    Args:
        details: what the benchmark has counted and measured of a batch here.
    """
    hardware, up, counts = batches.modelled(cfg.hardware), 1 / job.case.scale, details["counts"]
    fetched, drawing = counts["fetched_bytes"] * up, details["steps_ms"]["sample"] / 1e3
    if job.sampler != LAYER:
        drawing = counts["sampled_edges"] * batches.draw_s(job.case, job.draws, cfg.batch_size, cfg.seed)
    return BatchSeconds(
        sample=up * drawing,
        gather=fetched * gather_s(job.case),
        transfer=hardware.link("exchange", 2).time_s(fetched) if fetched else 0.0,
        compute=batches.compute_s(hardware, job.case, details, up, one_table=True),
        waiting=batches.waiting_s(hardware, job.ranks, details),
    )


def num_batches(cfg: PagraphKeys, job: SampledJob) -> int:
    """Batches of an epoch."""
    num_train = int(job.case.graph.train_mask.sum())
    return max(1, -(-num_train // (batch_size(cfg, job.case) * job.ranks)))


def compare(cfg: PagraphKeys, job: SampledJob, presets: dict[str, str]) -> batches.Comparison:
    """Measure ``presets``, on as many ranks as ``job`` has, or on one rank where these are too many; and simulate."""
    runs_here, count = job.ranks <= cfg.most_ranks, num_batches(cfg, job)
    ranks, size = job.ranks if runs_here else 1, batch_size(cfg, job.case)
    times = batches.measure(cfg, job.case, "minibatch", ranks, size, presets=tuple(presets.values()))
    whole = {
        way: simulated(cfg, job, counted(times, presets, way)) if name in times.ms else None
        for way, name in presets.items()
    }
    labels = labels_of(cfg, job)
    return batches.Comparison(labels, paper_names(job), presets, times, whole, count if runs_here else 0, count)


def _say_same(result: Result, cfg: PagraphKeys, presets_of: Presets, *pairs: Sequence[str]) -> None:
    """Say below the table how many pairs of ways have had the same losses, as far as both have some.

    On several ranks, ways with a cache have training nodes of their own, but not the first stages.
    """
    same = []
    for job in itertools.chain.from_iterable(sampled_jobs(cfg, case) for case in result.cases):
        presets = presets_of(cfg, job)
        details = compare(cfg, job, presets).times.details  # known by now
        for pair in pairs if job.ranks == 1 or presets_of is _stages else ():
            if all(presets[name] in details for name in pair):
                first, second = (details[presets[name]]["losses"] for name in pair)
                count = min(len(first), len(second))
                same.append(bool(count) and np.array_equal(first[:count], second[:count], equal_nan=True))
    if same:
        result.notes.append(
            "The losses of a cached training and of the same one without are equal to the bit in"
            f" {sum(same)} of {len(same)} pairs."
        )


def ways(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """The epoch by the way in which features are loaded."""
    for job in sampled_jobs(cfg, case):
        compare(cfg, job, presets_of(cfg, job)).add_epochs(result, cfg.chosen_ways, "way")


def finish_ways(result: Result, cfg: PagraphKeys) -> None:
    """Compare losses of ways that train alike, and draw the speed-ups."""
    _say_same(result, cfg, presets_of, (PLAIN, CACHED), (PP, BOTH))
    title, group = ("{1}, {2}", 0) if len(result.cases) > 1 else ("{0}, {1}", 2)  # one graph is drawn by its draws
    result.panels += batches.bars_by_origin(title, "speed-up over plain", result.rows, WAYS, group=group)


STAGES = (PP, "+ cache", "+ partition", "+ pipeline")


def _stages(cfg: PagraphKeys, job: SampledJob) -> dict[str, str]:
    """Stage -> its preset, with the keys of all stages before it."""
    keys: list[dict[str, Any]] = [{}, {"share": cfg.shares[0] / 100}, {"split": job.ranks > 1}, {"workers": 1}]
    joined = itertools.accumulate(keys, operator.or_)
    return {stage: preset(cfg, job, precomputed=True, **own) for stage, own in zip(STAGES, joined)}


def ablation(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """The epoch with one stage of the paper after the other; each can be switched off by its key."""
    for job in sampled_jobs(cfg, case):
        compare(cfg, job, _stages(cfg, job)).add_epochs(result, STAGES, "stage", overlapped=STAGES[-1])


def finish_ablation(result: Result, cfg: PagraphKeys) -> None:
    """Compare the losses with and without a cache, and with and without a pipeline."""
    _say_same(result, cfg, _stages, STAGES[:2], STAGES[2:])
    result.panels += batches.bars_by_origin("{0}, {2}", "speed-up over PP", result.rows, STAGES, group=1)


STEPS = (
    *("sample", "gather", "transfer", "compute"),
    *("loading", "gather of loading", "loading saved", "computing", "memory"),
)
UNCACHED = {CACHED: PLAIN, BOTH: PP}
"""Way with a cache -> the same one without."""


def steps(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """The epoch by step."""
    for job in sampled_jobs(cfg, case):
        compared = compare(cfg, job, presets_of(cfg, job))
        times, count, whole = compared.times, compared.num_whole, compared.whole
        for way, name in compared.presets.items():
            labels, batch, uncached = (*compared.labels, way), whole[way], whole.get(UNCACHED.get(way, ""))
            result.details[", ".join(labels)] = times.records({way: name})[way]
            if batch is None:
                result.add(labels, {STEPS[0]: times.cell(name)})
            elif way in cfg.chosen_ways:
                input_bytes = times.details[name]["counts"]["input_rows"] * row_bytes(cfg, job, way in (PP, BOTH))
                memory = input_bytes / case.scale + 4 * times.details[name]["parameter_bytes"]
                others = {"memory": memory / (1e9 * cfg.device_gigabytes)}
                if uncached and uncached.loading:
                    others["loading saved"] = 1 - batch.loading / uncached.loading
                if batch.loading:
                    others["gather of loading"] = batch.gather / batch.loading
                result.add(labels, _step_cells(batches.batch_here(times, name), count, batches.MEASURED, {}))
                result.add(labels, _step_cells(batch, count, batches.SIMULATED, others), **compared.names, way=way)


def draw_steps(result: Result, cfg: PagraphKeys) -> None:
    """Draw the steps of the simulated epochs."""
    drawn = [
        row for row in result.rows if row.cells.get("loading") and row.cells["loading"].origin == batches.SIMULATED
    ]
    title, group = ("{1}, {2}, {3}", 0) if len(result.cases) > 1 else ("{0}, {1}, {2}", 3)
    result.panels += bars(f"{title}: simulated", "seconds of an epoch", drawn, STEPS[:4], ("ours",), group)


def _step_cells(batch: BatchSeconds, count: float, origin: Origin, others: Mapping[str, float]) -> dict[str, Cell]:
    """Cells of an epoch of ``count`` batches.

    Args:
        others: further shares.
    """
    seconds = {"sample": batch.sample, "gather": batch.gather + batch.decode, "transfer": batch.transfer}
    seconds["compute"] = batch.compute
    cells = {step: Cell(value * count, unit="s", origin=origin) for step, value in seconds.items()}
    if origin == batches.MEASURED:
        cells["transfer"] = Cell("none", unit="s", origin=origin)
    shares = {"loading": batch.loading / batch.in_turn, "computing": batch.compute / batch.in_turn}
    return cells | {name: Cell(100 * value, unit="%", origin=origin) for name, value in {**shares, **others}.items()}


RULES = ("degree", "random", "AliGraph")


def shares(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """The epoch by the share of the rows that the cache holds, and by the rule that chooses them."""
    for job in sampled_jobs(cfg, case):
        structure, compared = PagraphDraws(cfg, case, list(job.draws)), compare(cfg, job, presets_of(cfg, job))
        batch = compared.whole[PLAIN]
        assert batch is not None
        reads, scores = structure.reads(range(1, cfg.epochs + 1)), rules(cfg, structure)
        labels, first = compared.labels[:2], len(result.rows)
        result.details[", ".join(labels)] = compared.times.records(compared.presets)[PLAIN]
        for share in cfg.shares:
            cells = {}
            for name in RULES:
                kept = most(structure.rows(share), *scores[name])
                misses = 1 - reads[kept].sum() / max(1, reads.sum())
                seconds = (batch.in_turn - batch.loading * (1 - misses)) * compared.num_whole
                cells[name] = Cell(float(seconds), unit="s", origin=batches.SIMULATED)
            if structure.is_symmetric:
                cells["AliGraph"] = Cell("ties", unit="s")
            about, label = compared.names | {"share": share}, f"{share:g} % of the rows"
            result.add((*labels, label), cells, "AliGraph", by="rule", value="seconds", **about)
        heights = {name: numbers(result.rows[first:], name) for name in RULES}
        curves = [Curve(name, list(cfg.shares), ys) for name, ys in heights.items() if len(ys) == len(cfg.shares)]
        ylabel = "seconds of an epoch, simulated"
        result.panels.append(Curves(", ".join(labels), "rows on the device, %", ylabel, curves))


TOGETHER, PRECOMPUTED, LOCALLY = "plain, together", "cached + PP, together", "cached + PP, locally"
SHUFFLES: dict[str, dict[str, Any]] = {
    TOGETHER: {},
    PRECOMPUTED: {"precomputed": True, "share": 1.0},
    LOCALLY: {"precomputed": True, "share": 1.0, "split": True},
}


@dataclass(frozen=True)
class AccuracyCurve:
    """The epochs of a run."""

    accuracy: list[float]  # of the validation nodes, per cent, after each
    seconds: list[float]  # of each, without its evaluation


def convergence(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """Train in each way, with each seed."""
    for job in sampled_jobs(cfg, case):
        runs = {way: [_train(cfg, job, keys, seed) for seed in cfg.seeds] for way, keys in SHUFFLES.items()}
        wanted = NEARLY * min(max(run.accuracy) for own in runs.values() for run in own)
        base = _reached(runs[TOGETHER], wanted)[1]
        for way, own in runs.items():
            best = [max(run.accuracy) for run in own]
            epochs, time = _reached(own, wanted)
            paper = published(cfg.paper, "speedup", **paper_names(job), way=way)
            cells = {
                "accuracy": Cell(statistics.fmean(best), unit="%"),
                "spread": Cell(max(best) - min(best), unit="points"),
                "epochs": Cell(epochs),
                "time": Cell(time, unit="s", ratio=over(base, time), paper_ratio=paper),
            }
            labels = (case.title, name_of(job), way)
            result.add(labels, cells)
            result.details[", ".join(labels)] = [vars(run) for run in own]
        curves = [mean_curve(way, [run.accuracy for run in own]) for way, own in runs.items()]
        title = f"{case.title}, {name_of(job)}"
        result.panels.append(Curves(title, "epochs", "accuracy of validation nodes, %", curves))


def _reached(runs: list[AccuracyCurve], wanted: float) -> tuple[Value, Value]:
    """The epochs in which all runs reach the accuracy, and their seconds, in the mean; or how many runs do."""
    epochs = [epoch for run in runs if (epoch := reaching(run.accuracy, wanted)) is not None]
    if len(epochs) < len(runs):
        return f"{len(epochs)} of {len(runs)} runs", "not reached"
    return statistics.fmean(epochs), statistics.fmean(n * epoch_s(run.seconds) for n, run in zip(epochs, runs))


def _train(cfg: PagraphKeys, job: SampledJob, keys: dict[str, Any], seed: int) -> AccuracyCurve:
    overrides = [
        f"model.num_layers={len(job.draws)}",
        f"model.hidden_channels={job.case.hidden}",
        "optimizer.weight_decay=0",
        f"loader.batch_size={batch_size(cfg, job.case) * job.ranks}",
        f"train.epochs={cfg.epochs}",
        *place(cfg, job.ranks, seed, cfg.threads),
        *preset(cfg, job, **keys).split()[1:],
    ]
    run = train(overrides, sampled=True, graph=job.case.graph)
    return AccuracyCurve([100 * accuracy for accuracy in run.by_epoch("val_accuracy")], run.seconds)
