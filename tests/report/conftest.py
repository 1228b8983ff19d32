"""Pages with coarse pictures, or without any: drawing takes most of the time of a report."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws pictures with a sixteenth of their pixels, where matplotlib is installed."""
    if find_spec("matplotlib"):
        monkeypatch.setattr("fullgnn.report.plots.DPI", 50)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves images empty, for tests of the rest of a page."""
    from fullgnn.report import page  # needs matplotlib

    def two_images(folder: Path, plot: Any) -> list[dict[str, str]]:
        return [{"src": "", "alt": plot.alt, "class": theme} for theme in ("light", "dark")]

    monkeypatch.setattr(page, "write_images", two_images)
