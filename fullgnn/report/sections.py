"""The sections of the page. The page shows the plots of a section first, then its other blocks in their order."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fullgnn.report import metrics
from fullgnn.report.content import COUNT, NOTHING, RATIO, Block, Show, Table, missing, num_ranks, shown, unit
from fullgnn.report.plots import SQUARE, Axis, Plot, block_map, curves, density_map, grouped, stacked
from fullgnn.report.runs import Run
from fullgnn.report.sampled import sampled_training
from fullgnn.report.summary import summary
from fullgnn.telemetry.table import percent

PHASE_NAMES = {"spmm": "SpMM", "comm": "communication", "dense": "dense", "other": "other"}
BYTE_UNITS = ("B", "kB", "MB", "GB")
NNZ_UNITS = ("non-zeros", "thousand", "million", "thousand million")

Spent = Mapping[Run, Sequence[Mapping[str, float]]]
"""What each rank of a run spent, by heading: first the whole, then its parts, the same ones on all ranks of a run."""


def loss_and_metrics(runs: list[Run]) -> Iterator[Block]:
    """One plot for each quantity, with the curves of all runs."""
    columns: dict[str, tuple[dict[int, float], Show]] = {}  # of the table, by heading
    names = metrics.metrics_in(line for run in runs for line in run.epochs)
    for key in ("loss", *(f"{split}_{name}" for name in names for split in metrics.SPLITS)):
        title = "training loss" if key == "loss" else metrics.title(key)
        show = metrics.show_as(key)
        lines: dict[Run, dict[int, float]] = {}
        for run in runs:
            recorded = {line["epoch"]: line[key] for line in run.epochs if key in line}
            # null is a loss that was not finite, or the metric of a split without nodes
            points = {epoch: math.nan if value is None else float(value) for epoch, value in recorded.items()}
            if not all(map(math.isnan, points.values())):
                lines[run] = points
                columns[run.prefix + title] = points, show
        if lines:
            texts = {run.name: [shown(value, show) for value in points.values()] for run, points in lines.items()}
            ends = "; ".join(f"{name} from {values[0]} to {values[-1]}" for name, values in texts.items())
            data = {"series": lines, "in_percent": metrics.is_accuracy(key)}
            file, alt = re.sub(r"[^\w.@-]", "_", key), f"{title[:1].upper()}{title[1:]} by epoch: {ends}."
            yield "plot", Plot(file, title, alt, curves, data)
    epochs = sorted({epoch for points, _ in columns.values() for epoch in points})
    if epochs:
        rows = [[str(at), *(shown(points.get(at), show) for points, show in columns.values())] for at in epochs]
        yield "numbers", Table(f"{_loss_title(runs)} by epoch", ["epoch", *columns], rows)
    yield from missing(runs, [run for run in runs if run.epochs], "epochs.jsonl")


def _loss_title(runs: list[Run]) -> str:
    """Title of the section of the curves; there may be metrics other than the accuracy."""
    names = metrics.metrics_in(line for run in runs for line in run.epochs)
    return "Loss and accuracy" if set(names) <= {"accuracy"} else "Loss and metrics"


def time_by_phase(runs: list[Run]) -> Iterator[Block]:
    columns = {"epoch": "epoch", **PHASE_NAMES}
    spent = {
        run: [{name: rank["time_ms"][phase] for phase, name in columns.items()} for rank in ranks]
        for run, ranks in _ranks(runs, "time_ms").items()
    }
    table = Table("Milliseconds of an epoch by rank", ["", *columns.values()], [])
    yield from _parts_by_rank("time", "time of an epoch", spent, ("ms",), table, RATIO)
    yield from missing(runs, spent, "what each rank spent")


def bytes_by_collective(runs: list[Run]) -> Iterator[Block]:
    received = {
        run: [rank["bytes_received"] for rank in ranks] for run, ranks in _ranks(runs, "bytes_received").items()
    }
    names = sorted({name for ranks in received.values() for rank in ranks for name in rank})
    spent = {}
    for run, ranks in received.items():
        used = [name for name in names if any(rank.get(name) for rank in ranks)]
        spent[run] = [{"all": sum(rank.values()), **{name: rank.get(name, 0) for name in used}} for rank in ranks]
        if not used:
            yield "paragraph", f"{run.prefix}Nothing arrived: there is one rank."
    table = Table("Bytes received in an epoch by rank", ["", "all", *names], [])
    yield from _parts_by_rank("bytes", "received in an epoch", spent, BYTE_UNITS, table, COUNT)
    yield from missing(runs, spent, "what each rank received")


def _parts_by_rank(
    name: str, title: str, spent: Spent, units: Sequence[str], table: Table, show: Show
) -> Iterator[Block]:
    """A plot for each run that spent anything, runs of one dataset on one scale, and the ``table`` of all runs."""
    tops: dict[Any, float] = {}
    for run, ranks in spent.items():
        highest = max(sum(list(rank.values())[1:]) for rank in ranks)
        tops[run.record.get("dataset")] = max(tops.get(run.record.get("dataset"), 0), highest)
    for run, ranks in spent.items():
        whole, *parts = ranks[0]
        if parts:
            top = tops[run.record.get("dataset")]
            scale, unit_name = unit(top, units)
            heights = {part: [rank[part] / scale for rank in ranks] for part in parts}
            most = f"{max(rank[whole] for rank in ranks) / scale:.2f} {unit_name}"
            alt = f"{run.name}: {title}, by part, on {num_ranks(len(ranks))}; {most} at most."
            data = {"axis": Axis(_ordinals(ranks), "rank", unit_name), "parts": heights, "top": top / scale}
            yield "plot", Plot(f"{name}_{run.position}", run.prefix + title, alt, stacked, data)
    rows = [
        [f"{run.prefix}rank {k}", *(show(rank.get(column, 0)) for column in table.header[1:])]
        for run, ranks in spent.items()
        for k, rank in enumerate(ranks)
    ]
    if rows:
        yield "numbers", table._replace(rows=rows)


def adjacency(runs: list[Run]) -> Iterator[Block]:
    """For each run two maps on one scale, and their numbers."""
    structures = {run: run.structure for run in runs if run.structure}
    for run, structure in structures.items():
        bounds, num_parts = structure.cell_bounds, len(structure.part_bounds) - 1
        area = np.outer(np.diff(bounds), np.diff(bounds))
        maps = {"before": structure.cell_nnz_before, "after": structure.cell_nnz_after}
        density = np.concatenate([(nnz / area)[nnz > 0] for nnz in maps.values()])
        limits = (density.min() / 1.5, density.max()) if len(density) else (0.1, 1.0)  # the least still has a colour
        for when, nnz in maps.items():
            on_diagonal = percent(float(np.trace(nnz) / max(nnz.sum(), 1)))
            alt = (
                f"{run.name}: density of the adjacency {when} ordering, in {len(nnz)} by {len(nnz)} cells; "
                f"{on_diagonal} of the non-zeros are in cells on the diagonal; {num_parts} block rows."
            )
            data = {"structure": structure, "density": nnz / area, "limits": limits}
            name, title = f"density_{run.position}_{when}", f"{run.prefix}{when} ordering"
            yield "plot", Plot(name, title, alt, density_map, data, SQUARE)
            first = list(map(str, bounds[:-1]))
            yield "numbers", _matrix(f"{run.prefix}Non-zeros by cell {when} ordering", "", first, nnz)
    yield from missing(runs, structures, "structure.npz")


def blocks(runs: list[Run]) -> Iterator[Block]:
    """A map for each run, and bars of all runs side by side at each rank."""
    blocks = {run: run.structure.block_nnz for run in runs if run.structure}
    for run, nnz in blocks.items():
        alt = f"{run.name}: non-zeros of {len(nnz)} by {len(nnz)} blocks, {COUNT(nnz.min())} to {COUNT(nnz.max())}."
        title = f"{run.prefix}non-zeros by block"
        yield "plot", Plot(f"blocks_{run.position}", title, alt, block_map, {"nnz": nnz}, SQUARE)
        yield "numbers", _matrix(f"{run.prefix}Non-zeros by block", "row / column", _ordinals(nnz), nnz)
    ranks = _ranks(runs, "nnz")
    yield from _by_rank(ranks, "nnz", "non-zeros by rank", "Non-zeros that a rank multiplies in one product", NNZ_UNITS)
    yield from missing(runs, blocks, "structure.npz")
    yield from missing(runs, ranks, "the non-zeros of each rank")


def tile_density(runs: list[Run]) -> Iterator[Block]:
    """Bars of all runs side by side at each density."""
    found = {run: run.record["tile_density"] for run in runs if run.record.get("tile_density")}
    bins = list(dict.fromkeys(name for shares in found.values() for name in shares))
    if found:
        most = {run.name: max((share, name) for name, share in shares.items()) for run, shares in found.items()}
        fullest = "; ".join(f"{run} has most, {percent(share)}, at {name} %" for run, (share, name) in most.items())
        series = {run: [100 * shares.get(name, 0) for name in bins] for run, shares in found.items()}
        data = {"axis": Axis(bins, "% of the tile", "% of the non-zeros"), "series": series}
        alt = f"Non-zeros by the density of their tile: {fullest}."
        yield "plot", Plot("tiles", "non-zeros by density of their tile", alt, grouped, data)
        rows = [[run.name, *(percent(shares.get(name)) for name in bins)] for run, shares in found.items()]
        caption = "Share of the non-zeros by the density of their tile, in per cent"
        yield "numbers", Table(caption, ["", *bins], rows)
    yield from missing(runs, found, "tile densities")


def memory(runs: list[Run]) -> Iterator[Block]:
    """Bars of all runs side by side at each rank."""
    kinds = {"peak_memory_bytes": "peak of the process", "peak_tensor_bytes": "peak of tensors"}
    ranks = _ranks(runs, *kinds)
    for key, title in kinds.items():
        yield from _by_rank(ranks, key, title, f"Bytes, {title}", BYTE_UNITS)
    yield from missing(runs, ranks, "the memory of each rank")


def predicted_and_measured(runs: list[Run]) -> Iterator[Block]:
    """What the planner expected of each run that asked it."""
    for run in runs:
        expected = run.record.get("predicted")
        if not run.record:
            yield "paragraph", f"{run.prefix}Not recorded: the run has not finished."
        elif not expected:
            yield "paragraph", f"{run.prefix}No prediction was made for this run: scheme=auto asks the planner for one."
        else:
            yield from _prediction(run, expected)


def _prediction(run: Run, expected: Mapping[str, Any]) -> Iterator[Block]:
    """Two bars of the phases, and a table of all quantities. Bytes are the mean over the ranks."""
    record, times = run.record, expected.get("time_ms") or {}
    phases = {name: [times.get(key), record.get(f"{key}_time_ms")] for key, name in PHASE_NAMES.items()}
    if not any(None in pair for pair in phases.values()):
        top = max(map(sum, zip(*phases.values())))
        data = {"axis": Axis(["predicted", "measured"], "", "ms"), "parts": phases, "top": top}
        alt = f"{run.name}: time of an epoch by phase, predicted and measured; the table has the numbers."
        yield "plot", Plot(f"predicted_{run.position}", f"{run.prefix}time of an epoch", alt, stacked, data)
    planned, received = (one.get("comm_bytes_per_epoch") or {} for one in (expected, record))
    rows: list[tuple[str, Any, Any, Show]] = [
        ("epoch, ms", expected.get("epoch_time_ms"), record["epoch_time_ms"].get("median"), RATIO),
        *((f"{name}, ms", plan, real, RATIO) for name, (plan, real) in phases.items()),
        *(
            (f"{name}, bytes", planned.get(name, 0), received.get(name, 0), COUNT)
            for name in sorted(planned | received)
        ),
        ("peak of tensors, bytes", expected.get("peak_tensor_bytes"), record.get("peak_tensor_bytes"), COUNT),
    ]
    cells = [
        [name, shown(plan, show), shown(real, show), RATIO(real / plan) if plan and real is not None else NOTHING]
        for name, plan, real, show in rows
    ]
    caption = f"{run.prefix}Predicted for {expected.get('hardware') or 'hardware that is not named'}, and measured"
    yield "numbers", Table(caption, ["", "predicted", "measured", "measured / predicted"], cells)


def configuration(runs: list[Run]) -> Iterator[Block]:
    """``config.yaml`` of each run as it is."""
    for run in runs:
        if run.config:
            yield "listing", (run.name if run.prefix else "", run.config)
    yield from missing(runs, [run for run in runs if run.config], "config.yaml")


def _ranks(runs: list[Run], *keys: str) -> dict[Run, list[dict[str, Any]]]:
    """What each rank recorded, of the runs that recorded ``keys`` of every rank; see docs/record.md."""
    found = {run: run.record.get("ranks") or [] for run in runs}
    return {run: ranks for run, ranks in found.items() if ranks and all(key in rank for rank in ranks for key in keys)}


def _by_rank(
    ranks: Mapping[Run, Sequence[Mapping[str, Any]]], key: str, title: str, caption: str, units: Sequence[str]
) -> Iterator[Block]:
    """A plot and a table of one number of each rank, all runs side by side."""
    if not ranks:
        return
    values = {run: [rank[key] for rank in of_run] for run, of_run in ranks.items()}
    scale, unit_name = unit(max(map(max, values.values())), units)
    series = {run: [value / scale for value in of_run] for run, of_run in values.items()}
    labels = _ordinals(max(values.values(), key=len))
    ranges = "; ".join(f"{run.name} {COUNT(min(of_run))} to {COUNT(max(of_run))}" for run, of_run in values.items())
    data = {"axis": Axis(labels, "rank", unit_name), "series": series}
    yield "plot", Plot(key.removesuffix("_bytes"), title, f"{title.capitalize()} by rank: {ranges}.", grouped, data)
    rows = [
        [f"rank {k}", *(COUNT(of_run[k]) if k < len(of_run) else NOTHING for of_run in values.values())]
        for k in range(len(labels))
    ]
    yield "numbers", Table(caption, ["", *(run.name for run in values)], rows)


def _matrix(caption: str, corner: str, labels: list[str], counts: np.ndarray) -> Table:
    """The numbers of a map."""
    return Table(caption, [corner, *labels], [[label, *map(COUNT, row)] for label, row in zip(labels, counts)])


def _ordinals(items: Sequence[Any] | np.ndarray) -> list[str]:
    return list(map(str, range(len(items))))


def sections(runs: list[Run]) -> dict[str, list[Block]]:
    """The blocks of each section, by its title, in the order of the page."""
    make: dict[str, Callable[[list[Run]], Iterator[Block]]] = {
        "Summary": summary,
        _loss_title(runs): loss_and_metrics,
        "Time by phase": time_by_phase,
        **({"Sampled training": sampled_training} if any(run.record.get("sampling") for run in runs) else {}),
        "Bytes by collective": bytes_by_collective,
        "Adjacency": adjacency,
        "Non-zeros per block": blocks,
        "Tile density": tile_density,
        "Memory": memory,
        "Predicted and measured": predicted_and_measured,
        "Configuration": configuration,
    }
    return {title: list(blocks_of(runs)) for title, blocks_of in make.items()}
