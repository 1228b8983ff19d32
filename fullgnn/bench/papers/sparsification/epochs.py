"""Epochs of sampled training with full and with compressed features, by step: measured here, and simulated on GPUs
like the paper's (``batches.py``). The steps come one after the other.

A benchmark measures a job in all its ways at once (``compare``); ``batch_counts`` says how many of its batches an epoch
has, and how many times as large a batch is at full size.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fullgnn.bench.papers import batches
from fullgnn.bench.papers import result as results
from fullgnn.bench.papers.batches import MEASURED, SIMULATED, BatchSeconds, Comparison
from fullgnn.bench.papers.config import CLUSTER
from fullgnn.bench.papers.graphs import GraphCase
from fullgnn.bench.papers.result import Cell, Curve, Curves, Origin, Result, TableRow, cells, number, over
from fullgnn.bench.papers.sparsification import sizes
from fullgnn.bench.papers.sparsification.sizes import FULL, ID_BYTES, SPARSE, WAYS, SparsificationKeys
from fullgnn.codecs.topk import GROUP

UPDATE_PASSES = 9
"""How many arrays as large as the parameters a step goes through, whatever its batch: Adam reads four, zeroing the
gradients takes two and adding to them three, as ``costs.trace.Operations`` counts them."""

SECTOR = 32
"""Bytes that a GPU writes at least."""

_MOST_ROWS = 1 << 16
"""Rows that are gathered at once, where the rate of that is measured."""


@dataclass(frozen=True)
class SampledJob:
    """What is trained by batches."""

    cfg: SparsificationKeys
    case: GraphCase
    model: str
    ranks: int = 1


@dataclass(frozen=True)
class BatchCounts:
    """How many batches an epoch of a job has, and how large they are."""

    here: float | None  # of the shrunk graph; None: as many as the benchmark counts
    whole: float  # of one rank at full size
    grows: float  # how many times as large a batch is at full size
    keys: tuple[str, ...] = ()  # overrides that choose batches so large


def batch_counts(job: SampledJob) -> BatchCounts:
    """The batches of ``job``: so many training nodes with their neighbours, or groups of clusters."""
    cfg, nodes, full_nodes = job.cfg, job.case.graph.num_nodes, job.case.full.num_nodes
    if cfg.models[job.model].sampler != CLUSTER:
        num_batches = -(-cfg.kinds[job.case.dataset].train_nodes // (cfg.batch_size * job.ranks))
        return BatchCounts(None, num_batches, cfg.batch_size / sizes.batch_size(cfg, job.case))
    wanted = min(nodes, max(cfg.least_cluster_nodes, cfg.cluster_nodes * job.case.scale))
    group = cfg.group_size
    clusters = max(group, round(group * nodes / wanted))
    keys = f"sampler=cluster sampler.num_clusters={clusters} sampler.group_size={group} loader.batch_size={job.ranks}"
    grows = min(cfg.cluster_nodes, full_nodes) / (nodes * group / clusters)
    here, whole = clusters / group / job.ranks, full_nodes / cfg.cluster_nodes / job.ranks
    return BatchCounts(here, max(1.0, whole), grows, tuple(keys.split()))


def simulated(job: SampledJob, details: dict[str, Any], k: int | None = None) -> BatchSeconds:
    """A batch of the whole graph on the modelled machine.

    Args:
        details: what the benchmark has counted and measured of a batch here.
        k: of the codec; None: the features are as they are.
    """
    cfg, case, model, up = job.cfg, job.case, job.cfg.models[job.model], batch_counts(job).grows
    hardware, is_cluster = batches.modelled(cfg.hardware), model.sampler == CLUSTER
    full_row, row = (sizes.row_bytes(case.full.num_features, of_way) for of_way in (None, k))
    inputs, edges = details["counts"]["input_rows"] * up, details["counts"]["sampled_edges"] * up
    decode = 0.0 if k is None else hardware.op_s + inputs * (row + full_row + SECTOR * row) / hardware.copy_bytes_per_s
    drawing = up * details["steps_ms"]["sample"] / 1e3
    if not is_cluster:
        drawing = edges * batches.draw_s(case, cfg.fanouts, cfg.batch_size, cfg.seed)
    counts_edges = any(layer["edges"] for layer in details["layers"])  # or the layer reads edges one by one
    by_layer, first = () if counts_edges or is_cluster else drawn_by_layer(cfg, case), model.transforms_first
    return BatchSeconds(
        sample=drawing,
        gather=inputs * gather_s(cfg, case.full.num_nodes, row),
        transfer=hardware.link("exchange", 2).time_s(inputs * row + edges * ID_BYTES),
        decode=decode,
        compute=batches.compute_s(
            hardware, case, details, up, edges=by_layer, transforms_first=first, update_passes=UPDATE_PASSES
        ),
        waiting=batches.waiting_s(hardware, job.ranks, details),
    )


def gather_s(cfg: SparsificationKeys, num_nodes: int, row_bytes: int) -> float:
    """Seconds in which this machine gathers a random row of so many bytes, in batches, in the order of the nodes.

    The table has ``num_nodes`` rows, or as many as ``cfg.gather_megabytes`` hold.
    """
    num_rows = max(8, min(num_nodes, int(cfg.gather_megabytes * 1e6) // row_bytes))
    table = np.ones((num_rows, row_bytes), np.uint8)
    return batches.row_s(table, min(num_rows // 4, _MOST_ROWS), (num_rows, row_bytes))


def drawn_by_layer(cfg: SparsificationKeys, case: GraphCase) -> list[float]:
    """The mean edges that each layer reads of a batch of the first epoch, the first layer's first."""
    drawn = itertools.islice(sizes.draws_of(cfg, case).batches(1), cfg.batches)
    return np.mean([[hop.num_edges for hop in hops] for hops in drawn], axis=0)[::-1].tolist()


def compare(
    job: SampledJob, ks: Mapping[str, int | None] | None = None, gathered: bool = False, alone: Comparison | None = None
) -> Comparison:
    """Measure ``job`` by way, and simulate it; the simulated batches of all ways are those with full features.

    Args:
        ks: of the codec, by way; None: full features, and the paper's k.
        gathered: whether full features are gathered, as for a GPU, and not read where they lie.
        alone: of one rank, from whose batches more ranks are simulated than run here; None: these ranks run here.
    """
    cfg, case, model, counts = job.cfg, job.case, job.cfg.models[job.model], batch_counts(job)
    ks = sizes.k_by_way(cfg, case) if ks is None else ks
    plain = ["default", *model.keys, *counts.keys]
    full = " ".join([*plain, "cache=degree", "cache.megabytes=0"] if gathered else plain)
    presets = {way: full if k is None else " ".join([*plain, f"codec=topk codec.k={k}"]) for way, k in ks.items()}
    own, size = tuple(dict.fromkeys([full, *presets.values()])), sizes.batch_size(cfg, case)
    times = alone.times if alone else batches.measure(cfg, case, "minibatch", own, nproc=job.ranks, batch_size=size)
    details = times.details.get(full)
    whole = {way: None if details is None else simulated(job, details, k) for way, k in ks.items()}
    here = times.num_batches if counts.here is None else counts.here
    names = {"graph": case.dataset, "model": job.model}
    return Comparison((case.title, model.title), names, presets, times, whole, here, counts.whole)


def epochs(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """The epoch, with full and with compressed features."""
    for model in cfg.chosen_models:
        compare(SampledJob(cfg, case, model)).add_epochs(result, WAYS, "way")


def ratios(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """The epoch by the ratio of the codec; 1: full features."""
    ks = {f"{ratio} x": None if ratio == 1 else 2 * GROUP // ratio for ratio in cfg.ratios}
    first, width = f"{cfg.ratios[0]} x", case.full.num_features
    true = {name: sizes.row_bytes(width, None) / sizes.row_bytes(width, k) for name, k in ks.items()}
    for model in cfg.chosen_models:
        compared = compare(SampledJob(cfg, case, model), ks)
        result.add((*compared.labels, "true ratio"), cells(true, "x", "derived"))
        compared.add_epochs(result, ks, "compression", "epoch")
        for line in result.rows[-2:]:
            rows = results.transposed({f"over {first}": line})
            result.panels += results.bars(f"{', '.join(compared.labels)}: {line.cells[first].origin}", "speed-up", rows)


STEPS = ("sample", "gather", "transfer", "decode", "compute", "gather and transfer saved", "features", "structure")


def steps(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """An iteration by step."""
    for job, compared in _gathering(result, cfg, case):
        times, full, up = compared.times, compared.whole[FULL], batch_counts(job).grows
        for (way, batch), row in zip(compared.whole.items(), sizes.row_sizes(cfg, case)):
            name, labels = compared.presets[way], (*compared.labels, way)
            if batch is None or full is None or name not in times.ms:
                result.add(labels, {STEPS[0]: times.cell(name)})
                continue
            of_way, of_full = (times.details[compared.presets[kept]]["counts"] for kept in (way, FULL))
            here = batches.batch_here(times, name), of_way["fetched_bytes"], of_way["sampled_edges"]
            result.add(labels, _step_cells(MEASURED, *here) | {"transfer": Cell("none", unit="ms")})
            whole = _step_cells(SIMULATED, batch, of_full["input_rows"] * up * row, of_full["sampled_edges"] * up)
            if way != FULL:
                saved = 1 - (batch.gather + batch.transfer) / (full.gather + full.transfer)
                whole |= cells({"gather and transfer saved": 100 * saved}, "%", SIMULATED)
            result.add(labels, whole, graph=case.dataset, way=way)
        title, rows = ", ".join(compared.labels), results.with_label(result.rows, *compared.labels)
        result.panels += results.bars(title, "ms of an iteration", rows, STEPS[:5], ["ours"], 2, origins=[SIMULATED])


def _gathering(result: Result, cfg: SparsificationKeys, case: GraphCase) -> Iterator[tuple[SampledJob, Comparison]]:
    """What a target compares whose full features are gathered, too."""
    for model in cfg.chosen_models:
        job = SampledJob(cfg, case, model)
        compared = compare(job, gathered=True)
        result.details[", ".join(compared.labels)] = compared.times.records(compared.presets)
        yield job, compared


def _step_cells(origin: Origin, batch: BatchSeconds, feature_bytes: float, num_edges: float) -> dict[str, Cell]:
    ms = {step: 1e3 * getattr(batch, step) for step in STEPS[:5]}
    megabytes = {"features": feature_bytes / 1e6, "structure": num_edges * ID_BYTES / 1e6}
    return cells(ms, "ms", origin) | cells(megabytes, "MB", origin)


def loading(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """The share of an iteration in which the features are loaded."""
    for _, compared in _gathering(result, cfg, case):
        times, presets = compared.times, compared.presets
        here = {way: batches.batch_here(times, name) if name in times.ms else None for way, name in presets.items()}
        for by_way, origin, names in ((here, MEASURED, {}), (compared.whole, SIMULATED, compared.names)):
            shares = {way: 100 * batch.loading / batch.in_turn if batch else None for way, batch in by_way.items()}
            result.add(compared.labels, cells(shares, "%", origin), by="way", value="loading", **names)


OWN, SHARED, THIS = "one a rank", "shared", "this one"
"""Hosts: a simulated rank gathers as fast as if it were alone, or waits until the other ranks have gathered."""


def throughput(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """Training nodes a second by the number of ranks."""
    for model in cfg.chosen_models:
        alone = compare(SampledJob(cfg, case, model))
        for host in (THIS, OWN, SHARED):
            rows, origin = dict[int, TableRow](), MEASURED if host == THIS else SIMULATED
            counts = [ranks for ranks in cfg.ranks if host != THIS or ranks <= cfg.most_ranks]
            speeds = {ranks: _speeds(result, SampledJob(cfg, case, model, ranks), alone, host) for ranks in counts}
            for ranks, own in speeds.items():
                ratios = {f"{way}, scaling": over(own[way], speeds[min(speeds)][way]) for way in WAYS}
                ratios["sparse over full"] = over(own[SPARSE], own[FULL])
                row = cells(own, "nodes/s", origin) | cells(ratios, "x", origin)
                rows[ranks] = result.add((*alone.labels, f"p={ranks}", host), row, ranks=ranks, **alone.names)
            result.panels.append(_scaling(f"{', '.join(alone.labels)}, host: {host}", rows))


def _speeds(result: Result, job: SampledJob, alone: Comparison, host: str) -> dict[str, float | None]:
    """Training nodes a second of all ranks, by way."""
    if host == THIS:
        here, nodes = compare(job), job.ranks * sizes.batch_size(job.cfg, job.case)
        result.details[", ".join((*alone.labels, f"p={job.ranks}"))] = here.times.records(here.presets)
        return {way: over(1e3 * nodes, here.times.ms.get(name)) for way, name in here.presets.items()}
    nodes, turns = job.ranks * job.cfg.batch_size, job.ranks if host == SHARED else 1
    whole = compare(job, alone=alone).whole  # the last rank gathers after ``turns`` - 1 other ones
    seconds = {way: batch and replace(batch, gather=turns * batch.gather) for way, batch in whole.items()}
    return {way: nodes / batch.in_turn if batch else None for way, batch in seconds.items()}


def _scaling(title: str, rows: Mapping[int, TableRow]) -> Curves:
    """Throughput over that of the smallest number of ranks; the paper's dashed, where it has any."""
    curves = []
    for source, way in itertools.product(results.OURS_AND_PAPER, WAYS):
        heights = {ranks: number(getattr(row.cells[f"{way}, scaling"], source)) for ranks, row in rows.items()}
        points = {float(ranks): height for ranks, height in heights.items() if height is not None}
        if source == "ours":
            curves.append(Curve(way, list(points), list(points.values())))
        elif points:
            points = {float(min(rows)): 1.0} | points
            curves.append(Curve(f"{way}, paper", list(points), list(points.values()), dashed=True))
    return Curves(title, "ranks", "throughput over one rank", curves)
