"""The sizes of the plots, and their colours on light and on dark paper; fonts and lines are in plots.mplstyle."""

from typing import Any

from cycler import cycler
from matplotlib.colors import to_rgb

RUN_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of the runs (Okabe and Ito, 2008), distinct for all kinds of colour vision. The seventh run has the first."""
DASHES = ("solid", "dashed", "dotted", "dashdot")
"""Line styles, which distinguish runs of the same colour."""
PART_COLORS = {
    "SpMM": "#77AADD",
    "communication": "#EE8866",
    "dense": "#44BB99",
    "other": "#AAAAAA",
    "exchange": "#99DDFF",
    "broadcast": "#BBCC33",
    "gather": "#FFAABB",
    "reduce_scatter": "#EEDD88",
    "all_reduce": "#AAAA00",
}
"""Colours of the phases and the collectives: the light scheme of Tol (2021), for areas on light and dark paper."""
BORDER_COLOR = "#D55E00"
DPI = 200
WIDE = (4.6, 3.1)
"""Width and height of bars and curves, in inches. A page of usual width shows an inch as one inch."""
SQUARE = (4.6, 5.0)
"""Width and height of a map, in inches."""


def _theme(paper: str, ink: str, muted: str, grid: str, density: str, lift: float) -> dict[str, Any]:
    """Colours as matplotlib's rcParams.

    Args:
        density: colour map that begins near the colour of the paper.
        lift: share of white that is mixed into the colours of the runs, which are C0, C1, ... in a plot.
    """
    lifted = [tuple(color + lift * (1 - color) for color in to_rgb(name)) for name in RUN_COLORS]
    papers = ("figure.facecolor", "savefig.facecolor", "axes.facecolor")
    frames = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings = {"text.color": ink, "grid.color": grid, "image.cmap": density, "axes.prop_cycle": cycler(color=lifted)}
    return settings | dict.fromkeys(papers, paper) | dict.fromkeys(frames, muted)


THEMES = {
    "light": _theme("#ffffff", "#1c1c1c", "#666666", "#e6e6e6", "YlGnBu", 0.0),
    "dark": _theme("#14171a", "#e8e6e3", "#a3a3a0", "#2d3237", "YlGnBu_r", 0.25),
}
"""The reader's colour schemes: classes of the images in the page's style, and the settings of their plots."""
