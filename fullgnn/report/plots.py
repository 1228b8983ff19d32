"""What is drawn in a report: curves, bars and maps. Each function returns what draws one of them."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fullgnn.report.figures import RUN_COLORS, Draw, Theme

DASHES = ("solid", "dashed", "dotted", "dashdot")
"""Of runs that share a colour."""
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
"""Phases and collectives: the light scheme of Tol (2021), for fills on either background."""
STEPS = [1, 2, 2.5, 5, 10]
"""Between ticks, times a power of ten."""
BORDER_COLOR = "#D55E00"
MAX_NAME = 50
"""Characters of a run's name in one line of a plot."""
LEGEND_LINE = 0.2
"""Inches by which a plot grows for a line of its legend."""


def wrapped(name: str) -> str:
    """A long name in several lines."""
    return textwrap.fill(name, MAX_NAME)


def curves(title: str, series: Mapping[int, tuple[str, Mapping[int, float]]], in_percent: bool) -> Draw:
    """Lines over the epochs.

    Args:
        series: by the position of the run on the page: its name, and the values by epoch; nan leaves a gap.
    """

    def draw(figure: Figure, theme: Theme) -> None:
        axes = _axes(figure, title)
        for above, (position, (name, points)) in zip(range(len(series))[::-1], series.items()):
            axes.plot(
                list(points),
                [100 * at if in_percent else at for at in points.values()],
                color=theme.run_color(position),
                linestyle=DASHES[position // len(RUN_COLORS) % len(DASHES)],
                linewidth=1.3 + 1.5 * above / len(series),  # curves that agree are seen beneath each other
                marker="o" if len(points) == 1 else None,
                label=wrapped(name),
            )
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
        axes.set_ylabel("%" if in_percent else "")
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=STEPS))
        axes.grid(axis="y")
        _legend(figure, axes, len(series) > 1)

    return draw


def stacked(
    title: str, labels: Sequence[str], parts: Mapping[str, Sequence[float]], unit: str, of: str, top: float
) -> Draw:
    """A bar for each label, made of parts.

    Args:
        of: what the labels count.
        top: end of the axis, the same for plots to compare.
    """

    def draw(figure: Figure, theme: Theme) -> None:
        axes, base = _axes(figure, title), np.zeros(len(labels))
        for name, values in parts.items():
            color = PART_COLORS.get(name, theme.muted)
            axes.bar(range(len(labels)), values, _width(len(labels)), base, color=color, label=name)
            base = base + np.asarray(values, float)
        _label_bars(axes, labels, of)
        axes.set_ylabel(unit)
        axes.set_ylim(0, 1.05 * top or 1)
        _legend(figure, axes, True)

    return draw


def grouped(
    title: str, labels: Sequence[str], series: Mapping[int, tuple[str, Sequence[float]]], unit: str, of: str
) -> Draw:
    """Bars of several runs beside each other at each label; ``series`` as in ``curves``."""

    def draw(figure: Figure, theme: Theme) -> None:
        axes = _axes(figure, title)
        width = 0.8 / max(len(series), 1) if len(series) > 1 else _width(len(labels))
        for k, (position, (name, values)) in enumerate(series.items()):
            at = np.arange(len(values)) + (k - (len(series) - 1) / 2) * width
            axes.bar(at, values, width, color=theme.run_color(position), label=wrapped(name))
        _label_bars(axes, labels, of)
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)
        _legend(figure, axes, len(series) > 1)

    return draw


def density_map(
    title: str, cell_bounds: np.ndarray, density: np.ndarray, limits: tuple[float, float], part_bounds: np.ndarray
) -> Draw:
    """Shares of non-zeros by cell on a logarithmic scale, the borders of the block rows drawn.

    Args:
        density: (cells, cells); 0 has the colour of the paper.
        limits: of the scale, both above 0.
    """

    def draw(figure: Figure, theme: Theme) -> None:
        axes = _axes(figure, title)
        shown = np.ma.masked_equal(density, 0)
        mesh = axes.pcolormesh(cell_bounds, cell_bounds, shown, cmap=theme.density, norm=LogNorm(*limits))
        width = min(0.9, 8 / len(part_bounds))
        for bound in part_bounds[1:-1]:
            axes.axhline(bound, color=BORDER_COLOR, linewidth=width)
            axes.axvline(bound, color=BORDER_COLOR, linewidth=width)
        _square(axes, int(cell_bounds[-1]))
        axes.set_xlabel("column")
        axes.set_ylabel("row")
        _scale(figure, axes, mesh, lambda share, _: f"{100 * share:.3g} %", "stored share of a cell")

    return draw


def block_map(title: str, nnz: np.ndarray) -> Draw:
    """(b, b) counts; the numbers stand in the blocks while there is room."""

    def draw(figure: Figure, theme: Theme) -> None:
        axes, num_parts = _axes(figure, title), len(nnz)
        norm = Normalize(0, max(int(nnz.max(initial=0)), 1))
        mesh = axes.pcolormesh(nnz, cmap=_soft(theme.density), norm=norm, edgecolors=theme.paper, linewidth=1)
        if num_parts <= 6:
            for (row, column), count in np.ndenumerate(nnz):
                light = _luminance(mesh.cmap(norm(count))) > 0.4
                ink = "#1c1c1c" if light else "#ffffff"
                axes.text(column + 0.5, row + 0.5, _si(count), ha="center", va="center", color=ink, fontsize=9)
        _square(axes, num_parts)
        marks = np.unique(np.linspace(0, num_parts - 1, min(num_parts, 8)).astype(int))
        axes.set_xticks(marks + 0.5, [str(mark) for mark in marks])
        axes.set_yticks(marks + 0.5, [str(mark) for mark in marks])
        axes.tick_params(length=0)
        axes.set_xlabel("block column")
        axes.set_ylabel("block row")
        _scale(figure, axes, mesh, lambda count, _: _si(count), "non-zeros")

    return draw


def _axes(figure: Figure, title: str) -> Axes:
    """Axes under ``title``, in which a long name of a run has a line of its own."""
    axes = figure.add_subplot()
    axes.set_title("\n".join(map(wrapped, title.rsplit(": ", 1))) if len(title) > MAX_NAME else title)
    return axes


def _legend(figure: Figure, axes: Axes, wanted: bool) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if wanted and handles:
        columns = 1 if max(map(len, labels)) > 22 else 2 if max(map(len, labels)) > 12 else 4
        lines = -(-sum(label.count("\n") + 1 for label in labels) // columns)
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + LEGEND_LINE * (lines - 1))
        figure.legend(handles, labels, loc="outside lower left", ncols=columns, columnspacing=1.2)


def _width(count: int) -> float:
    """Of a bar: few bars are no slabs."""
    return 0.8 if count > 8 else 0.1 + 0.06 * count


def _label_bars(axes: Axes, labels: Sequence[str], of: str) -> None:
    """At most about ten labels; a margin keeps few bars from the edges."""
    step = -(-len(labels) // 10)
    axes.set_xticks(range(0, len(labels), step), labels[::step])
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel(of)
    axes.grid(axis="y")


def _square(axes: Axes, size: int) -> None:
    axes.set_aspect("equal")
    axes.set_xlim(0, size)
    axes.set_ylim(size, 0)  # row 0 at the top
    axes.spines[:].set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, integer=True, steps=STEPS))
        axis.set_major_formatter(lambda node, _: _si(node))


def _scale(figure: Figure, axes: Axes, mesh: Any, show: Callable[[float, float], str], label: str) -> None:
    """The colour scale, below a map."""
    bar = figure.colorbar(mesh, ax=axes, location="bottom", shrink=0.7, aspect=35, pad=0.03)
    logarithmic, (low, high) = isinstance(mesh.norm, LogNorm), mesh.get_clim()
    ticks = _logarithmic_ticks(low, high) if logarithmic else MaxNLocator(4, steps=STEPS).tick_values(low, high)
    bar.set_ticks([tick for tick in ticks if low <= tick <= high])
    bar.ax.xaxis.set_major_formatter(show)
    bar.ax.minorticks_off()
    bar.ax.tick_params(length=2)
    bar.ax.spines[:].set_visible(False)
    bar.set_label(label)


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    """About four round numbers between ``low`` and ``high``."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10))):
        ticks = [digit * 10.0**exponent for exponent in exponents for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 3:
            break
    return ticks[:: -(-len(ticks) // 4)]


def _soft(name: str) -> Colormap:
    """A colour map without its strongest quarter, for few and large areas."""
    return ListedColormap(matplotlib.colormaps[name](np.linspace(0, 0.75, 256)))


def _si(count: float) -> str:
    """``12.3 k``, three digits."""
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(count) >= factor:
            return f"{count / factor:.3g}{unit}"
    return f"{count:.3g}"


def _luminance(color: tuple[float, ...]) -> float:
    """Relative luminance of sRGB, by the definition of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
