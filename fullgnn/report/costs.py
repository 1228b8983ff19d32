"""The sections of what the runs cost: epoch times and the speed-up, and of each rank its time, bytes and memory.

A few runs have a plot by rank each. Many runs have one plot, with a bar for each run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from fullgnn.report.content import COUNT, MANY, RATIO, PageBlock, Table, missing, num_ranks, table_by_record, unit
from fullgnn.report.plots import BarLabels, Plot, PlotSeries, by_run, grouped, speed_up, stacked
from fullgnn.report.replicates import Quantity, are_distinct, by_key, rows_of, shown
from fullgnn.report.runs import ShownRun, differing_keys, settings_without
from fullgnn.report.summary import epoch_range

LAYOUT = ("scheme", "partition", "reorder", "kernel", "optimizations", "runtime", "world_size", "rank")
"""Keys of the configuration that say how the ranks share the work, not what is computed."""
NUM_RANKS = ("runtime.nproc", "world_size", "rank")
PHASE_NAMES = {"spmm": "SpMM", "comm": "communication", "dense": "dense", "other": "other"}
STEPS = {
    "cache": "choose rows to keep",
    "sample": "sample",
    "gather": "gather features",
    "pack": "pack",
    "wait": "wait",
    "load": "load",
    "forward": "forward",
    "backward": "backward",
    "comm": "communication",
    "update": "update",
}
"""The steps of an epoch of sampled training, as the record and as the page name them."""
IN_WORKERS = ("sample", "gather", "pack")
COUNTS = (
    Quantity("batches of an epoch", "num_batches", COUNT),
    Quantity("drawn edges of an epoch", "sampled_edges", COUNT),
    Quantity("drawn edges per second", "sampled_edges_per_s", COUNT),
    Quantity("rows of features that an epoch reads", "input_rows", COUNT),
    Quantity("bytes of features that an epoch fetches", "fetched_bytes", COUNT),
    Quantity("bytes of features that the cache changes in an epoch", "filled_bytes", COUNT),
    Quantity("share of these rows that are on the device", "hit_rate", RATIO),
)
"""What else the record has of an epoch of sampled training."""
BYTE_UNITS = ("B", "kB", "MB", "GB")
NNZ_UNITS = ("non-zeros", "thousand", "million", "thousand million")

Spent = Mapping[str, float]
"""What a rank spent, by heading: first the whole, then its parts, the same ones on all ranks of a run; or its parts
alone."""
SpentByRank = Mapping[ShownRun, Sequence[Spent]]


class Point(NamedTuple):
    """One run in the chart of the speed-up."""

    series: str  # its line
    baseline: ShownRun  # whose epoch is divided by that of the run
    gain: tuple[float, float, float]  # the speed-up, and its ends where the time of the run is at those of its range


def epoch_time(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Bars of the medians with their ranges, lines of the speed-up, and a table of both."""
    medians = {run: run.epoch_time for run in runs if run.epoch_time is not None}
    ranges = {run: epoch_range(run.record) for run in medians}
    if medians:
        told = "; ".join(f"{run.name} {shown(median, RATIO)}" for run, median in medians.items())
        alt = f"Milliseconds of an epoch, median, by run: {told}."
        data = (list(medians), {"epoch": list(medians.values())}, "ms", list(ranges.values()))
        yield "plot", Plot("epoch_time", "epoch time by run", alt, by_run, data)
    points = dict(_points(medians))
    if points:
        yield "plot", _speed_up_plot(points)
    for baseline, compared in by_key(points, lambda run: points[run].baseline).items():
        whose = f" of {', '.join(run.name for run in compared)}" if len(compared) < len(medians) else ""
        yield "note", f"Speed-up{whose}: the epoch time of {baseline.name}, divided by that of the run."
    rows = []
    for run, median in medians.items():
        gain = [shown(points[run].gain[0] if run in points else None, RATIO)] if points else []
        ranks = shown(run.record.get("world_size"), str)
        rows.append([run.name, ranks, shown(median, RATIO), *map(RATIO, ranges[run]), *gain])
    if rows:
        header = ["", "ranks, p", "median", "from", "to", *(["speed-up"] if points else [])]
        yield "numbers", Table("Milliseconds of an epoch by run", header, rows)
    yield from missing(runs, medians, "the epoch time")


def _points(medians: Mapping[ShownRun, float]) -> Iterator[tuple[ShownRun, Point]]:
    """The runs whose number of ranks differs from that of others which compute the same.

    Their baseline is the fastest of those with the fewest ranks. A dry run has no time of a whole job.
    """
    real = [run for run in medians if run.record.get("world_size") and run.record.get("dry_run_rank") is None]
    lines: list[tuple[ShownRun, list[ShownRun]]] = []  # a baseline, and runs that differ in the number of ranks alone
    for work in by_key((run for run in real if medians[run] > 0), lambda run: _same(run, *LAYOUT)).values():
        counts = {run.record["world_size"] for run in work}
        if len(counts) > 1:
            baseline = min((run for run in work if run.record["world_size"] == min(counts)), key=medians.__getitem__)
            of_line = by_key(work, lambda run: _same(run, *NUM_RANKS) + str(run.record.get("scheme")))
            lines += [(baseline, line) for line in of_line.values()]
    for (baseline, line), name in zip(lines, _names_of_lines([line for _, line in lines])):
        for run in line:
            base, (low, high) = float(medians[baseline]), epoch_range(run.record)
            yield run, Point(name, baseline, (base / medians[run], base / high, base / low))


def _same(run: ShownRun, *but: str) -> str:
    """A text that is equal for runs which differ in the keys ``but`` alone."""
    told = [run.record.get(key) for key in ("dataset", "num_nodes", "model", "device", "dtype")]
    return repr((sorted(settings_without(run, *but).items()), told))


def _names_of_lines(lines: list[list[ShownRun]]) -> list[str]:
    """A name for each line: the words that the names of its runs share, or else the keys in which the lines differ."""
    shared = []
    for line in lines:
        words = [re.sub(r" \(\d+ (seeds|splits|runs)\)$", "", run.name).split(" ") for run in line]
        shared.append(" ".join(word for word in words[0] if all(word in others for others in words)))
    settings = [settings_without(line[0], *NUM_RANKS) for line in lines]
    keys = differing_keys(settings)
    by_keys = [" ".join(f"{key}={setting[key]}" for key in keys if key in setting) for setting in settings]
    schemes = [str(line[0].record.get("scheme")) + (f" ({line[0].name})" if len(lines) > 1 else "") for line in lines]
    return next(filter(are_distinct, (shared, by_keys)), schemes)


def _speed_up_plot(points: Mapping[ShownRun, Point]) -> Plot:
    series: dict[str, dict[int, tuple[float, float, float]]] = {}
    for run, point in points.items():
        line, count = series.setdefault(point.series, {}), run.record["world_size"]
        line[count] = max(line.get(count, point.gain), point.gain)  # of equal runs, the fastest
    told = "; ".join(
        f"{name} {', '.join(f'{line[count][0]:.2f} with p = {count}' for count in sorted(line))}"
        for name, line in series.items()
    )
    alt = f"Speed-up of an epoch against the number of ranks: {told}."
    return Plot("speed_up", "speed-up against the number of ranks", alt, speed_up, (series,))


def time_by_phase(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Bars of the milliseconds of an epoch that each rank spends in each phase."""
    names = {"epoch": "epoch", **PHASE_NAMES}
    spent = {
        run: [{name: times[key] for key, name in names.items()} for times in ranks]
        for run, ranks in of_ranks(runs, "time_ms").items()
    }
    columns = [Quantity(name, name, RATIO) for name in names.values()]
    yield from _parts_by_rank("time", "time of an epoch", "Milliseconds of an epoch by rank", spent, columns, ("ms",))
    yield from missing(runs, spent, "what each rank spent")


def bytes_by_collective(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Bars of the bytes of an epoch that each rank receives in each collective."""
    received = of_ranks(runs, "bytes_received")
    names = sorted({name for ranks in received.values() for rank in ranks for name in rank})
    used = {run: [name for name in names if any(rank.get(name) for rank in ranks)] for run, ranks in received.items()}
    spent = {
        run: [{"all": sum(rank.values()), **{name: rank.get(name, 0) for name in used[run]}} for rank in ranks]
        for run, ranks in received.items()
    }
    alone = [run.name for run in received if not used[run]]
    if alone:
        yield "paragraph", f"{', '.join(alone) + ': ' if len(runs) > 1 else ''}Nothing arrived: there is one rank."
    columns = [Quantity(name, name, COUNT) for name in ("all", *names)]
    title, caption = "received in an epoch", "Bytes received in an epoch by rank"
    yield from _parts_by_rank("bytes", title, caption, spent, columns, BYTE_UNITS)
    yield from missing(runs, spent, "what each rank received")


def sampled_training(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """A bar for each run, made of the steps of its busiest rank, and their numbers."""
    sampling = {run: run.record["sampling"] for run in runs if run.record.get("sampling")}
    stacks = {run: _of_the_rank(told["time_ms"]) for run, told in sampling.items()}
    used = [name for name in STEPS.values() if any(stack[name] for stack in stacks.values())]
    stacks = {run: {name: stack[name] for name in used} for run, stack in stacks.items()}
    alt = "Time of an epoch of sampled training by the steps of its batches"
    yield "plot", _stacked_by_run("steps", "time of an epoch by step", alt, stacks, ("ms",))
    steps = [Quantity(f"{name}, ms", step, RATIO) for step, name in STEPS.items()]
    rows = rows_of([*steps, *COUNTS], [told | told["time_ms"] for told in sampling.values()])
    yield "numbers", Table("An epoch of sampled training", ["", *(run.name for run in sampling)], rows)
    yield from missing(runs, sampling, "the steps of sampled training")


def _of_the_rank(times: Mapping[str, float]) -> dict[str, float]:
    """The steps that the rank does itself: where it waits for workers, theirs are beside its own."""
    theirs = IN_WORKERS if times.get("wait") else ()
    return {name: 0.0 if step in theirs else times.get(step, 0.0) for step, name in STEPS.items()}


def memory(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Bars of all runs side by side at each rank."""
    kinds = {"peak_memory_bytes": "peak of the process", "peak_tensor_bytes": "peak of tensors"}
    known = [run for run in runs if all(of_ranks([run], key) for key in kinds)]
    for key, title in kinds.items():
        yield from _by_rank(of_ranks(known, key), key, title, f"Bytes, {title}", BYTE_UNITS)
    yield from missing(runs, known, "the memory of each rank")


def nnz_by_rank(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Bars of all runs side by side at each rank."""
    nnz = {run: counts for run, counts in of_ranks(runs, "nnz").items() if counts[0] is not None}
    caption = "Non-zeros that a rank multiplies in one product"
    yield from _by_rank(nnz, "nnz", "non-zeros by rank", caption, NNZ_UNITS)
    yield from missing(runs, nnz, "the non-zeros of each rank")


def _parts_by_rank(
    name: str, title: str, caption: str, spent: SpentByRank, columns: Sequence[Quantity], units: Sequence[str]
) -> Iterator[PageBlock]:
    """A plot for each run that spent anything, runs of one dataset on one scale, and the table of all runs."""
    parts = {run: [dict(list(rank.items())[1:]) for rank in ranks] for run, ranks in spent.items() if len(ranks[0]) > 1}
    tops = {run: max(sum(rank.values()) for rank in ranks) for run, ranks in parts.items()}
    if len(parts) > MANY:
        busiest = {run: max(ranks, key=lambda rank: sum(rank.values())) for run, ranks in parts.items()}
        alt = f"{title.capitalize()}, by part, on the rank with most"
        yield "plot", _stacked_by_run(name, f"{title}, rank with most", alt, busiest, units)
    else:
        for run, ranks in parts.items():
            top = max(tops[other] for other in tops if other.record.get("dataset") == run.record.get("dataset"))
            scale, unit_name = unit(top, units)
            most = max(rank[columns[0].key] for rank in spent[run]) / scale
            alt = f"{run.name}: {title}, by part, on {num_ranks(len(ranks))}; {most:.2f} {unit_name} at most."
            heights = {part: [rank[part] / scale for rank in ranks] for part in ranks[0]}
            data = (BarLabels(ordinals(len(ranks)), "rank", unit_name), heights, top / scale)
            yield "plot", Plot(f"{name}_{run.position}", run.prefix + title, alt, stacked, data)
    if spent:
        zeros = {column.key: 0.0 for column in columns}
        by_name = {f"{run.prefix}rank {k}": {**zeros, **rank} for run in spent for k, rank in enumerate(spent[run])}
        yield "numbers", table_by_record(caption, by_name, columns)


def _stacked_by_run(name: str, title: str, alt: str, stacks: Mapping[ShownRun, Spent], units: Sequence[str]) -> Plot:
    """A bar for each run, made of parts."""
    wholes = {run: sum(stack.values()) for run, stack in stacks.items()}
    scale, unit_name = unit(max(wholes.values()), units)
    told = "; ".join(f"{run.name} {whole / scale:.2f} {unit_name}" for run, whole in wholes.items())
    parts = dict.fromkeys(part for stack in stacks.values() for part in stack)
    lengths = {part: [stack.get(part, 0) / scale for stack in stacks.values()] for part in parts}
    return Plot(name, title, f"{alt}: {told}.", by_run, (list(stacks), lengths, unit_name))


def _by_rank(values: PlotSeries, key: str, title: str, caption: str, units: Sequence[str]) -> Iterator[PageBlock]:
    """A plot and a table of one number of each rank, all runs side by side."""
    if not values:
        return
    scale, unit_name = unit(max(map(max, values.values())), units)
    heights = {run: [value / scale for value in of_run] for run, of_run in values.items()}
    ranges = "; ".join(f"{run.name} {COUNT(min(of_run))} to {COUNT(max(of_run))}" for run, of_run in values.items())
    file, alt = key.removesuffix("_bytes"), f"{title.capitalize()} by rank: {ranges}."
    bars = ordinals(max(map(len, values.values())))
    if len(values) > MANY:
        most = {title: [max(of_run) for of_run in heights.values()]}
        yield "plot", Plot(file, f"{title}, rank with most", alt, by_run, (list(values), most, unit_name))
    else:
        labels = [run.label for run in values] if len(values) > 1 else []
        yield "plot", Plot(file, title, alt, grouped, (BarLabels(bars, "rank", unit_name), heights, labels))
    records = {f"rank {k}": dict(zip(values, numbers)) for k, numbers in enumerate(zip_longest(*values.values()))}
    yield "numbers", table_by_record(caption, records, [Quantity(run.name, run, COUNT) for run in values])


def of_ranks(runs: list[ShownRun], key: str) -> dict[ShownRun, list[Any]]:
    """What each rank recorded under a ``key``, of the runs that recorded it of every rank; see docs/record.md."""
    ranks = {run: run.record.get("ranks") or [] for run in runs}
    known = {run: told for run, told in ranks.items() if told and all(key in rank for rank in told)}
    return {run: [rank[key] for rank in told] for run, told in known.items()}


def ordinals(count: int) -> list[str]:
    """The numbers below ``count`` as texts."""
    return list(map(str, range(count)))
