"""The section of the graph: what its record remarks, and what ``python -m fullgnn.inspect`` has found of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fullgnn.graph.remarks import SENTENCES, sentences
from fullgnn.report.content import COUNT, Block, Table, alike, in_words
from fullgnn.report.inspection.findings import Inspection
from fullgnn.report.inspection.page import sections, without_bars
from fullgnn.report.runs import Run
from fullgnn.report.spread import Mean


def has_graph(run: Run) -> bool:
    """Whether there is anything to say of the graph of a run."""
    return bool(run.record.get("remarks") or run.inspection)


def graph(runs: list[Run]) -> Iterator[Block]:
    """The remarks of each record, and each inspection; runs that share them share the blocks."""
    remarks = {run: run.record["remarks"] for run in runs if run.record.get("remarks")}
    for first, same in alike(remarks, lambda one, other: one == other).items():
        for sentence in sentences(_shared(remarks[first])):
            yield "paragraph", f"{_prefix(same, runs)}{sentence}."
    inspections = {run: run.inspection for run in runs if run.inspection is not None}
    for first, same in alike(inspections, _is_same).items():
        yield from _inspection(inspections[first], first, _prefix(same, runs))
    lacking = [run.name for run in runs if run.inspection is None]
    if lacking:
        whose = f" of {in_words(lacking)}" if len(runs) > 1 else ""
        yield (
            "paragraph",
            (
                f"Not inspected: the graph{whose}. python -m fullgnn.inspect, with the keys of the run and"
                " out=RUN_DIR/inspection.json, shows degrees, homophily, leaks and more here."
            ),
        )


def _inspection(found: Inspection, run: Run, prefix: str) -> Iterator[Block]:
    sizes = run.record.get("dataset"), run.record.get("num_nodes")
    if run.record and sizes != (found.name, found.num_nodes):
        yield (
            "paragraph",
            (
                f"{prefix}inspection.json is of {found.name}, a graph of {COUNT(found.num_nodes)} nodes, and not of the"
                " graph of the run."
            ),
        )
        return
    if len(run.paths) > 1:
        yield "note", f"{prefix}What depends on the split is that of {Path(run.paths[0]).name}."
    for title, blocks in sections(found).items():
        for block in blocks:
            if isinstance(block, str):
                yield "paragraph", f"{prefix}{block}"
            else:
                yield "table", Table(f"{prefix}{title}", *without_bars(block))


def _is_same(one: Inspection, other: Inspection) -> bool:
    def facts(found: Inspection) -> dict[str, Any]:
        return {key: value for key, value in vars(found).items() if key != "seconds"}

    return facts(one) == facts(other)


def _shared(remarks: Mapping[str, Any]) -> dict[str, Any]:
    """Remarks whose sentences are the same for all replicates: in the others, a count is a ``Mean``. Names of a newer
    version are left out."""
    means = [name for name, count in remarks.items() if isinstance(count, Mean)]

    def is_same(name: str) -> bool:
        sentence = SENTENCES[name]
        return name not in means and not any(f"{{{other}" in sentence for other in means)

    return {name: count for name, count in remarks.items() if name in SENTENCES and is_same(name)}


def _prefix(same: list[Run], runs: list[Run]) -> str:
    return "" if len(same) == len(runs) else f"{in_words([run.name for run in same])}: "
