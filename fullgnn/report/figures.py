"""Pictures of a report: each is drawn twice, for light and for dark paper, as a PNG file and inside the page."""

import base64
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from fullgnn.report.markup import Markup, element

RUN_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Of Okabe and Ito (2008): told apart by all kinds of colour vision. The seventh run has the first again."""
DPI = 200
WIDE = (4.6, 3.1)
"""Inches of a plot; a page of usual width shows an inch as one."""
SQUARE = (4.6, 5.0)
"""The same of a map."""


def run_color(position: int) -> str:
    """Of the run at ``position`` on the page, on light paper."""
    return RUN_COLORS[position % len(RUN_COLORS)]


@dataclass(frozen=True)
class Theme:
    name: str  # for the style
    suffix: str  # of the file
    paper: str
    ink: str
    muted: str
    grid: str
    density: str  # colour map that begins near the paper's colour
    lift: float  # how much white is mixed into the colours of the runs

    def run_color(self, position: int) -> tuple[float, ...]:
        """Of the run at ``position`` on this paper."""
        red, green, blue = to_rgb(run_color(position))
        return tuple(color + self.lift * (1 - color) for color in (red, green, blue))


LIGHT = Theme("light", "", "#ffffff", "#1c1c1c", "#666666", "#e6e6e6", "YlGnBu", 0.0)
DARK = Theme("dark", "_dark", "#14171a", "#e8e6e3", "#a3a3a0", "#2d3237", "YlGnBu_r", 0.25)

Draw = Callable[[Figure, Theme], None]


class Figures:
    """Draws into ``folder``, whose PNG files of an earlier report are removed."""

    def __init__(self, folder: Path):
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("*.png"):
            stale.unlink()

    def add(self, name: str, alt: str, draw: Draw, size: tuple[float, float] = WIDE) -> Markup:
        """``name.png`` and ``name_dark.png``, and an element with both, of which the page shows the one that suits.

        Args:
            alt: what the plot says, for those who do not see it.
        """
        light, dark = (self._image(name, alt, draw, size, theme) for theme in (LIGHT, DARK))
        return element("figure", light, dark)  # one picture with two sources would be printed as on the screen

    def _image(self, name: str, alt: str, draw: Draw, size: tuple[float, float], theme: Theme) -> Markup:
        with matplotlib.rc_context(_settings(theme)), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # the name is whole in the page's text
            figure = Figure(size, dpi=DPI, layout="constrained")
            FigureCanvasAgg(figure)
            draw(figure, theme)
            content = io.BytesIO()
            figure.savefig(content, format="png", metadata={"Software": None})
        (self._folder / f"{name}{theme.suffix}.png").write_bytes(content.getvalue())
        width, height = (str(round(96 * inches)) for inches in figure.get_size_inches())  # ``draw`` may have changed it
        source = "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
        return element("img", src=source, alt=alt, width=width, height=height, class_=theme.name)


def _settings(theme: Theme) -> dict[Any, Any]:
    return {
        "text.parse_math": False,  # names are text, also with dollars
        "font.size": 10,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.titlepad": 8,
        "axes.labelsize": 9,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "legend.handlelength": 1.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "axes.axisbelow": True,
        "grid.linewidth": 0.6,
        "lines.linewidth": 1.6,
        "figure.facecolor": theme.paper,
        "savefig.facecolor": theme.paper,
        "axes.facecolor": theme.paper,
        "axes.edgecolor": theme.muted,
        "axes.labelcolor": theme.muted,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "text.color": theme.ink,
        "grid.color": theme.grid,
    }
