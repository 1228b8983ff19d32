"""The record of a part as a page of Markdown."""

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from fullgnn.bench.record import cell, results, words
from fullgnn.telemetry.screen import format_table

Entry = Mapping[str, Any]
"""A command of the record, with what is kept of its results."""


def make_page(tree: dict[str, Any]) -> str:
    """Markdown of whatever the record holds so far."""
    run = tree["run"]
    facts = [*((key, value) for key, value in run.items() if key != "versions"), *run.get("versions", {}).items()]
    gpus = [entry["result"]["gpu"] for entry in tree["commands"] if entry["result"].get("gpu")]
    facts += [(f"gpu {key}", value) for key, value in (gpus[0] if gpus else {}).items()]
    lines = [f"- {key.replace('_', ' ')}: {cell(value)}" for key, value in facts]
    parts = [f"# GPU benchmark: {run['part']}", "\n".join(lines), *_sections(tree).values()]
    troubles = [f"- {cause} ({len(names)}: {'; '.join(names)})" for cause, names in _troubles(tree).items()]
    if troubles:
        parts.append("## Failed, missing and left out\n\n" + "\n".join(troubles))
    return "\n\n".join(parts) + "\n"


def make_headline(tree: dict[str, Any]) -> str:
    """What is printed at the end: the checks, and the first graph."""
    sections = _sections(tree)
    graph = next((title.partition(":")[0] for title in sections if ": " in title), None)
    chosen = [
        text for title, text in sections.items() if title.partition(":")[0] in ("Checks", "How a job ends", graph)
    ]
    return "\n\n".join(chosen)


def _sections(tree: dict[str, Any]) -> dict[str, str]:
    """The section of each title, as far as there are results."""
    sections = {}
    for title, group in groupby(tree["commands"], itemgetter("title")):
        left = [entry["result"] for entry in group if entry["result"]]
        records = [result for result in left if "op" in result]
        texts = [words(record["problem"]) for record in records[:1] if record["problem"]]
        texts += [results(records)] if records else []
        texts += [_quoted(result["page"]) for result in left if result.get("page")]
        texts += [_plan(title.partition(":")[0], result["plan"], tree) for result in left if result.get("plan")]
        if any(texts):
            sections[title] = "\n\n".join([f"## {title}", *filter(None, texts)])
    return sections


def _quoted(page: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in page.splitlines())


def _plan(graph: str, plan: list[dict[str, Any]], tree: dict[str, Any]) -> str:
    """The planner's epochs, beside the one that was measured on one GPU."""
    epochs = [
        row
        for entry in tree["commands"]
        if entry["title"] == f"{graph}: epochs"
        for row in entry["result"]["measurements"]
    ]
    ms = next((row["median_ms"] for row in epochs if row["method"] == "full"), None)
    rows = [
        [str(one["world_size"]), one["predicted_epoch"], cell(ms if one["world_size"] == 1 else None)] for one in plan
    ]
    return format_table(["GPUs", "planned", "measured, ms"], rows)


def _troubles(tree: dict[str, Any]) -> dict[str, list[str]]:
    """What has no result, by the reason."""
    names: dict[str, dict[str, None]] = {}
    for entry in tree["commands"]:
        if entry["state"] in ("failed", "left out"):
            names.setdefault(f"{entry['state']}: {entry['reason']}", {})[entry["title"]] = None
        for missing in entry["result"].get("missing", []):
            cause = "left out" if missing["reason"].startswith("left out") else missing["reason"]
            case = f", {words(missing['case'])}" if missing["case"] else ""
            names.setdefault(f"{entry['title']}: {cause}", {})[f"{missing['method']}{case}"] = None
    return {cause: list(found) for cause, found in names.items()}
