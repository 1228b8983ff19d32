"""Panels as a PNG: ours filled, the paper's outlined in the same colour."""

import importlib.util
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fullgnn.bench.papers.result import Bars, Curves
from fullgnn.errors import UnsupportedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL_INCHES = 5.8, 3.2
_PANELS_ACROSS = 2
_GROUP_WIDTH = 0.8  # of the distance of two groups of bars


def check_installed() -> None:
    """Raise ``UnsupportedError`` if matplotlib is missing, before a target measures what could not be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UnsupportedError("figures need matplotlib, which is not installed: pip install '.[report]'")


def draw(panels: Sequence[Bars | Curves], title: str, path: Path) -> None:
    """Write ``panels`` to the PNG ``path``, two in a row."""
    from matplotlib import style
    from matplotlib.figure import Figure

    across = min(_PANELS_ACROSS, len(panels))
    down = -(-len(panels) // across)
    with style.context(Path(__file__).with_name("plot.mplstyle")):
        figure = Figure((_PANEL_INCHES[0] * across, _PANEL_INCHES[1] * down + 0.4))
        figure.suptitle(title)
        grid = figure.subplots(down, across, squeeze=False).flat
        for axes, panel in itertools.zip_longest(grid, panels):
            if panel is None:
                axes.set_axis_off()
                continue
            axes.set(title=panel.title, ylabel=panel.ylabel)
            _bars(axes, panel) if isinstance(panel, Bars) else _curves(axes, panel)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))  # beside the panel
        figure.savefig(path)


def _bars(axes: "Axes", panel: Bars) -> None:
    """Draw groups of bars; each series has one bar of ours and one of the paper's, if it has any values."""
    slots: list[tuple[str, Sequence[float | None], Sequence[float], dict[str, Any]]] = []
    for k, series in enumerate(panel.series):
        outlined = {"facecolor": "none", "edgecolor": f"C{k}", "hatch": "////", "linewidth": 0.8}
        slots.append((series.name, series.values, series.error, {"color": f"C{k}"}))
        slots.append((f"{series.name}, paper", series.paper, [], outlined))
    slots = [slot for slot in slots if any(value is not None for value in slot[1])]
    width = _GROUP_WIDTH / max(1, len(slots))
    for place, (name, values, errors, style) in enumerate(slots):
        drawn = {group: value for group, value in enumerate(values) if value is not None}
        x = [group + (place - (len(slots) - 1) / 2) * width for group in drawn]
        spread = [errors[group] for group in drawn] if errors else None
        axes.bar(x, list(drawn.values()), 0.92 * width, yerr=spread, capsize=2, label=name, **style)
    axes.set_xticks(range(len(panel.groups)), panel.groups)
    if sum(map(len, panel.groups)) > 40:
        axes.tick_params(axis="x", rotation=30)
    axes.grid(axis="y")


def _curves(axes: "Axes", panel: Curves) -> None:
    for curve in panel.curves:
        style, errors = ("--" if curve.dashed else "-") + "o" * bool(curve.error), curve.error or None
        axes.errorbar(curve.x, curve.y, errors, fmt=style, markersize=3, capsize=2, label=curve.name)
    if panel.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(panel.xlabel)
    axes.grid()
