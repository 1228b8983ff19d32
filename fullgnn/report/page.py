"""One page about some runs, made of what they left behind: its sections, its files. It fetches nothing and runs no
script.

The page shows the plots of a section first, then its other blocks in their order.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from fullgnn.graph.remarks import SENTENCES, sentences
from fullgnn.report import costs, learning, nonzeros
from fullgnn.report.content import COUNT, RATIO, PageBlock, Table, alike, in_words, missing, num_ranks, whose
from fullgnn.report.folders import FIGURES, Failure, SearchResult
from fullgnn.report.inspection import page as inspection_page
from fullgnn.report.inspection.findings import Inspection
from fullgnn.report.means import Settings, means_table, write_means
from fullgnn.report.plots import RUN_COLORS, Plot, stacked, write_images
from fullgnn.report.replicates import Mean, by_key, shown
from fullgnn.report.runs import ShownRun
from fullgnn.report.summary import summary
from fullgnn.storage.folder import write_text

MEANS = ("report_means.csv", "report_means.md")
"""Files beside the page with the means over seeds and splits."""


def write_page(runs: list[ShownRun], search: SearchResult, folder: Path) -> Path:
    """Write ``report.html`` and its figures to ``folder``, and return the path of the page.

    The figures and the means of an earlier report are removed. Where runs are replicates, their means are beside the
    page too.

    Args:
        search: what else the folders of the report hold: jobs that have failed, and what the page does not show.

    Raises:
        OSError: the folder cannot be written.
    """
    figures = folder / FIGURES
    figures.mkdir(parents=True, exist_ok=True)
    for stale in (*figures.glob("*.png"), *(folder / name for name in MEANS)):
        stale.unlink(missing_ok=True)
    here = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=here, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"images": partial(write_images, figures), "deed": _deed}
    origins = by_key((run for run in runs if run.record), lambda run: _origin(run.record))
    template, made = environment.get_template("page.html.j2"), sections(runs, search.failures)
    text = template.render(runs=runs, colors=RUN_COLORS, left_out=search.left_out, sections=made, origins=origins)
    write_means(settings_of(runs), folder, MEANS)
    write_text(folder / "report.html", text)
    return folder / "report.html"


def sections(runs: list[ShownRun], failures: list[Failure]) -> dict[str, list[PageBlock]]:
    """The blocks of each section, by its title, in the order of the page."""
    make: dict[str, Callable[[list[ShownRun]], Iterator[PageBlock]]] = {
        "Summary": summary,
        **({"Graph": graph} if any(run.record.get("remarks") or run.inspection for run in runs) else {}),
        **({"Means over seeds and splits": means} if any(len(run.paths) > 1 for run in runs) else {}),
        **({"Failed jobs": lambda _: failed_jobs(failures)} if failures else {}),
        learning.loss_title(runs): learning.loss_and_metrics,
        **({"Confusion matrix": learning.confusion} if any(run.record.get("confusion") for run in runs) else {}),
        **({"Epoch time": costs.epoch_time} if len(runs) > 1 else {}),
        "Time by phase": costs.time_by_phase,
        **({"Sampled training": costs.sampled_training} if any(run.record.get("sampling") for run in runs) else {}),
        "Bytes by collective": costs.bytes_by_collective,
        "Adjacency": nonzeros.adjacency,
        "Non-zeros per block": nonzeros.blocks,
        "Tile density": nonzeros.tile_density,
        "Memory": costs.memory,
        "Predicted and measured": predicted_and_measured,
        "Configuration": configuration,
    }
    return {title: list(blocks_of(runs)) for title, blocks_of in make.items()}


def settings_of(runs: Sequence[ShownRun]) -> Settings:
    """The finished runs of a page as settings; a run that stands for one run alone has one."""
    finished = [run for run in runs if run.record]
    names = [run.name if len(runs) > 1 else run.record.get("model") or run.name for run in finished]
    told = [{"epoch_time_ms": run.epoch_time, "runs": len(run.paths)} for run in finished]
    return {name: (run.record.get("metrics") or {}) | of_run for name, run, of_run in zip(names, finished, told)}


def means(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """A row for each setting, the best first."""
    yield "table", Table("Mean ± standard deviation, the best validation metric first", *means_table(settings_of(runs)))


def failed_jobs(failures: list[Failure]) -> Iterator[PageBlock]:
    """The errors of the jobs of sweeps that have failed; jobs with the same error share it."""
    for (sweep, error), same in by_key(failures, lambda failure: (failure.sweep, failure.error)).items():
        jobs = [f"job {failed.job}" + (f" ({failed.overrides})" if failed.overrides else "") for failed in same]
        yield "error", (f"{sweep}: {in_words(jobs)} failed.", error)


def predicted_and_measured(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """What the planner expected of each run that asked it."""
    for run in runs:
        if not run.record:
            yield "paragraph", f"{run.prefix}Not recorded: the run has not finished."
        elif run.record.get("predicted"):
            yield from _prediction(run, run.record["predicted"])
    unasked = [run for run in runs if run.record and not run.record.get("predicted")]
    if unasked:
        for_whom = f" for {in_words([run.name for run in unasked])}" if len(runs) > 1 else " for this run"
        yield "paragraph", f"No prediction was made{for_whom}: scheme=auto asks the planner for one."


def _prediction(run: ShownRun, expected: Mapping[str, Any]) -> Iterator[PageBlock]:
    """Two bars of the phases, and a table of all quantities. Bytes are the mean over the ranks."""
    record, times = run.record, expected.get("time_ms") or {}
    phases = {name: [times.get(key), record.get(f"{key}_time_ms")] for key, name in costs.PHASE_NAMES.items()}
    if not any(None in pair for pair in phases.values()):
        alt = f"{run.name}: time of an epoch by phase, predicted and measured; the table has the numbers."
        data = (["predicted", "measured"], "", "ms", phases, max(map(sum, zip(*phases.values()))))
        yield "plot", Plot(f"predicted_{run.position}", f"{run.prefix}time of an epoch", alt, stacked, data)
    planned, received = (told.get("comm_bytes_per_epoch") or {} for told in (expected, record))
    times_ms = {"epoch": [expected.get("epoch_time_ms"), run.epoch_time], **phases}
    counts = {name: [planned.get(name, 0), received.get(name, 0)] for name in sorted(planned | received)}
    counts["peak of tensors"] = [told.get("peak_tensor_bytes") for told in (expected, record)]
    rows = []
    for unit, show, pairs in (("ms", RATIO, times_ms), ("bytes", COUNT, counts)):
        for name, (plan, real) in pairs.items():
            ratio = real / plan if plan and real is not None else None
            rows.append([f"{name}, {unit}", shown(plan, show), shown(real, show), shown(ratio, RATIO)])
    caption = f"{run.prefix}Predicted for {expected.get('hardware') or 'hardware that is not named'}, and measured"
    yield "numbers", Table(caption, ["", "predicted", "measured", "measured / predicted"], rows)


def configuration(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """``config.yaml`` of each run as it is; of replicates, that of the first."""
    for run in runs:
        if run.config:
            differ = "the others differ in the seed or in the split"
            others = f", of {run.paths[0].name}: {differ}" if len(run.paths) > 1 else ""
            yield "listing", (f"{run.name}{others}" if run.prefix else "", run.config)
    yield from missing(runs, [run for run in runs if run.config], "config.yaml")


def graph(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """The remarks of each record, and each inspection; runs that share them share the blocks."""
    remarks = {run: run.record["remarks"] for run in runs if run.record.get("remarks")}
    for first, same in alike(remarks).items():
        for sentence in sentences(_shared(remarks[first])):
            yield "paragraph", f"{_prefix(same, runs)}{sentence}."
    inspections = {run: replace(run.inspection, seconds=0.0) for run in runs if run.inspection is not None}
    for first, same in alike(inspections).items():
        yield from _inspection(inspections[first], first, _prefix(same, runs))
    lacking = [run for run in runs if run.inspection is None]
    if lacking:
        told = "python -m fullgnn.inspect, with the keys of the run and out=RUN_DIR/inspection.json, shows degrees,"
        yield "paragraph", f"Not inspected: the graph{whose(lacking, runs)}. {told} homophily, leaks and more here."


def _inspection(inspection: Inspection, run: ShownRun, prefix: str) -> Iterator[PageBlock]:
    sizes = run.record.get("dataset"), run.record.get("num_nodes")
    if run.record and sizes != (inspection.name, inspection.num_nodes):
        other = f"{inspection.name}, a graph of {COUNT(inspection.num_nodes)} nodes"
        yield "paragraph", f"{prefix}inspection.json is of {other}, and not of the graph of the run."
        return
    if len(run.paths) > 1:
        yield "note", f"{prefix}What depends on the split is that of {Path(run.paths[0]).name}."
    for title, parts in inspection_page.sections(inspection).items():
        for block in parts:
            table = None if isinstance(block, str) else inspection_page.without_bars(block)
            yield ("table", Table(f"{prefix}{title}", *table)) if table else ("paragraph", f"{prefix}{block}")


def _shared(remarks: Mapping[str, Any]) -> dict[str, Any]:
    """Remarks whose sentences are the same for all replicates: in the others, a count is a ``Mean``. Names of a newer
    version are left out."""
    means = [name for name, count in remarks.items() if isinstance(count, Mean)]
    known = {name: count for name, count in remarks.items() if name in SENTENCES and name not in means}
    return {name: count for name, count in known.items() if not any(f"{{{mean}" in SENTENCES[name] for mean in means)}


def _prefix(same: list[ShownRun], runs: list[ShownRun]) -> str:
    return "" if len(same) == len(runs) else f"{in_words([run.name for run in same])}: "


def _deed(record: Mapping[str, Any]) -> str:
    """What a run did."""
    told = defaultdict(lambda: "?", record)
    sizes = {"nodes": record.get("num_nodes"), "non-zeros": record.get("nnz")}
    numbers = "".join(f", {count:,} {name}" for name, count in sizes.items() if count)
    where = f"{told['scheme']} on {num_ranks(told['world_size'])} ({told['device']}), order {told['reorder']}"
    return f"{told['model']} on {told['dataset']}{numbers}; {where}."


def _origin(record: Mapping[str, Any]) -> str:
    """Where the numbers of a run are from: hardware, versions and commit."""
    hardware, versions = record.get("hardware") or {}, record.get("versions") or {}
    machine = hardware.get("gpu") or hardware.get("cpu") or "unknown hardware"
    cores = f", {hardware['num_cores']} cores" if hardware.get("num_cores") else ""
    software = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return f"{machine}{cores}; {software}; commit {record.get('git_commit') or 'unknown'}."
