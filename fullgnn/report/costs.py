"""The sections of what the runs cost: epoch times and the speed-up, and of each rank its time, bytes and memory.

A few runs have a plot by rank each. Many runs have one plot, with a bar for each run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from fullgnn.report.content import COUNT, MANY, RATIO, PageBlock, Table, each, missing, num_ranks, table_of, unit
from fullgnn.report.plots import Plot, by_run, grouped, speed_up, stacked
from fullgnn.report.replicates import Quantity, are_distinct, by_key, rows_of, shown
from fullgnn.report.runs import ShownRun, differing_keys, settings_without
from fullgnn.report.summary import epoch_range

LAYOUT = ("scheme", "partition", "reorder", "kernel", "optimizations", "runtime", "world_size", "rank")
"""Keys of the configuration that say how the ranks share the work, not what is computed."""
NUM_RANKS = ("runtime.nproc", "world_size", "rank")
PHASE_NAMES = {"spmm": "SpMM", "comm": "communication", "dense": "dense", "other": "other"}
STEPS = ("cache", "sample", "gather", "pack", "wait", "load", "forward", "backward", "comm", "update")
"""The steps of an epoch of sampled training, as the record names them."""
STEP_NAMES = {"cache": "choose rows to keep", "gather": "gather features", "comm": "communication"}
"""The steps that have another name on the page."""
IN_WORKERS = dict.fromkeys(("sample", "gather", "pack"), 0.0)
"""What a rank that waits for its workers does itself of their steps."""
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

ByRank = Mapping[ShownRun, Sequence[Any]]
"""A number of each rank, or its time or its bytes by what it did: by phase or by collective."""
ByPart = Mapping[ShownRun, Mapping[str, float]]
"""The time, or the bytes, of one rank of each run by what it did: by phase, by step or by collective."""
SpeedUps = Mapping[ShownRun, tuple[float, ...]]
"""A line in its chart: of runs that differ in the number of ranks alone the speed-up, and its ends where the time is at
those of its range."""


def epoch_time(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Bars of the medians with their ranges, lines of the speed-up, and a table of both."""
    medians = {run: run.epoch_time for run in runs if run.epoch_time is not None}
    ranges = {run: epoch_range(run.record) for run in medians}
    by_baseline = _speed_ups(medians)
    lines = [line for of_baseline in by_baseline.values() for line in of_baseline]
    gains = {run: gain for line in lines for run, (gain, _, _) in line.items()}
    if medians:
        told = {run.name: shown(median, RATIO) for run, median in medians.items()}
        alt = each("Milliseconds of an epoch, median, by run", told)
        data = (list(medians), {"epoch": list(medians.values())}, "ms", list(ranges.values()))
        yield "plot", Plot("epoch_time", "epoch time by run", alt, by_run, data)
        if lines:
            yield "plot", _speed_up_plot(lines)
        for baseline, of_baseline in by_baseline.items():
            compared = [run.name for line in of_baseline for run in line]
            whose = f" of {', '.join(compared)}" if len(compared) < len(medians) else ""
            yield "note", f"Speed-up{whose}: the epoch time of {baseline.name}, divided by that of the run."
        names = ("median", "from", "to", *(["speed-up"] if lines else []))
        columns = [Quantity("ranks, p", "world_size"), *(Quantity(name, name, RATIO) for name in names)]
        numbers = {run: dict(zip(names, (medians[run], *ranges[run], gains.get(run)))) for run in medians}
        records = {run.name: run.record | numbers[run] for run in medians}
        yield "numbers", table_of("Milliseconds of an epoch by run", records, columns)
    yield from missing(runs, medians, "the epoch time")


def _speed_ups(medians: Mapping[ShownRun, float]) -> dict[ShownRun, list[SpeedUps]]:
    """The lines of the runs whose number of ranks differs from that of others which compute the same, by the baseline
    whose epoch is divided by theirs: the fastest of those with the fewest ranks.

    A dry run has no time of a whole job.
    """
    real = [run for run in medians if run.record.get("world_size") and run.record.get("dry_run_rank") is None]
    by_baseline: dict[ShownRun, list[SpeedUps]] = {}
    for work in by_key((run for run in real if medians[run] > 0), lambda run: _same(run, *LAYOUT)).values():
        if len({run.record["world_size"] for run in work}) > 1:
            baseline = min(work, key=lambda run: (run.record["world_size"], medians[run]))
            for line in by_key(work, lambda run: _same(run, *NUM_RANKS) + str(run.record.get("scheme"))).values():
                times = {run: (medians[run], *reversed(epoch_range(run.record))) for run in line}
                gains = {run: tuple(medians[baseline] / time for time in of_run) for run, of_run in times.items()}
                by_baseline.setdefault(baseline, []).append(gains)
    return by_baseline


def _same(run: ShownRun, *but: str) -> str:
    """A text that is equal for runs which differ in the keys ``but`` alone."""
    told = [run.record.get(key) for key in ("dataset", "num_nodes", "model", "device", "dtype")]
    return repr((sorted(settings_without(run, *but).items()), told))


def _speed_up_plot(lines: list[SpeedUps]) -> Plot:
    series, told = {}, {}
    for name, line in zip(_names_of_lines([list(line) for line in lines]), lines):
        by_count = by_key(line, lambda run: run.record["world_size"])
        series[name] = {count: max(line[run] for run in by_count[count]) for count in sorted(by_count)}
        told[name] = ", ".join(f"{gain:.2f} with p = {count}" for count, (gain, _, _) in series[name].items())
    alt = each("Speed-up of an epoch against the number of ranks", told)
    return Plot("speed_up", "speed-up against the number of ranks", alt, speed_up, (series,))


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


def time_by_phase(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Bars of the milliseconds of an epoch that each rank spends in each phase."""
    names = {"epoch": "epoch", **PHASE_NAMES}
    recorded = of_ranks(runs, "time_ms")
    spent = {run: [{name: rank[key] for key, name in names.items()} for rank in recorded[run]] for run in recorded}
    columns = [Quantity(name, name, RATIO) for name in names.values()]
    yield from _by_activity("time", "time of an epoch", "Milliseconds of an epoch by rank", spent, columns, ("ms",))
    yield from missing(runs, spent, "what each rank spent")


def bytes_by_collective(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Bars of the bytes of an epoch that each rank receives in each collective."""
    received = of_ranks(runs, "bytes_received")
    names = sorted({name for ranks in received.values() for rank in ranks for name in rank})
    spent = {}
    for run, ranks in received.items():
        used = [name for name in names if any(rank.get(name) for rank in ranks)]
        spent[run] = [{"all": sum(rank.values()), **{name: rank.get(name, 0) for name in used}} for rank in ranks]
    alone = [run.name for run, (first, *_) in spent.items() if len(first) == 1]
    if alone:
        yield "paragraph", f"{', '.join(alone) + ': ' if len(runs) > 1 else ''}Nothing arrived: there is one rank."
    columns = [Quantity(name, name, COUNT) for name in ("all", *names)]
    title, caption = "received in an epoch", "Bytes received in an epoch by rank"
    yield from _by_activity("bytes", title, caption, spent, columns, BYTE_UNITS)
    yield from missing(runs, spent, "what each rank received")


def sampled_training(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """A bar for each run, made of the steps of its busiest rank, and their numbers.

    The bar has what the rank does itself: where it waits for workers, their steps are beside its own.
    """
    sampling = {run: run.record["sampling"] for run in runs if run.record.get("sampling")}
    own = {run: told["time_ms"] | (IN_WORKERS if told["time_ms"].get("wait") else {}) for run, told in sampling.items()}
    used = {step: STEP_NAMES.get(step, step) for step in STEPS if any(times.get(step) for times in own.values())}
    stacks = {run: {name: times.get(step, 0.0) for step, name in used.items()} for run, times in own.items()}
    what = "Time of an epoch of sampled training by the steps of its batches"
    yield "plot", _bars_of_runs("steps", "time of an epoch by step", what, stacks, ("ms",))
    steps = [Quantity(f"{STEP_NAMES.get(step, step)}, ms", step, RATIO) for step in STEPS]
    rows = rows_of([*steps, *COUNTS], [told | told["time_ms"] for told in sampling.values()])
    yield "numbers", Table("An epoch of sampled training", ["", *(run.name for run in sampling)], rows)
    yield from missing(runs, sampling, "the steps of sampled training")


def memory(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Bars of all runs side by side at each rank."""
    kinds = {"peak_memory": "peak of the process", "peak_tensor": "peak of tensors"}
    known = [run for run in runs if all(of_ranks([run], f"{name}_bytes") for name in kinds)]
    for name, title in kinds.items():
        yield from _by_rank(name, title, f"Bytes, {title}", of_ranks(known, f"{name}_bytes"), BYTE_UNITS)
    yield from missing(runs, known, "the memory of each rank")


def nnz_by_rank(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Bars of all runs side by side at each rank."""
    nnz = {run: counts for run, counts in of_ranks(runs, "nnz").items() if counts[0] is not None}
    yield from _by_rank("nnz", "non-zeros by rank", "Non-zeros that a rank multiplies in one product", nnz, NNZ_UNITS)
    yield from missing(runs, nnz, "the non-zeros of each rank")


def of_ranks(runs: list[ShownRun], key: str) -> ByRank:
    """What each rank recorded under a ``key``, of the runs that recorded it of every rank; see docs/record.md."""
    ranks = {run: run.record.get("ranks") or [] for run in runs}
    known = {run: told for run, told in ranks.items() if told and all(key in rank for rank in told)}
    return {run: [rank[key] for rank in told] for run, told in known.items()}


def _by_activity(
    name: str, title: str, caption: str, spent: ByRank, columns: Sequence[Quantity], units: Sequence[str]
) -> Iterator[PageBlock]:
    """A plot for each run that spent anything, runs of one dataset on one scale, and the table of all runs.

    Args:
        spent: of each rank, the whole first.
    """
    parts = {run: [dict(list(rank.items())[1:]) for rank in ranks] for run, ranks in spent.items() if len(ranks[0]) > 1}
    busiest = {run: max(ranks, key=lambda rank: sum(rank.values())) for run, ranks in parts.items()}
    if len(parts) > MANY:
        what = f"{title.capitalize()}, by part, on the rank with most"
        yield "plot", _bars_of_runs(name, f"{title}, rank with most", what, busiest, units)
    else:
        for run, ranks in parts.items():
            alike = [other for other in parts if other.record.get("dataset") == run.record.get("dataset")]
            top = max(sum(busiest[other].values()) for other in alike)
            scale, unit_name = unit(top, units)
            most = max(rank[columns[0].key] for rank in spent[run]) / scale
            alt = f"{run.name}: {title}, by part, on {num_ranks(len(ranks))}; {most:.2f} {unit_name} at most."
            heights = {part: [rank[part] / scale for rank in ranks] for part in ranks[0]}
            data = (list(map(str, range(len(ranks)))), "rank", unit_name, heights, top / scale)
            yield "plot", Plot(f"{name}_{run.position}", run.prefix + title, alt, stacked, data)
    if spent:
        zeros = {column.key: 0.0 for column in columns}
        by_name = {f"{run.prefix}rank {k}": {**zeros, **rank} for run in spent for k, rank in enumerate(spent[run])}
        yield "numbers", table_of(caption, by_name, columns)


def _by_rank(name: str, title: str, caption: str, values: ByRank, units: Sequence[str]) -> Iterator[PageBlock]:
    """A plot and a table of one number of each rank, all runs side by side."""
    if not values:
        return
    scale, unit_name = unit(max(map(max, values.values())), units)
    told = {run.name: f"{COUNT(min(of_run))} to {COUNT(max(of_run))}" for run, of_run in values.items()}
    alt = each(f"{title.capitalize()} by rank", told)
    if len(values) > MANY:
        most = {title: [max(of_run) / scale for of_run in values.values()]}
        yield "plot", Plot(name, f"{title}, rank with most", alt, by_run, (list(values), most, unit_name))
    else:
        heights = {run: [value / scale for value in of_run] for run, of_run in values.items()}
        series = {run.label if len(values) > 1 else "": (run.position, heights[run]) for run in values}
        bars = list(map(str, range(max(map(len, values.values())))))
        yield "plot", Plot(name, title, alt, grouped, (bars, "rank", unit_name, series))
    records = {f"rank {k}": dict(zip(values, numbers)) for k, numbers in enumerate(zip_longest(*values.values()))}
    columns = [Quantity(run.name, run, COUNT) for run in values]
    yield "numbers", table_of(caption, records, columns)


def _bars_of_runs(name: str, title: str, what: str, stacks: ByPart, units: Sequence[str]) -> Plot:
    """A bar for each run, made of parts."""
    wholes = {run: sum(stack.values()) for run, stack in stacks.items()}
    scale, unit_name = unit(max(wholes.values()), units)
    told = {run.name: f"{whole / scale:.2f} {unit_name}" for run, whole in wholes.items()}
    parts = dict.fromkeys(part for stack in stacks.values() for part in stack)
    lengths = {part: [stack.get(part, 0) / scale for stack in stacks.values()] for part in parts}
    return Plot(name, title, each(what, told), by_run, (list(stacks), lengths, unit_name))
