"""One page about some runs, made of what they left behind. It fetches nothing and runs no script."""

from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from fullgnn.report.content import num_ranks, shows_something
from fullgnn.report.folders import FIGURES, Found
from fullgnn.report.means import write_means
from fullgnn.report.plots import RUN_COLORS, write_images
from fullgnn.report.runs import Run
from fullgnn.report.sections import sections, settings_of
from fullgnn.storage.folder import write_text

MEANS = ("report_means.csv", "report_means.md")
"""Files beside the page with the means over seeds and splits."""


def write_page(runs: list[Run], found: Found, folder: Path) -> Path:
    """Write ``report.html`` and its figures to ``folder``, and return the path of the page.

    PNG files of an earlier report are removed. Where runs are replicates, their means are beside the page too.

    Args:
        found: what else the folders of the report hold: jobs that have failed, and what the page does not show.

    Raises:
        OSError: the folder cannot be written.
    """
    figures = folder / FIGURES
    figures.mkdir(parents=True, exist_ok=True)
    for stale in figures.glob("*.png"):
        stale.unlink()
    here = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=here, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "images": partial(write_images, figures),
        "num_ranks": num_ranks,
        "shows_something": shows_something,
    }
    origins: dict[str, list[str]] = {}  # runs of the same origin share a line
    for run in runs:
        if run.record:
            origins.setdefault(_origin(run.record), []).append(run.name)
    text = environment.get_template("page.html.j2").render(
        runs=runs,
        colors=RUN_COLORS,
        num_runs=sum(len(run.paths) for run in runs),
        left_out=found.left_out,
        sections=sections(runs, found.failures),
        origins=origins,
    )
    if not write_means(settings_of(runs), folder, MEANS):
        for name in MEANS:
            (folder / name).unlink(missing_ok=True)
    write_text(folder / "report.html", text)
    return folder / "report.html"


def _origin(record: dict[str, Any]) -> str:
    """Where the numbers of a run are from: hardware, versions and commit."""
    hardware, versions = record.get("hardware") or {}, record.get("versions") or {}
    machine = hardware.get("gpu") or hardware.get("cpu") or "unknown hardware"
    cores = f", {hardware['num_cores']} cores" if hardware.get("num_cores") else ""
    software = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return f"{machine}{cores}; {software}; commit {record.get('git_commit') or 'unknown'}."
