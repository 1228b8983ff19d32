"""The section of the graph: what its record remarks, and what ``python -m fullgnn.inspect`` has found of it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import eq
from pathlib import Path
from typing import Any

from fullgnn.graph.remarks import SENTENCES, sentences
from fullgnn.report.content import COUNT, Block, Table, alike, in_words, whose
from fullgnn.report.inspection.findings import Inspection
from fullgnn.report.inspection.page import sections, without_bars
from fullgnn.report.replicates import Mean
from fullgnn.report.runs import ShownRun


def has_graph(run: ShownRun) -> bool:
    """Whether there is anything to say of the graph of a run."""
    return bool(run.record.get("remarks") or run.inspection)


def graph(runs: list[ShownRun]) -> Iterator[Block]:
    """The remarks of each record, and each inspection; runs that share them share the blocks."""
    remarks = {run: run.record["remarks"] for run in runs if run.record.get("remarks")}
    for first, same in alike(remarks, eq).items():
        for sentence in sentences(_shared(remarks[first])):
            yield "paragraph", f"{_prefix(same, runs)}{sentence}."
    inspections = {run: replace(run.inspection, seconds=0.0) for run in runs if run.inspection is not None}
    for first, same in alike(inspections, eq).items():
        yield from _inspection(inspections[first], first, _prefix(same, runs))
    lacking = [run for run in runs if run.inspection is None]
    if lacking:
        told = "python -m fullgnn.inspect, with the keys of the run and out=RUN_DIR/inspection.json, shows degrees,"
        yield "paragraph", f"Not inspected: the graph{whose(lacking, runs)}. {told} homophily, leaks and more here."


def _inspection(inspection: Inspection, run: ShownRun, prefix: str) -> Iterator[Block]:
    sizes = run.record.get("dataset"), run.record.get("num_nodes")
    if run.record and sizes != (inspection.name, inspection.num_nodes):
        other = f"{inspection.name}, a graph of {COUNT(inspection.num_nodes)} nodes"
        yield "paragraph", f"{prefix}inspection.json is of {other}, and not of the graph of the run."
        return
    if len(run.paths) > 1:
        yield "note", f"{prefix}What depends on the split is that of {Path(run.paths[0]).name}."
    for title, blocks in sections(inspection).items():
        for block in blocks:
            if isinstance(block, str):
                yield "paragraph", f"{prefix}{block}"
            else:
                yield "table", Table(f"{prefix}{title}", *without_bars(block))


def _shared(remarks: Mapping[str, Any]) -> dict[str, Any]:
    """Remarks whose sentences are the same for all replicates: in the others, a count is a ``Mean``. Names of a newer
    version are left out."""
    means = [name for name, count in remarks.items() if isinstance(count, Mean)]
    return {
        name: count
        for name, count in remarks.items()
        if name in SENTENCES and name not in means and not any(f"{{{mean}" in SENTENCES[name] for mean in means)
    }


def _prefix(same: list[ShownRun], runs: list[ShownRun]) -> str:
    return "" if len(same) == len(runs) else f"{in_words([run.name for run in same])}: "
