"""Sections of a report: what each rank spent, and what the planner expected."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fullgnn.engine.summary import PHASES
from fullgnn.report.figures import Figures
from fullgnn.report.markup import Markup, numbers, paragraph, side_by_side
from fullgnn.report.plots import grouped, stacked
from fullgnn.report.runs import Run
from fullgnn.report.wording import NOTHING, PHASE_NAMES, absent, count, num_ranks, of, ratio, shown, unit
from fullgnn.telemetry.table import num_bytes


class Told(NamedTuple):
    """A run whose record says what its ranks spent."""

    position: int  # on the page
    run: Run
    ranks: list[dict[str, Any]]  # see docs/record.md


def told(runs: list[Run], *keys: str) -> list[Told]:
    """The runs that recorded ``keys`` of every rank."""
    every = [Told(position, run, run.record.get("ranks") or []) for position, run in enumerate(runs)]
    return [one for one in every if one.ranks and all(key in rank for rank in one.ranks for key in keys)]


def time_by_phase(runs: list[Run], figures: Figures) -> list[Markup]:
    """A plot for each run, those of a dataset on one scale."""
    there = told(runs, "time_ms")
    tops = _tops(there, lambda rank: sum(rank["time_ms"][phase] for phase in PHASES))
    drawn = []
    for position, run, ranks in there:
        parts = {PHASE_NAMES[phase]: [rank["time_ms"][phase] for rank in ranks] for phase in PHASES}
        slowest = max(rank["time_ms"]["epoch"] for rank in ranks)
        alt = f"{run.name}: milliseconds of an epoch by phase on {num_ranks(len(ranks))}; the slowest {slowest:.2f}."
        draw = stacked(of(run, "time of an epoch", runs), _labels(ranks), parts, "ms", "rank", tops[position])
        drawn.append(figures.add(f"time_{position}", alt, draw))
    rows = [
        [of(run, f"rank {k}", runs), *(f"{rank['time_ms'][phase]:.3f}" for phase in ("epoch", *PHASES))]
        for _, run, ranks in there
        for k, rank in enumerate(ranks)
    ]
    header = ["", "epoch", *PHASE_NAMES.values()]
    return [
        paragraph(
            "Medians over the epochs, evaluation and the first epoch left out. Communication is what was waited for, "
            "not what was hidden behind products. Medians of parts need not add up to that of the epoch.",
            class_="muted",
        ),
        side_by_side(drawn),
        *([numbers("Milliseconds of an epoch by rank", header, rows)] if rows else []),
        *absent(runs, (one.run for one in there), "what each rank spent"),
    ]


def bytes_by_collective(runs: list[Run], figures: Figures) -> list[Markup]:
    """A plot for each run, those of a dataset on one scale."""
    there = told(runs, "bytes_received")
    names = sorted({name for one in there for rank in one.ranks for name in rank["bytes_received"]})
    tops = _tops(there, _total)
    drawn, silent = [], []
    for position, run, ranks in there:
        if not any(map(_total, ranks)):
            silent.append(paragraph(of(run, "Nothing arrived: there is one rank.", runs)))
            continue
        scale, name_of_unit = unit(tops[position])
        received = {name: [rank["bytes_received"].get(name, 0) / scale for rank in ranks] for name in names}
        parts = {name: by_rank for name, by_rank in received.items() if any(by_rank)}
        most = num_bytes(max(map(_total, ranks)))
        alt = f"{run.name}: bytes received in an epoch by collective on {num_ranks(len(ranks))}; {most} at most."
        title = of(run, "received in an epoch", runs)
        draw = stacked(title, _labels(ranks), parts, name_of_unit, "rank", tops[position] / scale)
        drawn.append(figures.add(f"bytes_{position}", alt, draw))
    rows = [
        [
            of(run, f"rank {k}", runs),
            count(_total(rank)),
            *(count(rank["bytes_received"].get(name, 0)) for name in names),
        ]
        for _, run, ranks in there
        for k, rank in enumerate(ranks)
    ]
    return [
        paragraph("What arrives at a rank in one epoch, evaluation left out.", class_="muted"),
        side_by_side(drawn),
        *silent,
        *([numbers("Bytes received in an epoch by rank", ["", "all", *names], rows)] if rows else []),
        *absent(runs, (one.run for one in there), "what each rank received"),
    ]


def memory(runs: list[Run], figures: Figures) -> list[Markup]:
    """All runs side by side at each rank."""
    there = told(runs, "peak_memory_bytes", "peak_tensor_bytes")
    kinds = {"peak_memory_bytes": "peak of the process", "peak_tensor_bytes": "peak of tensors"} if there else {}
    by_kind = [by_rank(there, key, title, f"Bytes, {title}", figures) for key, title in kinds.items()]
    return [
        paragraph(
            "A process holds the interpreter, the libraries and, on rank 0, the preparation too. Tensors are those of "
            "the first training step.",
            class_="muted",
        ),
        side_by_side([plot for plot, _ in by_kind]),
        *(table for _, table in by_kind),
        *absent(runs, (one.run for one in there), "the memory of each rank"),
    ]


def by_rank(
    there: Sequence[Told], key: str, title: str, caption: str, figures: Figures, units: Sequence[str] | None = None
) -> tuple[Markup, Markup]:
    """A plot and a table of what ``key`` is on every rank of some runs.

    Args:
        units: names of 1, 1000, ... of them; None: those of bytes.
    """
    largest = max(rank[key] for one in there for rank in one.ranks)
    scale, name_of_unit = unit(largest) if units is None else unit(largest, units)
    series = {one.position: (one.run.name, [rank[key] / scale for rank in one.ranks]) for one in there}
    ranges = (
        f"{run.name} {count(min(rank[key] for rank in ranks))} to {count(max(rank[key] for rank in ranks))}"
        for _, run, ranks in there
    )
    alt = f"{title.capitalize()} by rank: {'; '.join(ranges)}."
    longest = max((one.ranks for one in there), key=len)
    plot = figures.add(key.removesuffix("_bytes"), alt, grouped(title, _labels(longest), series, name_of_unit, "rank"))
    rows = [
        [f"rank {k}", *(count(ranks[k][key]) if k < len(ranks) else NOTHING for _, _, ranks in there)]
        for k in range(len(longest))
    ]
    return plot, numbers(caption, ["", *(one.run.name for one in there)], rows)


def predicted_and_measured(runs: list[Run], figures: Figures) -> list[Markup]:
    """What the planner expected of each run that asked it."""
    drawn, content = [], []
    for position, run in enumerate(runs):
        expected = run.record.get("predicted")
        if not run.record:
            content.append(paragraph(of(run, "Not recorded: the run has not finished.", runs)))
        elif not expected:
            reason = "No prediction was made for this run: scheme=auto asks the planner for one."
            content.append(paragraph(of(run, reason, runs)))
        else:
            times = expected.get("time_ms")
            measured = [run.record.get(f"{phase}_time_ms") for phase in PHASES]
            if times and None not in measured:
                parts = {PHASE_NAMES[phase]: [times[phase], real] for phase, real in zip(PHASES, measured)}
                top = max(map(sum, zip(*parts.values())))
                alt = f"{run.name}: time of an epoch by phase, predicted and measured; the table has the numbers."
                draw = stacked(of(run, "time of an epoch", runs), ["predicted", "measured"], parts, "ms", "", top)
                drawn.append(figures.add(f"predicted_{position}", alt, draw))
            caption = f"Predicted for {expected.get('hardware') or 'hardware that is not named'}, and measured"
            header = ["", "predicted", "measured", "measured / predicted"]
            content.append(numbers(of(run, caption, runs), header, _against(expected, run.record)))
    return [side_by_side(drawn), *content]


def _against(expected: Mapping[str, Any], record: Mapping[str, Any]) -> list[list[str]]:
    """Rows: what, predicted, measured, their ratio. Bytes are the mean over the ranks."""
    times = expected.get("time_ms") or {}
    planned, received = expected.get("comm_bytes_per_epoch") or {}, record.get("comm_bytes_per_epoch") or {}
    pairs: list[tuple[str, float | None, float | None, Callable[[float], str]]] = [
        ("epoch, ms", expected.get("epoch_time_ms"), record["epoch_time_ms"].get("median"), ratio),
        *(
            (f"{name}, ms", times.get(phase), record.get(f"{phase}_time_ms"), ratio)
            for phase, name in PHASE_NAMES.items()
        ),
        *(
            (f"{name}, bytes", planned.get(name, 0), received.get(name, 0), count)
            for name in sorted({*planned, *received})
        ),
        ("peak of tensors, bytes", expected.get("peak_tensor_bytes"), record.get("peak_tensor_bytes"), count),
    ]
    return [
        [name, shown(plan, show), shown(real, show), ratio(real / plan) if plan and real is not None else NOTHING]
        for name, plan, real, show in pairs
    ]


def _total(rank: dict[str, Any]) -> float:
    return sum(rank["bytes_received"].values())


def _tops(there: Sequence[Told], amount: Callable[[dict[str, Any]], float]) -> dict[int, float]:
    """Where the scale of each run ends: runs of one dataset are compared."""
    tops: dict[Any, float] = {}
    for one in there:
        dataset = one.run.record.get("dataset")
        tops[dataset] = max(tops.get(dataset, 0), *map(amount, one.ranks))
    return {one.position: tops[one.run.record.get("dataset")] for one in there}


def _labels(ranks: Sequence[Any]) -> list[str]:
    return [str(rank) for rank in range(len(ranks))]
