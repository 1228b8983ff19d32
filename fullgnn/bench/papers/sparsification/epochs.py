"""Epochs of sampled training with full and with compressed features, by step: measured here, and simulated on GPUs
like the paper's (``batches.py``). The steps come one after the other."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fullgnn.bench.papers import batches
from fullgnn.bench.papers.batches import BatchSeconds, MeasuredBatches, SampledJob
from fullgnn.bench.papers.config import CLUSTER
from fullgnn.bench.papers.graphs import GraphCase
from fullgnn.bench.papers.result import Cell, Curve, Curves, Origin, Result, TableRow, bars, number, over, transposed
from fullgnn.bench.papers.sparsification.sizes import (
    FULL,
    ID_BYTES,
    SPARSE,
    WAYS,
    SparsificationKeys,
    batch_size,
    code_bytes,
    draws_of,
)
from fullgnn.codecs.topk import GROUP

UPDATE_PASSES = 9
"""How many arrays as large as the parameters a step goes through, whatever its batch: Adam reads four, zeroing the
gradients takes two and adding to them three, as ``costs.trace.Operations`` counts them."""

SECTOR = 32
"""Bytes that a GPU writes at least."""

_MOST_ROWS = 1 << 16
"""Rows that are gathered at once, where the rate of that is measured."""

_MEGA = 1e6


def preset(cfg: SparsificationKeys, job: SampledJob, k: int | None = None, gathered: bool = False) -> str:
    """The preset of the benchmark that trains ``job``.

    Args:
        k: of the codec; None: the features are as they are.
        gathered: whether full features are gathered, as for a GPU, and not read where they lie.
    """
    model = cfg.models[job.model]
    keys = ["default", *model.keys]
    if model.sampler == CLUSTER:
        clusters = clusters_here(cfg, job.case)
        keys += ["sampler=cluster", f"sampler.num_clusters={clusters}", f"sampler.group_size={cfg.group_size}"]
        keys += [f"loader.batch_size={job.ranks}"]
    if k is not None:
        keys += ["codec=topk", f"codec.k={k}"]
    elif gathered:
        keys += ["cache=degree", "cache.megabytes=0"]
    return " ".join(keys)


def clusters_here(cfg: SparsificationKeys, case: GraphCase) -> int:
    """Into how many clusters the shrunk graph is cut."""
    nodes = case.graph.num_nodes
    wanted = min(nodes, max(cfg.least_cluster_nodes, cfg.cluster_nodes * case.scale))
    return max(cfg.group_size, round(cfg.group_size * nodes / wanted))


def batches_here(cfg: SparsificationKeys, job: SampledJob, times: MeasuredBatches) -> float:
    """Batches of an epoch of the shrunk graph."""
    if cfg.models[job.model].sampler == CLUSTER:
        return clusters_here(cfg, job.case) / cfg.group_size / job.ranks
    return times.num_batches


def num_batches(cfg: SparsificationKeys, job: SampledJob) -> float:
    """Batches of an epoch of one rank at full size."""
    if cfg.models[job.model].sampler == CLUSTER:
        return max(1.0, job.case.full.num_nodes / cfg.cluster_nodes / job.ranks)
    return -(-cfg.kinds[job.case.dataset].train_nodes // (cfg.batch_size * job.ranks))


def grows(cfg: SparsificationKeys, job: SampledJob) -> float:
    """How many times as large a batch is at full size."""
    if cfg.models[job.model].sampler != CLUSTER:
        return cfg.batch_size / batch_size(cfg, job.case)
    nodes = job.case.graph.num_nodes * cfg.group_size / clusters_here(cfg, job.case)
    return min(cfg.cluster_nodes, job.case.full.num_nodes) / nodes


def simulated(cfg: SparsificationKeys, job: SampledJob, details: dict[str, Any], k: int | None = None) -> BatchSeconds:
    """A batch of the whole graph on the modelled machine.

    Args:
        details: what the benchmark has counted and measured of a batch here.
        k: of the codec; None: the features are as they are.
    """
    hardware, up, model = batches.modelled(cfg.hardware), grows(cfg, job), cfg.models[job.model]
    width, full_nodes = job.case.full.num_features, job.case.full.num_nodes
    full_row, row = 4 * width, 4 * width if k is None else code_bytes(width, k)
    inputs, edges = details["counts"]["input_rows"] * up, details["counts"]["sampled_edges"] * up
    decode, drawing = 0.0, up * details["steps_ms"]["sample"] / 1e3
    if k is not None:
        decode = hardware.op_s + inputs * (row + full_row + SECTOR * row) / hardware.copy_bytes_per_s
    if model.sampler != CLUSTER:
        drawing = edges * batches.draw_s(job.case, cfg.fanouts, cfg.batch_size, cfg.seed)
    counts_edges = any(layer["edges"] for layer in details["layers"])  # or the layer reads edges one by one
    return BatchSeconds(
        sample=drawing,
        gather=inputs * gather_s(cfg, full_nodes, row),
        transfer=hardware.link("exchange", 2).time_s(inputs * row + edges * ID_BYTES),
        decode=decode,
        compute=batches.compute_s(
            hardware,
            job.case,
            details,
            up,
            edges=() if counts_edges or model.sampler == CLUSTER else drawn_by_layer(cfg, job.case),
            transforms_first=model.transforms_first,
            update_passes=UPDATE_PASSES,
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
    drawn = itertools.islice(draws_of(cfg, case).batches(1), cfg.batches)
    return np.mean([[hop.num_edges for hop in hops] for hops in drawn], axis=0)[::-1].tolist()


def compare(
    cfg: SparsificationKeys,
    job: SampledJob,
    ks: Mapping[str, int | None] | None = None,
    gathered: bool = False,
    alone: batches.Comparison | None = None,
) -> batches.Comparison:
    """Measure ``job`` by way, and simulate it; the simulated batches of all ways are those with full features.

    Args:
        ks: of the codec, by way; None: full features, and the paper's k.
        gathered: whether full features are gathered, as for a GPU, and not read where they lie.
        alone: of one rank, from whose batches more ranks are simulated than run here; None: these ranks run here.
    """
    ks = {FULL: None, SPARSE: cfg.kinds[job.case.dataset].k} if ks is None else ks
    full, presets = preset(cfg, job, None, gathered), {way: preset(cfg, job, k, gathered) for way, k in ks.items()}
    if alone is None:
        own = tuple(dict.fromkeys([full, *presets.values()]))
        times = batches.measure(cfg, job.case, "minibatch", job.ranks, batch_size(cfg, job.case), presets=own)
    else:
        times = alone.times
    details = times.details.get(full)
    whole = {way: None if details is None else simulated(cfg, job, details, k) for way, k in ks.items()}
    labels, names = (job.case.title, cfg.models[job.model].title), {"graph": job.case.dataset, "model": job.model}
    here = batches_here(cfg, job, times)
    return batches.Comparison(labels, names, presets, times, whole, here, num_batches(cfg, job))


def epochs(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """The epoch, with full and with compressed features."""
    for model in cfg.chosen_models:
        compare(cfg, SampledJob(case, model)).add_epochs(result, WAYS, "way")


def ratios(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """The epoch by the ratio of the codec; 1: full features."""
    ks = {f"{ratio} x": None if ratio == 1 else 2 * GROUP // ratio for ratio in cfg.ratios}
    first, width = f"{cfg.ratios[0]} x", case.full.num_features
    sizes = {name: 4 * width if k is None else code_bytes(width, k) for name, k in ks.items()}
    true = {name: Cell(4 * width / row, unit="x", origin="derived") for name, row in sizes.items()}
    for model in cfg.chosen_models:
        compared = compare(cfg, SampledJob(case, model), ks)
        result.add((*compared.labels, "true ratio"), true)
        compared.add_epochs(result, ks, "compression", "epoch")
        for line in result.rows[-2:]:
            origin = line.cells[first].origin
            rows = transposed({f"over {first}": line})
            result.panels += bars(f"{', '.join(compared.labels)}: {origin}", "speed-up", rows)


STEPS = ("sample", "gather", "transfer", "decode", "compute", "gather and transfer saved", "features", "structure")


def steps(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """An iteration by step."""
    width = case.full.num_features
    rows = {FULL: 4 * width, SPARSE: code_bytes(width, cfg.kinds[case.dataset].k)}
    for job, compared in _gathering(result, cfg, case):
        times, base, up = compared.times, compared.whole[FULL], grows(cfg, job)
        for way, batch in compared.whole.items():
            name, labels = compared.presets[way], (*compared.labels, way)
            if batch is None or base is None or name not in times.ms:
                result.add(labels, {STEPS[0]: times.cell(name)})
                continue
            counts = times.details[name]["counts"]
            here = _step_cells(batches.batch_here(times, name), counts["fetched_bytes"], counts["sampled_edges"])
            result.add(labels, here | {"transfer": Cell("none", unit="ms")})
            counts = times.details[compared.presets[FULL]]["counts"]
            cells = _step_cells(batch, counts["input_rows"] * up * rows[way], counts["sampled_edges"] * up)
            if way != FULL:
                saved = 1 - (batch.gather + batch.transfer) / (base.gather + base.transfer)
                cells["gather and transfer saved"] = Cell(100 * saved, unit="%")
            cells = {step: replace(cell, origin=batches.SIMULATED) for step, cell in cells.items()}
            result.add(labels, cells, graph=case.dataset, way=way)


def _gathering(
    result: Result, cfg: SparsificationKeys, case: GraphCase
) -> Iterator[tuple[SampledJob, batches.Comparison]]:
    """What a target compares whose full features are gathered, too."""
    for model in cfg.chosen_models:
        job = SampledJob(case, model)
        compared = compare(cfg, job, gathered=True)
        result.details[", ".join(compared.labels)] = compared.times.records(compared.presets)
        yield job, compared


def _step_cells(batch: BatchSeconds, feature_bytes: float, num_edges: float) -> dict[str, Cell]:
    cells = {step: Cell(1e3 * getattr(batch, step), unit="ms") for step in STEPS[:5]}
    sizes = {"features": feature_bytes, "structure": num_edges * ID_BYTES}
    return cells | {name: Cell(size / _MEGA, unit="MB") for name, size in sizes.items()}


def loading(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """The share of an iteration in which the features are loaded."""
    for _, compared in _gathering(result, cfg, case):
        times, presets = compared.times, compared.presets
        here = {way: batches.batch_here(times, name) if name in times.ms else None for way, name in presets.items()}
        kinds: list[tuple[Mapping[str, BatchSeconds | None], Origin, dict[str, Any]]]
        kinds = [(here, batches.MEASURED, {}), (compared.whole, batches.SIMULATED, compared.names)]
        for by_way, origin, names in kinds:
            shares = {way: 100 * batch.loading / batch.in_turn if batch else None for way, batch in by_way.items()}
            cells = {way: Cell(share, unit="%", origin=origin) for way, share in shares.items()}
            result.add(compared.labels, cells, by="way", value="loading", **names)


OWN, SHARED, THIS = "one a rank", "shared", "this one"
"""Hosts: a simulated rank gathers as fast as if it were alone, or waits until the other ranks have gathered."""


def throughput(result: Result, cfg: SparsificationKeys, case: GraphCase) -> None:
    """Training nodes a second by the number of ranks."""
    for model in cfg.chosen_models:
        job = SampledJob(case, model)
        alone = compare(cfg, job)
        labels = alone.labels
        speeds: dict[str, dict[int, dict[str, float | None]]] = {THIS: {}, OWN: {}, SHARED: {}}
        for ranks in cfg.ranks:
            several = replace(job, ranks=ranks)
            if ranks <= cfg.most_ranks:
                here, nodes = compare(cfg, several), ranks * batch_size(cfg, case)
                ms = {way: here.times.ms.get(name) for way, name in here.presets.items()}
                speeds[THIS][ranks] = {way: over(1e3 * nodes, of_way) for way, of_way in ms.items()}
                result.details[", ".join((*labels, f"p={ranks}"))] = here.times.records(here.presets)
            whole = compare(cfg, several, alone=alone).whole
            for host, turns in ((OWN, 1), (SHARED, ranks)):  # the last rank gathers after ``turns`` - 1 other ones
                speeds[host][ranks] = {
                    way: ranks * cfg.batch_size / replace(batch, gather=turns * batch.gather).in_turn if batch else None
                    for way, batch in whole.items()
                }
        for host, by_ranks in speeds.items():
            origin = batches.MEASURED if host == THIS else batches.SIMULATED
            fewest = by_ranks[min(by_ranks)] if by_ranks else {}
            for ranks, own in by_ranks.items():
                values = {way: (own[way], "nodes/s") for way in WAYS}
                values |= {f"{way}, scaling": (over(own[way], fewest[way]), "x") for way in WAYS}
                values["sparse over full"] = over(own[SPARSE], own[FULL]), "x"
                cells = {name: Cell(value, unit=unit, origin=origin) for name, (value, unit) in values.items()}
                result.add((*labels, f"p={ranks}", host), cells, ranks=ranks, graph=case.dataset, model=model)
            rows = result.rows[len(result.rows) - len(by_ranks) :]
            result.panels.append(_scaling(f"{', '.join(labels)}, host: {host}", list(by_ranks), rows))


def _scaling(title: str, ranks: list[int], rows: list[TableRow]) -> Curves:
    """Throughput over that of the smallest number of ranks; the paper's dashed, where it has any."""
    curves = []
    for way, source in [(way, "ours") for way in WAYS] + [(way, "paper") for way in WAYS]:
        heights = [number(getattr(row.cells[f"{way}, scaling"], source)) for row in rows]
        points = {float(p): height for p, height in zip(ranks, heights) if height is not None}
        if source == "ours":
            curves.append(Curve(way, list(points), list(points.values())))
        elif points:
            points = {float(min(ranks)): 1.0} | points
            curves.append(Curve(f"{way}, paper", list(points), list(points.values()), dashed=True))
    return Curves(title, "ranks", "throughput over one rank", curves)
