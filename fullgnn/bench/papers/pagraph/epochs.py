"""Epochs of sampled training by the way in which features come to the device: measured here, and simulated on the
paper's kind of GPU (``batches.py``), one step after the other, or overlapped where the table says so. And accuracy by
epoch where every rank shuffles training nodes of its own, and where all are shuffled together."""

import itertools
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fullgnn.bench.papers import batches
from fullgnn.bench.papers.batches import BatchSeconds, Comparison, MeasuredBatches
from fullgnn.bench.papers.config import BOTH, CACHED, LAYER, PLAIN, PP, WAYS, published
from fullgnn.bench.papers.graphs import GraphCase
from fullgnn.bench.papers.pagraph.counts import PagraphDraws, PagraphJob, PagraphKeys, batch_size, rules, sampled_jobs
from fullgnn.bench.papers.result import Cell, Curve, Curves, Origin, Result, Value, bars, cells, numbers, over
from fullgnn.bench.papers.trainings import NEARLY, TrainingCurve, epoch_s, listed, mean_curve, place, train
from fullgnn.sampling.caches import most

Presets = Callable[[PagraphJob], dict[str, str]]
"""Column of a table -> the preset of the benchmark that trains a job in this way."""


def preset(
    job: PagraphJob, precomputed: bool = False, share: float | None = None, split: bool = False, workers: int = 0
) -> str:
    """The preset of the benchmark that trains ``job``.

    Args:
        share: of the rows that stay on the device; None: there is no cache.
        split: whether ranks have training nodes of their own.
        workers: processes of a rank that make batches ahead.
    """
    model, draws = job.cfg.models[job.model], job.draws_of(precomputed)
    keys = ["default", *model.keys, *job.cfg.training]
    if precomputed:
        keys += [*model.precomputed, "loader.precompute=true"]
    if job.sampler == LAYER:
        sizes = (max(1, round(size * job.case.scale)) for size in draws)
        keys += ["sampler=layer", f"sampler.sizes={listed(sizes)}"]
    else:
        keys += [f"sampler.fanouts={listed(draws)}"]
    if share is not None:
        megabytes = share * job.case.graph.num_nodes * job.row_bytes(precomputed) / 1e6
        keys += ["cache=degree", f"cache.megabytes={megabytes + 1e-6:.6f}"]
    keys += ["loader.split=pagraph"] * split
    return " ".join([*keys, *([f"loader.num_workers={workers}"] if workers else [])])


def presets_of(job: PagraphJob) -> dict[str, str]:
    """Way -> its preset. What a cache holds is what fits the device of the paper.

    All ways are measured together, also where a target shows some of them, so that targets of one command share them.
    """
    presets = {}
    for way in WAYS:
        precomputed, cached = way in (PP, BOTH), way in (CACHED, BOTH)
        share = job.cached_share(precomputed) if cached else None
        presets[way] = preset(job, precomputed, share, split=cached and job.ranks > 1)
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


def simulated(job: PagraphJob, details: dict[str, Any]) -> BatchSeconds:
    """A batch of the whole graph on the modelled machine.

    Args:
        details: what the benchmark has counted and measured of a batch here.
    """
    hardware, up, counts = batches.modelled(job.cfg.hardware), 1 / job.case.scale, details["counts"]
    fetched, drawing = counts["fetched_bytes"] * up, details["steps_ms"]["sample"] / 1e3
    if job.sampler != LAYER:
        drawing = counts["sampled_edges"] * batches.draw_s(job.case, job.draws, job.cfg.batch_size, job.cfg.seed)
    return BatchSeconds(
        sample=up * drawing,
        gather=fetched * gather_s(job.case),
        transfer=hardware.link("exchange", 2).time_s(fetched) if fetched else 0.0,
        compute=batches.compute_s(hardware, job.case, details, up, one_table=True),
        waiting=batches.waiting_s(hardware, job.ranks, details),
    )


def compare(job: PagraphJob, presets: dict[str, str]) -> Comparison:
    """Measure ``presets``, on as many ranks as ``job`` has, or on one rank where these are too many; and simulate."""
    runs_here, size = job.ranks <= job.cfg.most_ranks, batch_size(job.cfg, job.case)
    ranks = job.ranks if runs_here else 1
    times = batches.measure(job.cfg, job.case, "minibatch", tuple(presets.values()), nproc=ranks, batch_size=size)
    whole = {
        way: simulated(job, counted(times, presets, way)) if name in times.ms else None for way, name in presets.items()
    }
    count = max(1, -(-int(job.case.graph.train_mask.sum()) // (size * job.ranks)))  # batches of an epoch
    return Comparison(job.labels, job.paper_names, presets, times, whole, count if runs_here else 0, count)


def say_same(result: Result, cfg: PagraphKeys, presets_of: Presets, *pairs: Sequence[str]) -> None:
    """Say below the table how many pairs of ways have had the same losses, as far as both have some.

    On several ranks, ways with a cache have training nodes of their own, but not the first stages.
    """
    same = []
    for job in itertools.chain.from_iterable(sampled_jobs(cfg, case) for case in result.cases):
        presets = presets_of(job)
        details = compare(job, presets).times.details  # known by now
        for pair in pairs if job.ranks == 1 or presets_of is stages else ():
            losses = [details[presets[way]]["losses"] for way in pair if presets[way] in details]
            if len(losses) == len(pair):
                count = min(map(len, losses))
                first, second = (of_way[:count] for of_way in losses)
                same.append(count > 0 and np.array_equal(first, second, equal_nan=True))
    if same:
        what = "The losses of a cached training and of the same one without are equal to the bit"
        result.notes.append(f"{what} in {sum(same)} of {len(same)} pairs.")


def ways(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """The epoch by the way in which features are loaded."""
    for job in sampled_jobs(cfg, case):
        compare(job, presets_of(job)).add_epochs(result, cfg.chosen_ways, "way")


def finish_ways(result: Result, cfg: PagraphKeys) -> None:
    """Compare losses of ways that train alike, and draw the speed-ups."""
    say_same(result, cfg, presets_of, (PLAIN, CACHED), (PP, BOTH))
    title, group = ("{1}, {2}", 0) if len(result.cases) > 1 else ("{0}, {1}", 2)  # one graph is drawn by its draws
    result.panels += batches.bars_by_origin(title, "speed-up over plain", result.rows, WAYS, group=group)


STAGES = (PP, "+ cache", "+ partition", "+ pipeline")


def stages(job: PagraphJob) -> dict[str, str]:
    """Stage -> its preset, with the keys of all stages before it."""
    keys: list[dict[str, Any]] = [{}, {"share": job.cfg.shares[0] / 100}, {"split": job.ranks > 1}, {"workers": 1}]
    joined = itertools.accumulate(keys, operator.or_)
    return {stage: preset(job, precomputed=True, **own) for stage, own in zip(STAGES, joined)}


def ablation(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """The epoch with one stage of the paper after the other; each can be switched off by its key."""
    for job in sampled_jobs(cfg, case):
        compare(job, stages(job)).add_epochs(result, STAGES, "stage", overlapped=STAGES[-1])


def finish_ablation(result: Result, cfg: PagraphKeys) -> None:
    """Compare the losses with and without a cache, and with and without a pipeline."""
    say_same(result, cfg, stages, STAGES[:2], STAGES[2:])
    result.panels += batches.bars_by_origin("{0}, {2}", "speed-up over PP", result.rows, STAGES, group=1)


STEPS = ("sample", "gather", "transfer", "compute")
SHARES = ("loading", "gather of loading", "loading saved", "computing", "memory")
UNCACHED = {CACHED: PLAIN, BOTH: PP}
"""Way with a cache -> the same one without."""


def steps(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """The epoch by step."""
    for job in sampled_jobs(cfg, case):
        compared = compare(job, presets_of(job))
        times, count, whole = compared.times, compared.num_whole, compared.whole
        for way, name in compared.presets.items():
            labels, batch, uncached = (*compared.labels, way), whole[way], whole.get(UNCACHED.get(way, ""))
            result.details[", ".join(labels)] = times.records({way: name})[way]
            if batch is None:
                result.add(labels, {STEPS[0]: times.cell(name)})
            elif way in cfg.chosen_ways:
                input_bytes = times.details[name]["counts"]["input_rows"] * job.row_bytes(way in (PP, BOTH))
                memory = input_bytes / case.scale + 4 * times.details[name]["parameter_bytes"]
                others = {"memory": memory / (1e9 * cfg.device_gigabytes)}
                if uncached and uncached.loading:
                    others["loading saved"] = 1 - batch.loading / uncached.loading
                if batch.loading:
                    others["gather of loading"] = batch.gather / batch.loading
                here = _step_cells(batches.batch_here(times, name), count, batches.MEASURED, {})
                result.add(labels, here | {"transfer": Cell("none", unit="s")})
                result.add(labels, _step_cells(batch, count, batches.SIMULATED, others), **compared.names, way=way)


def draw_steps(result: Result, cfg: PagraphKeys) -> None:
    """Draw the steps of the simulated epochs."""
    title, group = ("{1}, {2}, {3}", 0) if len(result.cases) > 1 else ("{0}, {1}, {2}", 3)
    drawn, ylabel = [batches.SIMULATED], "seconds of an epoch"
    result.panels += bars(title, ylabel, result.rows, STEPS, ("ours",), group, origins=drawn)


def _step_cells(batch: BatchSeconds, count: float, origin: Origin, others: Mapping[str, float]) -> dict[str, Cell]:
    """Cells of an epoch of ``count`` batches.

    Args:
        others: further shares.
    """
    spent = (batch.sample, batch.gather + batch.decode, batch.transfer, batch.compute)
    shares = {"loading": batch.loading / batch.in_turn, "computing": batch.compute / batch.in_turn, **others}
    seconds = cells({step: count * value for step, value in zip(STEPS, spent)}, "s", origin)
    return seconds | cells({name: 100 * share for name, share in shares.items()}, "%", origin)


RULES = ("degree", "random", "AliGraph")


def shares(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """The epoch by the share of the rows that the cache holds, and by the rule that chooses them."""
    for job in sampled_jobs(cfg, case):
        structure, compared = PagraphDraws.of(cfg, case, job.draws), compare(job, presets_of(job))
        batch = compared.whole[PLAIN]
        assert batch is not None
        reads, scores = structure.reads(range(1, cfg.epochs + 1)), rules(cfg, structure)
        labels, first = compared.labels[:2], len(result.rows)
        result.details[", ".join(labels)] = compared.times.records(compared.presets)[PLAIN]
        for share in cfg.shares:
            seconds: dict[str, Value] = {}
            for name in RULES:
                kept = most(structure.rows(share), *scores[name])
                misses = 1 - reads[kept].sum() / max(1, reads.sum())
                seconds[name] = float((batch.in_turn - batch.loading * (1 - misses)) * compared.num_whole)
            row = cells(seconds, "s", batches.SIMULATED)
            if structure.graph.is_symmetric:
                row["AliGraph"] = Cell("ties", unit="s")
            about, label = compared.names | {"share": share}, f"{share:g} % of the rows"
            result.add((*labels, label), row, "AliGraph", by="rule", value="seconds", **about)
        heights = {name: numbers(result.rows[first:], name) for name in RULES}
        curves = [Curve(name, list(cfg.shares), ys) for name, ys in heights.items() if len(ys) == len(cfg.shares)]
        ylabel = "seconds of an epoch, simulated"
        result.panels.append(Curves(", ".join(labels), "rows on the device, %", ylabel, curves))


TOGETHER = "plain, together"
SHUFFLES: dict[str, dict[str, Any]] = {
    TOGETHER: {},
    "cached + PP, together": {"precomputed": True, "share": 1.0},
    "cached + PP, locally": {"precomputed": True, "share": 1.0, "split": True},
}


def convergence(result: Result, cfg: PagraphKeys, case: GraphCase) -> None:
    """Train in each way, with each seed."""
    for job in sampled_jobs(cfg, case):
        runs = {way: [_train(job, keys, seed) for seed in cfg.seeds] for way, keys in SHUFFLES.items()}
        wanted = NEARLY * min(run.best for own in runs.values() for run in own)
        base = reached(runs[TOGETHER], wanted)[1]
        for way, own in runs.items():
            best, labels = [run.best for run in own], (case.title, job.name, way)
            epochs, time = reached(own, wanted)
            paper = published(cfg.paper, "speedup", **job.paper_names, way=way)
            row = {"accuracy": statistics.fmean(best), "spread": max(best) - min(best), "epochs": epochs}
            result.add(labels, row | {"time": Cell(time, unit="s", ratio=over(base, time), paper_ratio=paper)})
            result.details[", ".join(labels)] = [{"accuracy": run.accuracies, "seconds": run.seconds} for run in own]
        curves = [mean_curve(way, [run.accuracies for run in own]) for way, own in runs.items()]
        result.panels.append(Curves(f"{case.title}, {job.name}", "epochs", "accuracy of validation nodes, %", curves))


def reached(runs: list[TrainingCurve], wanted: float) -> tuple[Value, Value]:
    """The epochs in which all runs reach the accuracy, and their seconds, in the mean; or how many runs do."""
    epochs = [arrival.epoch for run in runs if (arrival := run.reaching(wanted))]
    if len(epochs) < len(runs):
        return f"{len(epochs)} of {len(runs)} runs", "not reached"
    return statistics.fmean(epochs), statistics.fmean(n * epoch_s(run.seconds) for n, run in zip(epochs, runs))


def _train(job: PagraphJob, keys: dict[str, Any], seed: int) -> TrainingCurve:
    """Train a job once; accuracies are in per cent."""
    overrides = [f"model.num_layers={len(job.draws)}", f"model.hidden_channels={job.case.hidden}"]
    overrides += [f"train.epochs={job.cfg.epochs}", "optimizer.weight_decay=0"]
    overrides += [f"loader.batch_size={batch_size(job.cfg, job.case) * job.ranks}"]
    overrides += [*place(job.cfg, job.ranks, seed, job.cfg.threads), *preset(job, **keys).split()[1:]]
    return train(overrides, sampled=True, graph=job.case.graph).curve("val_accuracy", scale=100)
