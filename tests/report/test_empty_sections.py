"""A section that has nothing to show is one line of the page, which says why."""

import re
import sys
from pathlib import Path

import pytest

from tests.commands import OWN, run_command
from tests.report.folders import Page

pytest.importorskip("matplotlib")

EMPTY = ["Adjacency", "Tile density", "Predicted and measured"]


def empty_sections(text: str) -> dict[str, str]:
    """The heading and the text of each section of one line."""
    return dict(re.findall(r'<section class="empty" id="[a-z-]+"><h2>(.*?)</h2>\s*<p>(.*?)</p></section>', text))


@pytest.mark.sample(2)
def test_sections_of_a_small_run_without_anything_to_show_are_one_line_each(tmp_path: Path) -> None:
    run = ["dataset=karate", "runtime.device=cpu", "runtime.nproc=2", "train.epochs=2", "run_dir=run"]
    assert run_command(OWN, *run, cwd=tmp_path).status == 0
    done = run_command([sys.executable, "-m", "fullgnn.report"], "run", cwd=tmp_path)
    assert done.status == 0, done.output
    text = (tmp_path / "run" / "report.html").read_text()
    empty, page = empty_sections(text), Page(text)
    assert list(empty) == EMPTY
    assert empty["Predicted and measured"].startswith("No prediction was made for this run: scheme=auto")
    assert all("train.statistics=true" in empty[name] for name in EMPTY[:2])
    for name, section in page.sections.items():
        if name in EMPTY:  # neither a sentence on what it would show, nor anything else
            assert section.text.strip().startswith(empty[name]) and not section.images and not section.tables
        elif name not in ("", "Configuration"):
            assert section.tables, name
    assert "How much of each cell is stored" not in text and "how full their 32 × 32 tile" not in text
    assert text.count("<section") == len(page.sections) - 1
    assert all(f'href="#{name.lower().replace(" ", "-")}"' in text for name in EMPTY)


@pytest.mark.sample(2)
def test_one_rank_receives_nothing_in_one_line(tmp_path: Path) -> None:
    run = ["dataset=karate", "runtime.device=cpu", "train.epochs=2", "train.statistics=true", "run_dir=run"]
    assert run_command(OWN, *run, cwd=tmp_path).status == 0
    assert run_command([sys.executable, "-m", "fullgnn.report"], "run", cwd=tmp_path).status == 0
    empty = empty_sections((tmp_path / "run" / "report.html").read_text())
    assert list(empty) == ["Predicted and measured"]
