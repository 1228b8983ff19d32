"""The section that compares epoch times: a bar for each run, and the speed-up where the numbers of ranks differ."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fullgnn.report.content import RATIO, Block, Table, missing
from fullgnn.report.noise import epoch_range
from fullgnn.report.plots import Plot, plot_by_run, speed_up
from fullgnn.report.runs import Run, settings_without
from fullgnn.report.spread import NOTHING, shown

LAYOUT = ("scheme", "partition", "reorder", "kernel", "optimizations", "runtime", "world_size", "rank")
"""Keys of the configuration that say how the ranks share the work, not what is computed."""
NUM_RANKS = ("runtime.nproc", "world_size", "rank")


class Point(NamedTuple):
    """One run in the chart of the speed-up."""

    run: Run
    series: str  # its line
    baseline: Run  # whose epoch is divided by that of the run


def epoch_time(runs: list[Run]) -> Iterator[Block]:
    """Bars of the medians with their ranges, lines of the speed-up, and a table of both."""
    timed = [run for run in runs if run.record.get("epoch_time_ms", {}).get("median") is not None]
    if timed:
        medians = [_median(run) for run in timed]
        told = "; ".join(f"{run.name} {shown(median, RATIO)}" for run, median in zip(timed, medians))
        alt = f"Milliseconds of an epoch, median, by run: {told}."
        ranges = [epoch_range(run.record) for run in timed]
        yield "plot", plot_by_run("epoch_time", "epoch time by run", alt, timed, {"epoch": medians}, "ms", ranges)
    points = {point.run: point for point in _points(timed)}
    if points:
        yield "plot", _speed_up_plot(points)
        for baseline in dict.fromkeys(point.baseline for point in points.values()):
            others = [point.run.name for point in points.values() if point.baseline is baseline]
            whose = f" of {', '.join(others)}" if len(others) < len(timed) else ""
            yield "note", f"Speed-up{whose}: the epoch time of {baseline.name}, divided by that of the run."
    rows = []
    for run in timed:
        low, high = epoch_range(run.record)
        gain = NOTHING if run not in points else RATIO(_gain(points[run])[0])
        p = run.record.get("world_size", NOTHING)
        cells = [str(p), shown(_median(run), RATIO), RATIO(low), RATIO(high), *([gain] if points else [])]
        rows.append([run.name, *cells])
    if rows:
        header = ["", "ranks, p", "median", "from", "to", *(["speed-up"] if points else [])]
        yield "numbers", Table("Milliseconds of an epoch by run", header, rows)
    yield from missing(runs, timed, "the epoch time")


def _median(run: Run) -> float:
    median: float = run.record["epoch_time_ms"]["median"]
    return median


def _points(runs: list[Run]) -> Iterator[Point]:
    """The runs whose number of ranks differs from that of others which compute the same.

    Their baseline is the fastest of those with the fewest ranks. A dry run has no time of a whole job.
    """
    works: dict[str, list[Run]] = {}  # runs that compute the same
    for run in runs:
        if run.record.get("world_size") and run.record.get("dry_run_rank") is None and _median(run) > 0:
            works.setdefault(_same(run, *LAYOUT), []).append(run)
    lines: list[list[Run]] = []
    baselines: list[Run] = []
    for work in works.values():
        counts = {run.record["world_size"] for run in work}
        if len(counts) > 1:
            fewest = [run for run in work if run.record["world_size"] == min(counts)]
            of_work: dict[str, list[Run]] = {}
            for run in work:
                of_work.setdefault(_same(run, *NUM_RANKS) + str(run.record.get("scheme")), []).append(run)
            lines += of_work.values()
            baselines += [min(fewest, key=_median)] * len(of_work)
    for line, name, baseline in zip(lines, _names_of_lines(lines), baselines):
        yield from (Point(run, name, baseline) for run in line)


def _same(run: Run, *but: str) -> str:
    """A text that is equal for runs which differ in the keys ``but`` alone."""
    told = [run.record.get(key) for key in ("dataset", "num_nodes", "model", "device", "dtype")]
    return repr((sorted(settings_without(run, *but).items()), told))


def _names_of_lines(lines: list[list[Run]]) -> list[str]:
    """A name for each line: the words that the names of its runs share, or else the keys in which the lines differ."""
    names = []
    for line in lines:
        words = [re.sub(r" \(\d+ (seeds|splits|runs)\)$", "", run.name).split(" ") for run in line]
        names.append(" ".join(word for word in words[0] if all(word in others for others in words)))
    if all(names) and len(set(names)) == len(names):
        return names
    if len(lines) == 1:
        return [str(lines[0][0].record.get("scheme"))]
    settings = [settings_without(line[0], *NUM_RANKS) for line in lines]
    keys = dict.fromkeys(key for one in settings for key in one if not key.endswith("._target_"))
    differing = [key for key in keys if len({one.get(key) for one in settings}) > 1]
    names = [" ".join(f"{key}={one[key]}" for key in differing if key in one) for one in settings]
    if all(names) and len(set(names)) == len(names):
        return names
    return [f"{line[0].record.get('scheme')} ({line[0].name})" for line in lines]


def _gain(point: Point) -> tuple[float, float, float]:
    """Speed-up of a run over its baseline, and its ends where the time of the run is at those of its range."""
    base = float(_median(point.baseline))
    low, high = epoch_range(point.run.record)
    return base / _median(point.run), base / high, base / low


def _speed_up_plot(points: Mapping[Run, Point]) -> Plot:
    series: dict[str, dict[int, tuple[float, float, float]]] = {}
    for point in points.values():
        line, count = series.setdefault(point.series, {}), point.run.record["world_size"]
        line[count] = max(line.get(count, (0.0, 0.0, 0.0)), _gain(point))  # of equal runs, the fastest
    told = "; ".join(
        f"{name} {', '.join(f'{line[count][0]:.2f} with p = {count}' for count in sorted(line))}"
        for name, line in series.items()
    )
    alt = f"Speed-up of an epoch against the number of ranks: {told}."
    return Plot("speed_up", "speed-up against the number of ranks", alt, speed_up, {"series": series})
