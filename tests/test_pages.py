"""The pages: the README, and all below docs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
WIDTH = 120


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page with their numbers, without code, tables and headings, which cannot be folded."""
    fenced, code, after_blank = False, False, True
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        code = line.startswith("    ") and (after_blank or code)
        after_blank = not line.strip()
        if not fenced and not code and not line.lstrip().startswith(("```", "|", "#")):
            yield number, line


def anchors(text: str) -> set[str]:
    """What a link may name behind ``#``: the headings, in lower case, with hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_fit(page: Path) -> None:
    wide = [f"{page}:{number}: {line}" for number, line in prose(page.read_text()) if len(line) > WIDTH]
    assert not wide, "fold these lines at 120 columns:\n" + "\n".join(wide)


def test_code_tables_and_headings_are_not_folded() -> None:
    wide = "x" * 121
    text = f"# {wide}\n\n```\n{wide}\n```\n\n    {wide}\n    {wide}\n\n| {wide} |\n"
    assert all(len(line) <= WIDTH for _, line in prose(text))
    for paragraph in (wide, f"- {wide}", f"- one\n    {wide}", f"    {wide}\n\n{wide}"):
        assert any(len(line) > WIDTH for _, line in prose(paragraph)), paragraph


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", "\n".join(line for _, line in prose(page.read_text()))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(target.read_text()), f"{page}: {link}"


def test_files_of_the_package_that_are_named_exist() -> None:
    """In the pages, and in the docstrings of the package. docs/extending.md names files that a user adds, and
    docs/results what there was when it was measured."""
    names = {path.name for folder in ("fullgnn", "tests", "examples") for path in (ROOT / folder).rglob("*.py")}
    pages = [page for page in PAGES if "results" not in page.parts and page.name != "extending.md"]
    missing = [
        f"{file}: {name}"
        for file in (*pages, *(ROOT / "fullgnn").rglob("*.py"))
        for name in re.findall(r"`(?:\w+/)*(\w+\.py)`", file.read_text())
        if name not in names
    ]
    assert not missing, "\n".join(missing)
