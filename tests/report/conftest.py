"""Pages without pictures."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves images empty, for tests of the rest of a page: drawing takes most of the time of a report."""
    from fullgnn.report import page  # needs matplotlib

    def two_images(folder: Path, plot: Any) -> list[dict[str, str]]:
        return [{"src": "", "alt": plot.alt, "class": theme} for theme in ("light", "dark")]

    monkeypatch.setattr(page, "write_images", two_images)
