"""The sections of the page. The page shows the plots of a section first, then its other blocks in their order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fullgnn.report.confusion import confusion
from fullgnn.report.content import COUNT, RATIO, Block, Show, Table, in_words, missing
from fullgnn.report.epoch_time import epoch_time
from fullgnn.report.folders import Failure
from fullgnn.report.graphs import graph, has_graph
from fullgnn.report.losses import loss_and_metrics, loss_title
from fullgnn.report.means import Setting, means_table
from fullgnn.report.nonzeros import adjacency, blocks, tile_density
from fullgnn.report.plots import Axis, Plot, stacked
from fullgnn.report.ranks import PHASE_NAMES, bytes_by_collective, memory, time_by_phase
from fullgnn.report.runs import Run
from fullgnn.report.sampled import sampled_training
from fullgnn.report.spread import NOTHING, shown
from fullgnn.report.summary import summary


def has_replicates(runs: Sequence[Run]) -> bool:
    """Whether a run of the page stands for several that differ in seeds or splits alone."""
    return any(len(run.paths) > 1 for run in runs)


def settings_of(runs: Sequence[Run]) -> list[Setting]:
    """The finished runs of a page as settings; a run that stands for one run alone has one."""
    return [
        Setting(
            run.name if len(runs) > 1 else run.record.get("model") or run.name,
            len(run.paths),
            {
                **(run.record.get("metrics") or {}),
                "epoch_time_ms": (run.record.get("epoch_time_ms") or {}).get("median"),
            },
        )
        for run in runs
        if run.record
    ]


def means(runs: list[Run]) -> Iterator[Block]:
    """A row for each setting, the best first."""
    header, rows = means_table(settings_of(runs))
    yield "table", Table("Mean ± standard deviation, the best validation metric first", header, rows)


def failed_jobs(failures: list[Failure]) -> Iterator[Block]:
    """The errors of the jobs of sweeps that have failed; jobs with the same error share it."""
    together: dict[tuple[str, str], list[str]] = {}
    for failure in failures:
        job = f"job {failure.job}" + (f" ({failure.overrides})" if failure.overrides else "")
        together.setdefault((str(failure.sweep), failure.error), []).append(job)
    for (sweep, error), jobs in together.items():
        yield "error", (f"{sweep}: {in_words(jobs)} failed.", error)


def predicted_and_measured(runs: list[Run]) -> Iterator[Block]:
    """What the planner expected of each run that asked it."""
    unasked = [run for run in runs if run.record and not run.record.get("predicted")]
    for run in runs:
        if not run.record:
            yield "paragraph", f"{run.prefix}Not recorded: the run has not finished."
        elif run not in unasked:
            yield from _prediction(run, run.record["predicted"])
    if unasked:
        whose = f" for {in_words([run.name for run in unasked])}" if len(runs) > 1 else " for this run"
        yield "paragraph", f"No prediction was made{whose}: scheme=auto asks the planner for one."


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
    """``config.yaml`` of each run as it is; of replicates, that of the first."""
    for run in runs:
        if run.config:
            differ = "the others differ in the seed or in the split"
            others = f", of {run.paths[0].name}: {differ}" if len(run.paths) > 1 else ""
            yield "listing", (f"{run.name}{others}" if run.prefix else "", run.config)
    yield from missing(runs, [run for run in runs if run.config], "config.yaml")


def sections(runs: list[Run], failures: list[Failure]) -> dict[str, list[Block]]:
    """The blocks of each section, by its title, in the order of the page."""
    make: dict[str, Callable[[list[Run]], Iterator[Block]]] = {
        "Summary": summary,
        **({"Graph": graph} if any(map(has_graph, runs)) else {}),
        **({"Means over seeds and splits": means} if has_replicates(runs) else {}),
        **({"Failed jobs": lambda _: failed_jobs(failures)} if failures else {}),
        loss_title(runs): loss_and_metrics,
        **({"Confusion matrix": confusion} if any(run.record.get("confusion") for run in runs) else {}),
        **({"Epoch time": epoch_time} if len(runs) > 1 else {}),
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
