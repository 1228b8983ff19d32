"""Panels as a PNG: ours filled, the paper's outlined in the same colour."""

import importlib.util
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fullgnn.errors import UnsupportedError
from fullgnn.reproduce.result import Bars, Curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#4477aa", "#ccbb44", "#228833", "#aa3377", "#66ccee", "#ee6677", "#777777", "#222255")
"""Paul Tol's "bright" scheme and two more, which the colour-blind can tell apart."""
_PANEL_INCHES = 5.8, 3.2
_PANELS_ACROSS = 2
_GROUP_WIDTH = 0.8  # of the distance of two groups of bars


def check_installed() -> None:
    """Raise ``UnsupportedError`` if matplotlib is missing, before a target measures what could not be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UnsupportedError("figures need matplotlib, which is not installed: pip install '.[report]'")


def draw(panels: Sequence[Bars | Curves], title: str, path: Path) -> None:
    """Write ``panels`` to the PNG ``path``, two in a row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(_PANELS_ACROSS, len(panels))
    down = -(-len(panels) // across)
    width, height = _PANEL_INCHES
    figure = Figure(figsize=(width * across, height * down + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11)
    grid = list(figure.subplots(down, across, squeeze=False).flat)
    for axes, panel in zip(grid, panels):
        _bars(axes, panel) if isinstance(panel, Bars) else _curves(axes, panel)
        axes.set_title(panel.title, fontsize=9)
        axes.set_ylabel(panel.ylabel, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_axisbelow(True)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))  # beside the panel
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.savefig(path, dpi=150)


def _bars(axes: "Axes", panel: Bars) -> None:
    """Groups of bars; each series has one bar of ours and one of the paper's, if it has any values."""
    slots: list[tuple[str, list[float | None], dict[str, Any]]] = []
    for color, series in zip(itertools.cycle(COLORS), panel.series):
        outlined = {"facecolor": "none", "edgecolor": color, "hatch": "////", "linewidth": 0.8}
        slots += [(series.name, series.values, {"color": color}), (f"{series.name}, paper", series.paper, outlined)]
    slots = [slot for slot in slots if any(value is not None for value in slot[1])]
    width = _GROUP_WIDTH / max(1, len(slots))
    for place, (name, values, style) in enumerate(slots):
        offset = (place - (len(slots) - 1) / 2) * width
        points = {group + offset: value for group, value in enumerate(values) if value is not None}
        axes.bar(list(points), list(points.values()), 0.92 * width, label=name, **style)
    axes.set_xticks(range(len(panel.groups)), panel.groups)
    if sum(map(len, panel.groups)) > 40:
        axes.tick_params(axis="x", rotation=30)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)


def _curves(axes: "Axes", panel: Curves) -> None:
    for color, curve in zip(itertools.cycle(COLORS), panel.curves):
        axes.plot(curve.x, curve.y, "--" if curve.dashed else "-", color=color, linewidth=1.2, label=curve.name)
    axes.set_xlabel(panel.xlabel, fontsize=8)
    axes.grid(color="#dddddd", linewidth=0.6)
