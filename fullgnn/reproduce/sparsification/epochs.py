"""Epochs of sampled training with full and with compressed features, by step: measured here, and simulated.

Without a GPU nothing is transferred, so most of what the codec saves cannot be measured here: ``machine.py`` has the
model of a machine like the paper's.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from fullgnn.codecs.topk import GROUP
from fullgnn.reproduce.graphs import Case
from fullgnn.reproduce.modelled import MEASURED, SIMULATED, Batch, bars_by_origin, batch_here
from fullgnn.reproduce.result import (
    Bars,
    Cell,
    Curve,
    Curves,
    Labels,
    Origin,
    Result,
    Series,
    TableRow,
    bars,
    number,
    over,
    speedups,
)
from fullgnn.reproduce.sampled import Measured, measure
from fullgnn.reproduce.sparsification import machine
from fullgnn.reproduce.sparsification.config import CLUSTER, Config, batch_size, cases
from fullgnn.reproduce.sparsification.machine import Setting, num_batches
from fullgnn.reproduce.sparsification.sizes import ID_BYTES, code_bytes

FULL, SPARSE = "full", "sparse"
WAYS = (FULL, SPARSE)

_MEGA = 1e6


def settings(cfg: Config, found: Iterable[Case]) -> Iterator[Setting]:
    """All that a target trains on one rank."""
    for case, model in itertools.product(found, cfg.chosen_models):
        yield Setting(case, model)


def preset(cfg: Config, one: Setting, k: int | None = None, gathered: bool = False) -> str:
    """The preset of the benchmark that trains ``one``, see ``machine.overrides``."""
    return " ".join(["default", *machine.overrides(cfg, one, k, gathered)])


def presets_of(cfg: Config, one: Setting, gathered: bool = False) -> dict[str, str]:
    """Way -> its preset, with the paper's k."""
    return {FULL: preset(cfg, one, None, gathered), SPARSE: preset(cfg, one, cfg.kinds[one.case.dataset].k)}


def measured(cfg: Config, one: Setting, presets: Iterable[str]) -> Measured:
    """The benchmark of ``presets``."""
    return measure(cfg, one.case, "minibatch", one.ranks, batch_size(cfg, one.case), presets=tuple(presets))


def batches_here(cfg: Config, one: Setting, times: Measured) -> float:
    """Batches of an epoch of the shrunk graph."""
    if cfg.models[one.model].sampler == CLUSTER:
        return machine.clusters_here(cfg, one.case) / cfg.group_size / one.ranks
    return times.num_batches


def simulated_way(cfg: Config, one: Setting, times: Measured, full: str, k: int | None) -> Batch | None:
    """A batch of the whole graph; the batches of all ways are those of the preset ``full``. None: it has not run.

    Args:
        k: of the codec; None: the features are as they are.
    """
    if full not in times.ms:
        return None
    width = one.case.full.num_features
    return machine.simulated(cfg, one, times.details[full], None if k is None else code_bytes(width, k))


def simulated_ways(cfg: Config, setting: Setting, times: Measured, presets: dict[str, str]) -> dict[str, Batch | None]:
    """A batch of the whole graph by way, with the paper's k."""
    by_way = {FULL: None, SPARSE: cfg.kinds[setting.case.dataset].k}
    return {way: simulated_way(cfg, setting, times, presets[FULL], k) for way, k in by_way.items()}


Comparison = tuple[Setting, Labels, dict[str, str], Measured]
"""What is trained, the labels of its rows, its preset by way, and the benchmark of the presets."""


def comparisons(
    cfg: Config, chosen: Iterable[Case], details: dict[str, Any], gathered: bool = False
) -> Iterator[Comparison]:
    """Measure all that a target trains on one rank, in both ways; ``details`` get what the record keeps."""
    for setting in settings(cfg, chosen):
        presets = presets_of(cfg, setting, gathered)
        times = measured(cfg, setting, presets.values())
        labels = setting.case.title, cfg.models[setting.model].title
        details[", ".join(labels)] = record(times, presets)
        yield setting, labels, presets, times


def record(times: Measured, presets: dict[str, str]) -> dict[str, Any]:
    """What the record keeps of the ways."""
    return {way: times.record(name) for way, name in presets.items()}


def epochs(cfg: Config) -> Result:
    """The epoch, with full and with compressed features."""
    found, rows, details = cases(cfg), [], dict[str, Any]()
    for one, labels, presets, times in comparisons(cfg, found, details):
        scale = batches_here(cfg, one, times) / 1e3
        rows.append(TableRow(labels, speedups({way: times.cell(presets[way], scale, "s") for way in WAYS}, FULL)))
        cells = {}
        for way, batch in simulated_ways(cfg, one, times, presets).items():
            seconds = None if batch is None else batch.in_turn * num_batches(cfg, one)
            paper = cfg.published("seconds", graph=one.case.dataset, model=one.model, way=way)
            cells[way] = Cell(seconds, paper, "s", SIMULATED)
        rows.append(TableRow(labels, speedups(cells, FULL)))
    panels = bars_by_origin("{1}", "speed-up of the codec", rows, [SPARSE])
    return Result(("graph", "model"), WAYS, rows, panels, found, cfg.notes, details)


def ratios(cfg: Config) -> Result:
    """The epoch by the ratio of the codec; 1: full features."""
    found, rows, panels, details = cases(cfg), [], [], dict[str, Any]()
    columns = [f"{ratio} x" for ratio in cfg.ratios]
    by_column = {name: None if ratio == 1 else 2 * GROUP // ratio for name, ratio in zip(columns, cfg.ratios)}
    for one in settings(cfg, found):
        full = preset(cfg, one)
        presets = {name: preset(cfg, one, k) for name, k in by_column.items()}
        times = measured(cfg, one, dict.fromkeys([full, *presets.values()]))
        labels = one.case.title, cfg.models[one.model].title
        width, scale = one.case.full.num_features, batches_here(cfg, one, times) / 1e3
        own = {name: 4 * width if k is None else code_bytes(width, k) for name, k in by_column.items()}
        true = {name: Cell(4 * width / row, unit="x", origin="derived") for name, row in own.items()}
        rows.append(TableRow((*labels, "true ratio"), true))
        here = {name: times.cell(presets[name], scale, "s") for name in columns}
        rows.append(TableRow((*labels, "epoch"), speedups(here, columns[0])))
        cells = {}
        for ratio, (name, k) in zip(cfg.ratios, by_column.items()):
            batch = simulated_way(cfg, one, times, full, k)
            seconds = None if batch is None else batch.in_turn * num_batches(cfg, one)
            paper = cfg.published("seconds", graph=one.case.dataset, model=one.model, compression=ratio)
            cells[name] = Cell(seconds, paper, "s", SIMULATED)
        rows.append(TableRow((*labels, "epoch"), speedups(cells, columns[0])))
        details[", ".join(labels)] = record(times, presets)
        for line in rows[-2:]:
            origin = line.cells[columns[0]].origin
            heights = [[number(getattr(line.cells[name], field)) for name in columns] for field in _RATIOS]
            series = [Series(f"over {columns[0]}", *heights)]
            panels.append(Bars(f"{', '.join(labels)}: {origin}", "speed-up", columns, series))
    return Result(("graph", "model", "what"), columns, rows, panels, found, cfg.notes, details)


_RATIOS = "ratio", "paper_ratio"

STEPS = ("sample", "gather", "transfer", "decode", "compute", "gather and transfer saved", "features", "structure")


def steps(cfg: Config) -> Result:
    """An iteration by step."""
    found, rows, details = cases(cfg), [], dict[str, Any]()
    for one, labels, presets, times in comparisons(cfg, found, details, gathered=True):
        whole: dict[str, Batch] = {}
        for way, batch in simulated_ways(cfg, one, times, presets).items():
            name = presets[way]
            if name not in times.ms:
                rows.append(TableRow((*labels, way), {STEPS[0]: times.cell(name)}))
                continue
            rows.append(TableRow((*labels, way), _cells_here(times, name)))
            assert batch is not None
            whole[way] = batch
            rows.append(TableRow((*labels, way), _cells_whole(cfg, one, times, presets[FULL], way, whole)))
    drawn = [row for row in rows if row.cells[STEPS[0]].origin == SIMULATED]
    panels = bars("{0}, {1}: simulated", "ms of an iteration", drawn, STEPS[:5], ("ours",), 2)
    return Result(("graph", "model", "features are"), STEPS, rows, panels, found, cfg.notes, details)


def _cells_here(times: Measured, name: str) -> dict[str, Cell]:
    batch, counts = batch_here(times, name), times.details[name]["counts"]
    cells = {step: Cell(1e3 * getattr(batch, step), unit="ms") for step in STEPS[:5]}
    cells["transfer"] = Cell("none", unit="ms")
    cells["features"] = Cell(counts["fetched_bytes"] / _MEGA, unit="MB")
    cells["structure"] = Cell(counts["sampled_edges"] * ID_BYTES / _MEGA, unit="MB")
    return cells


def _cells_whole(
    cfg: Config, one: Setting, times: Measured, full: str, way: str, whole: dict[str, Batch]
) -> dict[str, Cell]:
    """Cells of an iteration of the whole graph."""
    batch, counts, up = whole[way], times.details[full]["counts"], machine.grows(cfg, one)
    width = one.case.full.num_features
    row = 4 * width if way == FULL else code_bytes(width, cfg.kinds[one.case.dataset].k)
    values = {step: (1e3 * getattr(batch, step), "ms") for step in STEPS[:5]}
    values["features"] = counts["input_rows"] * up * row / _MEGA, "MB"
    values["structure"] = counts["sampled_edges"] * up * ID_BYTES / _MEGA, "MB"
    if way != FULL:
        base = whole[FULL]
        saved = 1 - (batch.gather + batch.transfer) / (base.gather + base.transfer)
        values["gather and transfer saved"] = 100 * saved, "%"
    return {
        name: Cell(value, cfg.published(name, graph=one.case.dataset, way=way), unit, SIMULATED)
        for name, (value, unit) in values.items()
    }


def loading(cfg: Config) -> Result:
    """The share of an iteration in which the features are loaded."""
    found, rows, details = cases(cfg), [], dict[str, Any]()
    for one, labels, presets, times in comparisons(cfg, found, details, gathered=True):
        batches = {way: batch_here(times, name) if name in times.ms else None for way, name in presets.items()}
        rows.append(TableRow(labels, {way: _share(batch, MEASURED) for way, batch in batches.items()}))
        cells = {}
        for way, batch in simulated_ways(cfg, one, times, presets).items():
            paper = cfg.published("loading", graph=one.case.dataset, model=one.model, way=way)
            cells[way] = replace(_share(batch, SIMULATED), paper=paper)
        rows.append(TableRow(labels, cells))
    panels = bars_by_origin("{1}", "loading, % of an iteration", rows, WAYS, heights=("ours", "paper"))
    return Result(("graph", "model"), WAYS, rows, panels, found, cfg.notes, details)


def _share(batch: Batch | None, origin: Origin) -> Cell:
    share = None if batch is None else 100 * batch.loading / batch.in_turn
    return Cell(share, unit="%", origin=origin)


THROUGHPUT = ("full", "sparse", "full, scaling", "sparse, scaling", "sparse over full")
OWN, SHARED, THIS = "one a rank", "shared", "this one"
"""Hosts: a simulated rank gathers as fast as if it were alone, or waits until the other ranks have gathered."""


def throughput(cfg: Config) -> Result:
    """Training nodes a second by the number of ranks."""
    found, rows, panels, details = cases(cfg), [], [], dict[str, Any]()
    for one in settings(cfg, found):
        presets = presets_of(cfg, one)
        labels = one.case.title, cfg.models[one.model].title
        alone = measured(cfg, one, presets.values())
        speeds: dict[str, dict[int, dict[str, float | None]]] = {THIS: {}, OWN: {}, SHARED: {}}
        assert cfg.nproc is not None
        for ranks in cfg.ranks:
            several = replace(one, ranks=ranks)
            if ranks <= cfg.nproc:
                times = alone if ranks == 1 else measured(cfg, several, presets.values())
                nodes = ranks * batch_size(cfg, one.case)
                speeds[THIS][ranks] = {way: over(1e3 * nodes, times.ms.get(presets[way])) for way in WAYS}
                details[", ".join((*labels, f"p={ranks}"))] = record(times, presets)
            batches = simulated_ways(cfg, several, alone, presets)
            for host, turns in ((OWN, 1), (SHARED, ranks)):
                speeds[host][ranks] = {
                    way: None if batch is None else ranks * cfg.batch_size / _waiting(batch, turns).in_turn
                    for way, batch in batches.items()
                }
        for host, by_ranks in speeds.items():
            own = [
                TableRow((*labels, f"p={ranks}", host), _throughput(cfg, one, host, ranks, by_ranks))
                for ranks in by_ranks
            ]
            rows += own
            panels.append(_scaling(f"{', '.join(labels)}, host: {host}", list(by_ranks), own))
    return Result(("graph", "model", "ranks", "host"), THROUGHPUT, rows, panels, found, cfg.notes, details)


def _waiting(batch: Batch, turns: int) -> Batch:
    """The batch of a rank that gathers after ``turns`` - 1 other ones."""
    return replace(batch, gather=turns * batch.gather)


def _throughput(
    cfg: Config, one: Setting, host: str, ranks: int, speeds: dict[int, dict[str, float | None]]
) -> dict[str, Cell]:
    """Cells of so many ranks; ``speeds`` are by ranks and way."""
    origin, own, first = MEASURED if host == THIS else SIMULATED, speeds[ranks], speeds[min(speeds)]
    values: dict[str, tuple[float | None, str]] = {way: (own[way], "nodes/s") for way in WAYS}
    values |= {f"{way}, scaling": (over(own[way], first[way]), "x") for way in WAYS}
    values["sparse over full"] = over(own[SPARSE], own[FULL]), "x"
    names = {"graph": one.case.dataset, "model": one.model, "ranks": ranks}
    return {name: Cell(value, cfg.published(name, **names), unit, origin) for name, (value, unit) in values.items()}


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
