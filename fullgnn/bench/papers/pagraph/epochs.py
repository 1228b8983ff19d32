"""Epochs of sampled training by the way in which features come to the device: measured here, and simulated.

Without a GPU nothing travels, so what a cache saves cannot be measured here. A simulated epoch is that of the whole
graph on the paper's kind of GPU, of whose batches

    sample      and gather take the time that this machine needs for the edges that are drawn, and for the rows that are
                fetched, at the rates of ``draw_s`` and ``gather_s``
    transfer    and compute take what the planner's model of the machine says of the bytes, products and operations

of a batch. What is counted in a batch of the shrunk graph, over the scale, is that of a batch of the whole one.

The steps come one after the other, or overlapped where the table says so.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.graphs import Case, cases
from fullgnn.bench.papers.modelled import (
    MEASURED,
    SIMULATED,
    Batch,
    add_epochs,
    bars_by_origin,
    batch_here,
    draw_s,
    layer_widths,
    modelled,
    row_s,
    waiting_s,
)
from fullgnn.bench.papers.pagraph import config
from fullgnn.bench.papers.pagraph.config import BOTH, CACHED, LAYER, PLAIN, PP, WAYS, Config, batch_size
from fullgnn.bench.papers.pagraph.counts import Structure, rules
from fullgnn.bench.papers.result import Cell, Curve, Curves, Origin, Result, bars, numbers, speedups
from fullgnn.bench.papers.sampled import Measured, measure
from fullgnn.sampling.caches import most


@dataclass(frozen=True)
class Setting:
    """What is trained."""

    case: Case
    model: str
    sampler: str
    draws: tuple[int, ...]  # fan-outs, or the sizes of layers, at full size, from the targets outwards
    ranks: int

    @property
    def name(self) -> str:
        """What the rows of a table call the sampler and the ranks."""
        draws = "layer-wise" if self.sampler == LAYER else "-".join(map(str, self.draws))
        return draws if self.ranks == 1 else f"{draws}, p={self.ranks}"

    def labels(self, cfg: Config) -> tuple[str, str, str]:
        """The cells that name a row of a table: the graph, the model and the draws."""
        return self.case.title, cfg.models[self.model].title, self.name

    def row(self, **others: Any) -> dict[str, Any]:
        """What the paper's numbers name a row by."""
        own = {"graph": self.case.dataset, "model": self.model, "sampler": self.sampler, "ranks": self.ranks}
        return own | {"draws": self.draws[-1]} | others


def settings(cfg: Config, found: Iterable[Case]) -> Iterator[Setting]:
    """All that a target trains."""
    for case, model, sampler in itertools.product(found, cfg.chosen_models, cfg.samplers):
        for draws in [cfg.layer_sizes] if sampler == LAYER else cfg.all_fanouts:
            for ranks in cfg.ranks:
                yield Setting(case, model, sampler, tuple(draws), ranks)


def row_bytes(cfg: Config, one: Setting, precomputed: bool) -> int:
    """Bytes of the features of a node at full size."""
    return 4 * one.case.full.num_features * (cfg.models[one.model].products if precomputed else 1)


def preset(
    cfg: Config,
    one: Setting,
    precomputed: bool = False,
    share: float | None = None,
    split: bool = False,
    workers: int = 0,
) -> str:
    """The preset of the benchmark that trains ``one``.

    Args:
        share: of the rows that stay on the device; None: there is no cache.
        split: whether ranks have training nodes of their own.
        workers: processes of a rank that make batches ahead.
    """
    model, draws = cfg.models[one.model], list(one.draws[:-1] if precomputed else one.draws)
    keys = [*model.keys, *cfg.training]
    if precomputed:
        keys += [*model.precomputed, "loader.precompute=true"]
    if one.sampler == LAYER:
        draws = [max(1, round(size * one.case.scale)) for size in draws]
        keys += ["sampler=layer", f"sampler.sizes=[{','.join(map(str, draws))}]"]
    else:
        keys += [f"sampler.fanouts=[{','.join(map(str, draws))}]"]
    if share is not None:
        megabytes = share * one.case.graph.num_nodes * row_bytes(cfg, one, precomputed) / 1e6
        keys += ["cache=degree", f"cache.megabytes={megabytes + 1e-6:.6f}"]
    if split:
        keys += ["loader.split=pagraph"]
    if workers:
        keys += [f"loader.num_workers={workers}"]
    return " ".join(["default", *keys])


def presets_of(cfg: Config, one: Setting) -> dict[str, str]:
    """Way -> its preset. What a cache holds is what fits the device of the paper.

    All ways are measured together, also where a target shows some of them, so that targets of one command share them.
    """
    found = {}
    for way in WAYS:
        precomputed, cached = way in (PP, BOTH), way in (CACHED, BOTH)
        inputs = config.most_inputs(cfg, one.sampler, list(one.draws[:-1] if precomputed else one.draws))
        share = config.cached_share(cfg, one.case, row_bytes(cfg, one, precomputed), inputs) if cached else None
        found[way] = preset(cfg, one, precomputed, share, split=cached and one.ranks > 1)
    return found


def counted(times: Measured, presets: Mapping[str, str], way: str) -> dict[str, Any]:
    """What is counted and measured of a batch of ``way``.

    A GPU has the same operations for plain features as for cached ones; here, the plain ones are read where they lie.
    """
    details = times.details[presets[way]]
    return details | {"operations": times.details[presets[CACHED]]["operations"]} if way == PLAIN else details


def measured(cfg: Config, one: Setting, presets: Iterable[str]) -> Measured:
    """The benchmark of ``presets``, on as many ranks as ``one`` has, or on one rank where these are too many."""
    assert cfg.nproc is not None
    ranks = one.ranks if one.ranks <= cfg.nproc else 1
    return measure(cfg, one.case, "minibatch", ranks, batch_size(cfg, one.case), presets=tuple(presets))


def gather_s(case: Case) -> float:
    """Seconds in which this machine gathers a byte of random rows of the features."""
    features = case.graph.features
    count = min(case.graph.num_nodes, 4096)
    return row_s(features, count, (case.dataset, case.scale)) / (features.itemsize * features.shape[1])


def simulated(cfg: Config, one: Setting, details: dict[str, Any]) -> Batch:
    """A batch of the whole graph on the modelled machine.

    Args:
        details: what the benchmark has counted and measured of a batch here.
    """
    hardware, up = modelled(cfg.hardware), 1 / one.case.scale
    counts, layers, operations = details["counts"], details["layers"], details["operations"]
    fetched = counts["fetched_bytes"] * up
    widths, of_weights = layer_widths(one.case, len(layers))
    num_matrices = details["parameter_bytes"] / 4 / sum(of_weights)  # of each layer
    flops, edge_bytes = 0.0, 0.0
    for index, (layer, num_weights) in enumerate(zip(layers, of_weights)):
        backward = index > 0  # the features have no gradient
        flops += 2 * layer["targets"] * num_weights * num_matrices * (2 + backward)
        edge_bytes += 4 * layer["edges"] * widths[index] * (1 + backward)
    table_bytes = 4 * layers[0]["sources"] * widths[0] * up
    compute = (
        operations["count"] * hardware.op_s
        + up * operations["bytes"] / hardware.copy_bytes_per_s
        + up * flops / hardware.gemm_flops_per_s
        + up * edge_bytes / hardware.gather_rate(table_bytes)
    )
    drawing = details["steps_ms"]["sample"] / 1e3
    if one.sampler != LAYER:
        drawing = counts["sampled_edges"] * draw_s(one.case, one.draws, cfg.batch_size, cfg.seed)
    return Batch(
        sample=up * drawing,
        gather=fetched * gather_s(one.case),
        transfer=hardware.link("exchange", 2).time_s(fetched) if fetched else 0.0,
        compute=compute,
        waiting=waiting_s(hardware, one.ranks, details),
    )


def num_batches(cfg: Config, one: Setting) -> int:
    """Batches of an epoch."""
    num_train = int(one.case.graph.train_mask.sum())
    return max(1, -(-num_train // (batch_size(cfg, one.case) * one.ranks)))


def _epochs(
    cfg: Config,
    columns: Sequence[str],
    key: str,
    presets_of: Callable[[Config, Setting], dict[str, str]],
    pairs_of: Callable[[Setting], list[tuple[str, str]]],
) -> Result:
    """The epoch as it is measured, if as many ranks run here, and as it is simulated.

    Args:
        columns: names among the presets. Speed-ups are over the name that the presets have first.
        key: by which the paper's numbers name a column.
        pairs_of: see ``same_losses``.
    """
    assert cfg.nproc is not None
    result = Result(("graph", "model", "draws"), columns, cases=cases(cfg, data=cfg.data), notes=[*cfg.notes])
    same = list[bool]()
    for setting in settings(cfg, result.cases):
        presets, count, labels = presets_of(cfg, setting), num_batches(cfg, setting), setting.labels(cfg)
        times, seconds = measured(cfg, setting, presets.values()), dict[str, float | None]()
        for name in columns:
            seconds[name] = None
            if presets[name] in times.ms:
                batch = simulated(cfg, setting, counted(times, presets, name))
                seconds[name] = count * (batch.overlapped if name == STAGES[-1] else batch.in_turn)
        is_measured = setting.ranks <= cfg.nproc
        here = {name: times.cell(presets[name], count / 1e3, "s") for name in columns if is_measured}
        names = {name: setting.row(**{key: name}) for name in columns}
        add_epochs(result, labels, here, seconds, next(iter(presets)), cfg.paper, names)
        result.details[", ".join(labels)] = {way: times.record(name) for way, name in presets.items()}
        same += same_losses(times, presets, pairs_of(setting))
    if same:
        result.notes.append(
            "The losses of a cached training and of the same one without are equal to the bit in"
            f" {sum(same)} of {len(same)} pairs."
        )
    return result


def _same_ways(setting: Setting) -> list[tuple[str, str]]:
    """Ways that train alike; on several ranks those with a cache have training nodes of their own."""
    return [(PLAIN, CACHED), (PP, BOTH)] if setting.ranks == 1 else []


def ways(cfg: Config) -> Result:
    """The epoch by the way in which features are loaded."""
    result = _epochs(cfg, cfg.chosen_ways, "way", presets_of, _same_ways)
    result.columns = WAYS
    title, group = ("{1}, {2}", 0) if len(result.cases) > 1 else ("{0}, {1}", 2)  # one graph is drawn by its draws
    result.panels += bars_by_origin(title, "speed-up over plain", result.rows, WAYS, group=group)
    return result


def same_losses(times: Measured, presets: dict[str, str], pairs: Iterable[tuple[str, str]]) -> list[bool]:
    """Whether pairs of names in ``presets`` have had the same losses, as far as both have some."""
    same = []
    for pair in pairs:
        if not set(pair) <= set(presets) or not {presets[name] for name in pair} <= set(times.details):
            continue
        first, second = (times.details[presets[name]]["losses"] for name in pair)
        count = min(len(first), len(second))
        same.append(bool(count) and np.array_equal(first[:count], second[:count], equal_nan=True))
    return same


STEPS = (
    *("sample", "gather", "transfer", "compute"),
    *("loading", "gather of loading", "loading saved", "computing", "memory"),
)
UNCACHED = {CACHED: PLAIN, BOTH: PP}
"""Way with a cache -> the same one without."""


def steps(cfg: Config) -> Result:
    """The epoch by step."""
    result = Result(("graph", "model", "draws", "features"), STEPS, cases=cases(cfg, data=cfg.data), notes=cfg.notes)
    for one in settings(cfg, result.cases):
        presets = presets_of(cfg, one)
        times, count = measured(cfg, one, presets.values()), num_batches(cfg, one)
        loading: dict[str, float] = {}
        for way, name in presets.items():
            labels = *one.labels(cfg), way
            result.details[", ".join(labels)] = times.record(name)
            if name not in times.ms:
                result.add(labels, {STEPS[0]: times.cell(name)})
                continue
            here, own = batch_here(times, name), simulated(cfg, one, counted(times, presets, way))
            loading[way], base = own.loading, loading.get(UNCACHED.get(way, ""))
            if way not in cfg.chosen_ways:
                continue
            batch_bytes = times.details[name]["counts"]["input_rows"] * row_bytes(cfg, one, way in (PP, BOTH))
            memory = batch_bytes / one.case.scale + 4 * times.details[name]["parameter_bytes"]
            others = {"memory": memory / (1e9 * cfg.device_gigabytes)}
            if base:
                others["loading saved"] = 1 - own.loading / base
            if own.loading:
                others["gather of loading"] = own.gather / own.loading
            result.add(labels, _step_cells(here, count, MEASURED, {}))
            result.add(labels, _step_cells(own, count, SIMULATED, others), cfg.paper, **one.row(way=way))
    drawn = [row for row in result.rows if row.cells.get("loading") and row.cells["loading"].origin == SIMULATED]
    title, group = ("{1}, {2}, {3}", 0) if len(result.cases) > 1 else ("{0}, {1}, {2}", 3)
    result.panels += bars(f"{title}: simulated", "seconds of an epoch", drawn, STEPS[:4], ("ours",), group)
    return result


def _step_cells(batch: Batch, count: int, origin: Origin, others: Mapping[str, float]) -> dict[str, Cell]:
    """Cells of an epoch of ``count`` batches.

    Args:
        others: further shares.
    """
    seconds = {"sample": batch.sample, "gather": batch.gather + batch.decode, "transfer": batch.transfer}
    seconds["compute"] = batch.compute
    cells = {step: Cell(value * count, unit="s", origin=origin) for step, value in seconds.items()}
    if origin == MEASURED:
        cells["transfer"] = Cell("none", unit="s", origin=origin)
    shares = {"loading": batch.loading / batch.in_turn, "computing": batch.compute / batch.in_turn}
    return cells | {name: Cell(100 * value, unit="%", origin=origin) for name, value in {**shares, **others}.items()}


RULES = ("degree", "random", "AliGraph")


def shares(result: Result, cfg: Config, case: Case) -> None:
    """The epoch by the share of the rows that the cache holds, and by the rule that chooses them."""
    for one in settings(cfg, [case]):
        structure, count = Structure(cfg, case, list(one.draws)), num_batches(cfg, one)
        presets = presets_of(cfg, one)
        times, plain = measured(cfg, one, presets.values()), presets[PLAIN]
        batch = simulated(cfg, one, counted(times, presets, PLAIN))
        reads, scores = structure.reads(range(1, cfg.epochs + 1)), rules(cfg, structure)
        labels, first = one.labels(cfg)[:2], len(result.rows)
        result.details[", ".join(labels)] = times.record(plain)
        for share in cfg.shares:
            cells = {}
            for name in RULES:
                kept = most(structure.rows(share), *scores[name])
                misses = 1 - reads[kept].sum() / max(1, reads.sum())
                seconds = (batch.in_turn - batch.loading * (1 - misses)) * count
                paper = published(cfg.paper, "seconds", **one.row(rule=name, share=share))
                cells[name] = Cell(float(seconds), paper, "s", SIMULATED)
            if structure.is_symmetric:
                cells["AliGraph"] = Cell("ties", unit="s")
            result.add((*labels, f"{share:g} % of the rows"), speedups(cells, "AliGraph"))
        heights = {name: numbers(result.rows[first:], name) for name in RULES}
        curves = [Curve(name, list(cfg.shares), ys) for name, ys in heights.items() if len(ys) == len(cfg.shares)]
        result.panels.append(
            Curves(", ".join(labels), "rows on the device, %", "seconds of an epoch, simulated", curves)
        )


STAGES = (PP, "+ cache", "+ partition", "+ pipeline")


def _stages(cfg: Config, one: Setting) -> dict[str, str]:
    """Stage -> its preset, with the keys of all stages before it."""
    keys: list[dict[str, Any]] = [{}, {"share": cfg.shares[0] / 100}, {"split": one.ranks > 1}, {"workers": 1}]
    joined = itertools.accumulate(keys, operator.or_)
    return {stage: preset(cfg, one, precomputed=True, **own) for stage, own in zip(STAGES, joined)}


def ablation(cfg: Config) -> Result:
    """The epoch with one stage of the paper after the other; each can be switched off by its key."""
    result = _epochs(cfg, STAGES, "stage", _stages, lambda setting: [STAGES[:2], STAGES[2:]])
    result.panels += bars_by_origin("{0}, {2}", "speed-up over PP", result.rows, STAGES, group=1)
    return result
