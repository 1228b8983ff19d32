"""The record of a part as a page of Markdown."""

from collections import defaultdict
from typing import Any

from fullgnn.bench.record import cell, results, table, words


def make_page(tree: dict[str, Any]) -> str:
    """Markdown of whatever the record holds so far."""
    gpus = [entry["result"]["gpu"] for entry in tree["commands"] if entry["result"].get("gpu")]
    facts = tree["run"] | {f"gpu {key}": value for key, value in (gpus[0] if gpus else {}).items()}
    facts |= facts.pop("versions", {})
    lines = "\n".join(f"- {key.replace('_', ' ')}: {cell(value)}" for key, value in facts.items())
    parts = [f"# GPU benchmark: {facts['part']}", lines, *_sections(tree).values()]
    troubles = [f"- {cause} ({len(names)}: {'; '.join(names)})" for cause, names in _troubles(tree).items()]
    parts += ["## Failed, missing and left out", "\n".join(troubles)] if troubles else []
    return "\n\n".join(parts) + "\n"


def make_headline(tree: dict[str, Any]) -> str:
    """What is printed at the end: the checks, and the first graph."""
    sections = {tuple(title.split(": ")): text for title, text in _sections(tree).items()}
    graph = next((title[0] for title in sections if len(title) > 1), None)
    return "\n\n".join(text for title, text in sections.items() if title[0] in ("Checks", "How a job ends", graph))


def _sections(tree: dict[str, Any]) -> dict[str, str]:
    """The section of each title, as far as there are results."""
    by_title: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in tree["commands"]:
        by_title[entry["title"]] += [entry["result"]] if entry["result"] else []
    sections = {}
    for title, left in by_title.items():
        records = [result for result in left if "op" in result]
        texts = [words(records[0]["problem"] or {}), results(records)] if records else []
        epochs = by_title.get(f"{title.partition(':')[0]}: epochs", [])
        for result in left:
            texts.append("\n".join(f"> {line}".rstrip() for line in result.get("page", "").splitlines()))
            texts.append(table([_beside(row, epochs) for row in result.get("plan", [])]))
        if any(texts):
            sections[title] = "\n\n".join([f"## {title}", *filter(None, texts)])
    return sections


def _beside(planned: dict[str, Any], epochs: list[dict[str, Any]]) -> dict[str, Any]:
    """An option of the planner, beside the epoch that was measured on one GPU."""
    rows = [row for record in epochs for row in record["measurements"] if row["method"] == "full"]
    ms = rows[0]["median_ms"] if rows and planned["world_size"] == 1 else None
    return {"GPUs": planned["world_size"], "planned": planned["predicted_epoch"], "measured, ms": ms}


def _troubles(tree: dict[str, Any]) -> dict[str, list[str]]:
    """What has no result, by the reason."""
    names: dict[str, list[str]] = defaultdict(list)
    for entry in tree["commands"]:
        if entry["state"] in ("failed", "left out"):
            names[f"{entry['state']}: {entry['reason']}"].append(entry["title"])
        for missing in entry["result"].get("missing", []):
            cause = "left out" if missing["reason"].startswith("left out") else missing["reason"]
            case = f", {words(missing['case'])}" if missing["case"] else ""
            names[f"{entry['title']}: {cause}"].append(f"{missing['method']}{case}")
    return names
