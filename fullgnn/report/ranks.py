"""The sections of what each rank did: time by phase, bytes by collective, non-zeros and memory.

A few runs have a plot by rank each. Many runs have one plot, with a bar for each run.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fullgnn.report.content import COUNT, MANY, RATIO, Block, Show, Table, missing, num_ranks, unit
from fullgnn.report.plots import Axis, Plot, grouped, plot_by_run, stacked
from fullgnn.report.runs import Run
from fullgnn.report.spread import NOTHING, shown

PHASE_NAMES = {"spmm": "SpMM", "comm": "communication", "dense": "dense", "other": "other"}
BYTE_UNITS = ("B", "kB", "MB", "GB")
NNZ_UNITS = ("non-zeros", "thousand", "million", "thousand million")

Spent = Mapping[Run, Sequence[Mapping[str, float]]]
"""What each rank of a run spent, by heading: first the whole, then its parts, the same ones on all ranks of a run."""


def time_by_phase(runs: list[Run]) -> Iterator[Block]:
    """Bars of the milliseconds of an epoch that each rank spends in each phase."""
    columns = {"epoch": "epoch", **PHASE_NAMES}
    spent = {
        run: [{name: rank["time_ms"][phase] for phase, name in columns.items()} for rank in ranks]
        for run, ranks in ranks_of(runs, "time_ms").items()
    }
    table = Table("Milliseconds of an epoch by rank", ["", *columns.values()], [])
    yield from _parts_by_rank("time", "time of an epoch", spent, ("ms",), table, RATIO)
    yield from missing(runs, spent, "what each rank spent")


def bytes_by_collective(runs: list[Run]) -> Iterator[Block]:
    """Bars of the bytes of an epoch that each rank receives in each collective."""
    received = {
        run: [rank["bytes_received"] for rank in ranks] for run, ranks in ranks_of(runs, "bytes_received").items()
    }
    names = sorted({name for ranks in received.values() for rank in ranks for name in rank})
    spent, alone = {}, []
    for run, ranks in received.items():
        used = [name for name in names if any(rank.get(name) for rank in ranks)]
        spent[run] = [{"all": sum(rank.values()), **{name: rank.get(name, 0) for name in used}} for rank in ranks]
        if not used:
            alone.append(run)
    if alone:
        prefix = f"{', '.join(run.name for run in alone)}: " if len(runs) > 1 else ""
        yield "paragraph", f"{prefix}Nothing arrived: there is one rank."
    table = Table("Bytes received in an epoch by rank", ["", "all", *names], [])
    yield from _parts_by_rank("bytes", "received in an epoch", spent, BYTE_UNITS, table, COUNT)
    yield from missing(runs, spent, "what each rank received")


def memory(runs: list[Run]) -> Iterator[Block]:
    """Bars of all runs side by side at each rank."""
    kinds = {"peak_memory_bytes": "peak of the process", "peak_tensor_bytes": "peak of tensors"}
    ranks = ranks_of(runs, *kinds)
    for key, title in kinds.items():
        yield from _by_rank(ranks, key, title, f"Bytes, {title}", BYTE_UNITS)
    yield from missing(runs, ranks, "the memory of each rank")


def nnz_by_rank(runs: list[Run]) -> Iterator[Block]:
    """Bars of all runs side by side at each rank."""
    ranks = {run: counts for run, counts in ranks_of(runs, "nnz").items() if counts[0]["nnz"] is not None}
    caption = "Non-zeros that a rank multiplies in one product"
    yield from _by_rank(ranks, "nnz", "non-zeros by rank", caption, NNZ_UNITS)
    yield from missing(runs, ranks, "the non-zeros of each rank")


def _parts_by_rank(
    name: str, title: str, spent: Spent, units: Sequence[str], table: Table, show: Show
) -> Iterator[Block]:
    """A plot for each run that spent anything, runs of one dataset on one scale, and the ``table`` of all runs."""
    with_parts = {run: ranks for run, ranks in spent.items() if len(ranks[0]) > 1}
    if len(with_parts) > MANY:
        yield "plot", _parts_by_run(name, title, with_parts, units)
    else:
        yield from _plots_by_rank(name, title, with_parts, units)
    rows = [
        [f"{run.prefix}rank {k}", *(shown(rank.get(column, 0), show) for column in table.header[1:])]
        for run, ranks in spent.items()
        for k, rank in enumerate(ranks)
    ]
    if rows:
        yield "numbers", table._replace(rows=rows)


def _plots_by_rank(name: str, title: str, spent: Spent, units: Sequence[str]) -> Iterator[Block]:
    tops: dict[Any, float] = {}
    for run, ranks in spent.items():
        highest = max(sum(list(rank.values())[1:]) for rank in ranks)
        tops[run.record.get("dataset")] = max(tops.get(run.record.get("dataset"), 0), highest)
    for run, ranks in spent.items():
        whole, *parts = ranks[0]
        top = tops[run.record.get("dataset")]
        scale, unit_name = unit(top, units)
        heights = {part: [rank[part] / scale for rank in ranks] for part in parts}
        most = f"{max(rank[whole] for rank in ranks) / scale:.2f} {unit_name}"
        alt = f"{run.name}: {title}, by part, on {num_ranks(len(ranks))}; {most} at most."
        data = {"axis": Axis(ordinals(ranks), "rank", unit_name), "parts": heights, "top": top / scale}
        yield "plot", Plot(f"{name}_{run.position}", run.prefix + title, alt, stacked, data)


def _parts_by_run(name: str, title: str, spent: Spent, units: Sequence[str]) -> Plot:
    """A bar for each run, made of the parts of the rank that spent most."""
    runs = list(spent)
    busiest = [max(spent[run], key=lambda rank: sum(list(rank.values())[1:])) for run in runs]
    parts = list(dict.fromkeys(part for rank in busiest for part in list(rank)[1:]))
    wholes = [sum(list(rank.values())[1:]) for rank in busiest]
    scale, unit_name = unit(max(wholes), units)
    told = "; ".join(f"{run.name} {whole / scale:.2f} {unit_name}" for run, whole in zip(runs, wholes))
    alt = f"{title.capitalize()}, by part, on the rank with most: {told}."
    lengths = {part: [rank.get(part, 0) / scale for rank in busiest] for part in parts}
    return plot_by_run(name, f"{title}, rank with most", alt, runs, lengths, unit_name)


def _by_rank(
    ranks: Mapping[Run, Sequence[Mapping[str, Any]]], key: str, title: str, caption: str, units: Sequence[str]
) -> Iterator[Block]:
    """A plot and a table of one number of each rank, all runs side by side."""
    if not ranks:
        return
    values = {run: [rank[key] for rank in of_run] for run, of_run in ranks.items()}
    scale, unit_name = unit(max(map(max, values.values())), units)
    ranges = "; ".join(f"{run.name} {COUNT(min(of_run))} to {COUNT(max(of_run))}" for run, of_run in values.items())
    file, alt = key.removesuffix("_bytes"), f"{title.capitalize()} by rank: {ranges}."
    labels = ordinals(max(values.values(), key=len))
    if len(values) > MANY:
        most = {title: [max(of_run) / scale for of_run in values.values()]}
        yield "plot", plot_by_run(file, f"{title}, rank with most", alt, list(values), most, unit_name)
    else:
        series = {run: [value / scale for value in of_run] for run, of_run in values.items()}
        names = {run: run.label for run in values} if len(values) > 1 else {}
        data = {"axis": Axis(labels, "rank", unit_name), "series": series, "labels": names}
        yield "plot", Plot(file, title, alt, grouped, data)
    rows = [
        [f"rank {k}", *(shown(of_run[k], COUNT) if k < len(of_run) else NOTHING for of_run in values.values())]
        for k in range(len(labels))
    ]
    yield "numbers", Table(caption, ["", *(run.name for run in values)], rows)


def ranks_of(runs: list[Run], *keys: str) -> dict[Run, list[dict[str, Any]]]:
    """What each rank recorded, of the runs that recorded ``keys`` of every rank; see docs/record.md."""
    found = {run: run.record.get("ranks") or [] for run in runs}
    return {run: ranks for run, ranks in found.items() if ranks and all(key in rank for rank in ranks for key in keys)}


def ordinals(items: Sequence[Any] | np.ndarray) -> list[str]:
    """The indices of ``items`` as texts."""
    return list(map(str, range(len(items))))
