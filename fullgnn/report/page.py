"""One page about some runs, made of what they left behind. Nothing in it is fetched, and no script runs."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from fullgnn.report.comparison import comparison
from fullgnn.report.costs import bytes_by_collective, memory, predicted_and_measured, time_by_phase
from fullgnn.report.figures import Figures, run_color
from fullgnn.report.learning import loss_and_accuracy
from fullgnn.report.markup import Markup, element, paragraph
from fullgnn.report.order import adjacency, blocks, tile_density
from fullgnn.report.runs import Run
from fullgnn.report.style import STYLE
from fullgnn.report.wording import absent, num_ranks

FIGURES = "report_figures"
"""Folder of the PNG files, beside the page."""


def configuration(runs: list[Run], figures: Figures) -> list[Markup]:
    """Section: ``config.yaml`` as it is; folded where there are several."""
    there = [run for run in runs if run.config]
    if len(runs) == 1:
        texts = [element("pre", run.config) for run in there]
    else:
        texts = [element("details", element("summary", run.name), element("pre", run.config)) for run in there]
    return [*texts, *absent(runs, there, "config.yaml")]


SECTIONS: dict[str, Callable[[list[Run], Figures], list[Markup]]] = {
    "Summary": comparison,
    "Loss and accuracy": loss_and_accuracy,
    "Time by phase": time_by_phase,
    "Bytes by collective": bytes_by_collective,
    "Adjacency": adjacency,
    "Non-zeros per block": blocks,
    "Tile density": tile_density,
    "Memory": memory,
    "Predicted and measured": predicted_and_measured,
    "Configuration": configuration,
}


def write_page(runs: list[Run], left_out: list[str], folder: Path) -> Path:
    """Write ``report.html`` and its figures to ``folder``, and return the path of the page.

    Args:
        left_out: what the page does not show, a sentence each.

    Raises:
        OSError: the folder cannot be written.
    """
    text = make_page(runs, left_out, Figures(folder / FIGURES))
    page, temporary = folder / "report.html", folder / "report.html.tmp"
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, page)
    return page


def make_page(runs: list[Run], left_out: list[str], figures: Figures) -> str:
    title = _title(runs)
    anchors = {name: re.sub("[^a-z]+", "-", name.lower()) for name in SECTIONS}
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    header = element(
        "header",
        element("h1", title),
        element("ol", *(_introduced(position, run) for position, run in enumerate(runs)), class_="runs"),
        *(paragraph(sentence, class_="muted") for sentence in left_out),
        element("nav", *(element("a", name, href=f"#{anchors[name]}") for name in SECTIONS), aria_label="Sections"),
    )
    sections = (
        element("section", element("h2", name), *make(runs, figures), id=anchors[name])
        for name, make in SECTIONS.items()
    )
    body = element("body", header, element("main", *sections), _footer(runs))
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _title(runs: list[Run]) -> str:
    if len(runs) > 1:
        return f"{len(runs)} runs side by side"
    settings = runs[0].settings
    return f"{settings.get('model.name', 'A model')} on {settings.get('dataset.name', 'a graph')}"


def _introduced(position: int, run: Run) -> Markup:
    """A run's colour in the plots, its name, what it did, and where it lies."""
    return element(
        "li",
        element("strong", run.name),
        f": {_deed(run.record)}" if run.record else "",
        *(element("em", f" {note}") for note in run.notes),
        element("small", str(run.path)),
        style=f"--run: {run_color(position)}",
    )


def _deed(record: dict) -> str:
    known = dict.fromkeys(("model", "dataset", "scheme", "world_size", "device", "reorder"), "?") | record
    sizes = [
        f"{known[key]:,} {what}" for key, what in (("num_nodes", "nodes"), ("nnz", "non-zeros")) if record.get(key)
    ]
    return (
        f"{known['model']} on {', '.join([str(known['dataset']), *sizes])}; {known['scheme']} on "
        f"{num_ranks(known['world_size'])} ({known['device']}), order {known['reorder']}."
    )


def _footer(runs: list[Run]) -> Markup:
    """Where the numbers are from; runs of the same origin share a line."""
    origins: dict[str, list[str]] = {}
    for run in runs:
        if run.record:
            origins.setdefault(_origin(run.record), []).append(run.name)
    lines = (origin if len(origins) == 1 else f"{', '.join(names)}: {origin}" for origin, names in origins.items())
    return element("footer", *map(paragraph, lines), paragraph("Written by python -m fullgnn.report."))


def _origin(record: dict) -> str:
    hardware, versions = record.get("hardware") or {}, record.get("versions") or {}
    machine = hardware.get("gpu") or hardware.get("cpu") or "unknown hardware"
    cores = f", {hardware['num_cores']} cores" if hardware.get("num_cores") else ""
    software = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return f"{machine}{cores}; {software}; commit {record.get('git_commit') or 'unknown'}."
