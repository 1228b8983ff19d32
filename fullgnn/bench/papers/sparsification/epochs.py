"""Epochs of sampled training with full and with compressed features, by step: measured here, and simulated.

Without a GPU nothing is transferred, so most of what the codec saves cannot be measured here: ``machine.py`` has the
model of a machine like the paper's.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from fullgnn.bench.papers.config import published
from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.modelled import MEASURED, SIMULATED, Batch, add_epochs, batch_here
from fullgnn.bench.papers.result import (
    Cell,
    Curve,
    Curves,
    Origin,
    Result,
    TableRow,
    bars,
    number,
    over,
    transposed,
)
from fullgnn.bench.papers.sampled import Measured, measure
from fullgnn.bench.papers.sparsification import machine
from fullgnn.bench.papers.sparsification.config import CLUSTER, Config, batch_size
from fullgnn.bench.papers.sparsification.machine import Setting, num_batches
from fullgnn.bench.papers.sparsification.sizes import ID_BYTES, code_bytes
from fullgnn.codecs.topk import GROUP

FULL, SPARSE = "full", "sparse"
WAYS = (FULL, SPARSE)

_MEGA = 1e6


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


def simulated_ways(cfg: Config, setting: Setting, presets: dict[str, str], times: Measured) -> dict[str, Batch | None]:
    """A batch of the whole graph by way, with the paper's k."""
    by_way = {FULL: None, SPARSE: cfg.kinds[setting.case.dataset].k}
    return {way: simulated_way(cfg, setting, times, presets[FULL], k) for way, k in by_way.items()}


Comparison = tuple[Setting, dict[str, str], Measured]
"""What is trained, its preset by way, and the benchmark of the presets."""


def comparisons(result: Result, cfg: Config, case: Case, gathered: bool = False) -> Iterator[Comparison]:
    """Measure all that a target trains on a graph and one rank, in both ways."""
    for model in cfg.chosen_models:
        setting = Setting(case, model)
        presets = presets_of(cfg, setting, gathered)
        times = measured(cfg, setting, presets.values())
        result.details[", ".join(setting.labels(cfg))] = record(times, presets)
        yield setting, presets, times


def record(times: Measured, presets: dict[str, str]) -> dict[str, Any]:
    """What the record keeps of the ways."""
    return {way: times.record(name) for way, name in presets.items()}


def _add_epochs(
    result: Result,
    cfg: Config,
    comparison: Comparison,
    batches: Mapping[str, Batch | None],
    labels: tuple[str, ...],
    names: Mapping[str, dict[str, Any]],
) -> None:
    """See ``modelled.add_epochs``. Speed-ups are over the first column.

    Args:
        batches: of the whole graph, by column.
    """
    setting, presets, times = comparison
    scale, count = batches_here(cfg, setting, times) / 1e3, num_batches(cfg, setting)
    here = {name: times.cell(presets[name], scale, "s") for name in batches}
    seconds = {name: None if batch is None else batch.in_turn * count for name, batch in batches.items()}
    about = {"graph": setting.case.dataset, "model": setting.model}
    names = {name: about | own for name, own in names.items()}
    add_epochs(result, labels, here, seconds, next(iter(batches)), cfg.paper, names)


def epochs(result: Result, cfg: Config, case: Case) -> None:
    """The epoch, with full and with compressed features."""
    for comparison in comparisons(result, cfg, case):
        setting = comparison[0]
        batches = simulated_ways(cfg, *comparison)
        _add_epochs(result, cfg, comparison, batches, setting.labels(cfg), {way: {"way": way} for way in WAYS})


def ratios(result: Result, cfg: Config, case: Case) -> None:
    """The epoch by the ratio of the codec; 1: full features."""
    by_column = {f"{ratio} x": None if ratio == 1 else 2 * GROUP // ratio for ratio in cfg.ratios}
    columns, width = list(by_column), case.full.num_features
    for model in cfg.chosen_models:
        setting = Setting(case, model)
        labels, full = setting.labels(cfg), preset(cfg, setting)
        presets = {name: preset(cfg, setting, k) for name, k in by_column.items()}
        times = measured(cfg, setting, dict.fromkeys([full, *presets.values()]))
        sizes = {name: 4 * width if k is None else code_bytes(width, k) for name, k in by_column.items()}
        true = {name: Cell(4 * width / row, unit="x", origin="derived") for name, row in sizes.items()}
        result.add((*labels, "true ratio"), true)
        batches = {name: simulated_way(cfg, setting, times, full, k) for name, k in by_column.items()}
        names = {name: {"compression": ratio} for name, ratio in zip(columns, cfg.ratios)}
        _add_epochs(result, cfg, (setting, presets, times), batches, (*labels, "epoch"), names)
        result.details[", ".join(labels)] = record(times, presets)
        for line in result.rows[-2:]:
            origin = line.cells[columns[0]].origin
            rows = transposed({f"over {columns[0]}": line})
            result.panels += bars(f"{', '.join(labels)}: {origin}", "speed-up", rows)


STEPS = ("sample", "gather", "transfer", "decode", "compute", "gather and transfer saved", "features", "structure")


def steps(result: Result, cfg: Config, case: Case) -> None:
    """An iteration by step."""
    for setting, presets, times in comparisons(result, cfg, case, gathered=True):
        whole: dict[str, Batch] = {}
        for way, batch in simulated_ways(cfg, setting, presets, times).items():
            name, labels = presets[way], (*setting.labels(cfg), way)
            if name not in times.ms:
                result.add(labels, {STEPS[0]: times.cell(name)})
                continue
            result.add(labels, _cells_here(times, name))
            assert batch is not None
            whole[way] = batch
            cells = _cells_whole(cfg, setting, times, presets[FULL], way, whole)
            result.add(labels, cells, cfg.paper, graph=case.dataset, way=way)


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
    return {name: Cell(value, unit=unit, origin=SIMULATED) for name, (value, unit) in values.items()}


def loading(result: Result, cfg: Config, case: Case) -> None:
    """The share of an iteration in which the features are loaded."""
    for setting, presets, times in comparisons(result, cfg, case, gathered=True):
        here = {way: batch_here(times, name) if name in times.ms else None for way, name in presets.items()}
        result.add(setting.labels(cfg), {way: _share(batch, MEASURED) for way, batch in here.items()})
        cells = {}
        for way, batch in simulated_ways(cfg, setting, presets, times).items():
            paper = published(cfg.paper, "loading", graph=case.dataset, model=setting.model, way=way)
            cells[way] = replace(_share(batch, SIMULATED), paper=paper)
        result.add(setting.labels(cfg), cells)


def _share(batch: Batch | None, origin: Origin) -> Cell:
    share = None if batch is None else 100 * batch.loading / batch.in_turn
    return Cell(share, unit="%", origin=origin)


OWN, SHARED, THIS = "one a rank", "shared", "this one"
"""Hosts: a simulated rank gathers as fast as if it were alone, or waits until the other ranks have gathered."""


def throughput(result: Result, cfg: Config, case: Case) -> None:
    """Training nodes a second by the number of ranks."""
    assert cfg.nproc is not None
    for model in cfg.chosen_models:
        setting = Setting(case, model)
        presets, labels = presets_of(cfg, setting), setting.labels(cfg)
        alone = measured(cfg, setting, presets.values())
        speeds: dict[str, dict[int, dict[str, float | None]]] = {THIS: {}, OWN: {}, SHARED: {}}
        for ranks in cfg.ranks:
            several = replace(setting, ranks=ranks)
            if ranks <= cfg.nproc:
                times = alone if ranks == 1 else measured(cfg, several, presets.values())
                nodes = ranks * batch_size(cfg, case)
                speeds[THIS][ranks] = {way: over(1e3 * nodes, times.ms.get(presets[way])) for way in WAYS}
                result.details[", ".join((*labels, f"p={ranks}"))] = record(times, presets)
            batches = simulated_ways(cfg, several, presets, alone)
            for host, turns in ((OWN, 1), (SHARED, ranks)):  # the last rank gathers after ``turns`` - 1 other ones
                speeds[host][ranks] = {
                    way: None
                    if batch is None
                    else ranks * cfg.batch_size / replace(batch, gather=turns * batch.gather).in_turn
                    for way, batch in batches.items()
                }
        for host, by_ranks in speeds.items():
            names = {"graph": case.dataset, "model": model}
            for ranks in by_ranks:
                cells = _throughput(MEASURED if host == THIS else SIMULATED, by_ranks[ranks], by_ranks[min(by_ranks)])
                result.add((*labels, f"p={ranks}", host), cells, cfg.paper, ranks=ranks, **names)
            own = result.rows[len(result.rows) - len(by_ranks) :]
            result.panels.append(_scaling(f"{', '.join(labels)}, host: {host}", list(by_ranks), own))


def _throughput(origin: Origin, own: dict[str, float | None], first: dict[str, float | None]) -> dict[str, Cell]:
    """Cells of some ranks.

    Args:
        own, first: nodes a second by way, of these ranks and of the fewest.
    """
    values = {way: (own[way], "nodes/s") for way in WAYS}
    values |= {f"{way}, scaling": (over(own[way], first[way]), "x") for way in WAYS}
    values["sparse over full"] = over(own[SPARSE], own[FULL]), "x"
    return {name: Cell(value, unit=unit, origin=origin) for name, (value, unit) in values.items()}


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
