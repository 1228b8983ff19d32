"""Maps of the page: where the non-zeros are, by cell and by block."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.ticker import MaxNLocator

from fullgnn.report.plots import STEPS

SQUARE = (4.6, 5.0)
"""Width and height of a map, in inches."""
BORDER_COLOR = "#D55E00"


def density_map(
    axes: Axes, bounds: np.ndarray, density: np.ndarray, limits: tuple[float, float], parts: np.ndarray
) -> None:
    """Shares of non-zeros by cell on a logarithmic scale, with the borders of the block rows.

    Args:
        bounds: (cells + 1,) nodes at which the cells begin.
        density: (cells, cells); 0 has the colour of the paper.
        limits: ends of the scale, both above 0.
        parts: (b + 1,) nodes at which the block rows begin; of a matrix that is not cut, its two ends.
    """
    mesh = axes.pcolormesh(bounds, bounds, np.ma.masked_equal(density, 0), norm=LogNorm(*limits))
    for bound in parts[1:-1]:
        for draw_line in (axes.axhline, axes.axvline):
            draw_line(bound, color=BORDER_COLOR, linewidth=min(0.9, 8 / len(parts)))
    _square(axes, int(bounds[-1]))
    axes.set(xlabel="column", ylabel="row")
    ticks = _logarithmic_ticks(*limits)
    _add_scale(axes, mesh, ticks, lambda share, _: f"{100 * share:.3g} %", "stored share of a cell")


def block_map(axes: Axes, nnz: np.ndarray) -> None:
    """Counts by block, of which the numbers are in the blocks while there is room.

    Args:
        nnz: (parts, parts) integers.
    """
    num_parts, norm = len(nnz), Normalize(0, max(int(nnz.max(initial=0)), 1))
    density = matplotlib.colormaps[rcParams["image.cmap"]]
    soft = ListedColormap(density(np.linspace(0, 0.75, 256)))  # the areas are few and large
    mesh = axes.pcolormesh(nnz, cmap=soft, norm=norm, edgecolors=rcParams["axes.facecolor"], linewidth=1)
    if num_parts <= 6:
        for (row, column), count in np.ndenumerate(nnz):
            ink = "#1c1c1c" if _luminance(soft(norm(count))) > 0.4 else "#ffffff"
            axes.text(column + 0.5, row + 0.5, _si(count), ha="center", va="center", color=ink, fontsize=9)
    _square(axes, num_parts)
    marks = np.unique(np.linspace(0, num_parts - 1, min(num_parts, 8)).astype(int))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(marks + 0.5, [str(mark) for mark in marks])
    axes.tick_params(length=0)
    axes.set(xlabel="block column", ylabel="block row")
    ticks = MaxNLocator(4, steps=STEPS).tick_values(*mesh.get_clim())
    _add_scale(axes, mesh, ticks, lambda count, _: _si(count), "non-zeros")


def _square(axes: Axes, size: int) -> None:
    """Axes of a map, with row 0 at the top."""
    axes.set(aspect="equal", xlim=(0, size), ylim=(size, 0))
    axes.spines[:].set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, integer=True, steps=STEPS))
        axis.set_major_formatter(lambda node, _: _si(node))


def _add_scale(axes: Axes, mesh: Any, ticks: Sequence[float], show: Callable[[float, float], str], label: str) -> None:
    """The colour scale, below a map."""
    low, high = mesh.get_clim()
    bar = axes.figure.colorbar(mesh, ax=axes, location="bottom", shrink=0.7, aspect=35, pad=0.03, label=label)
    bar.set_ticks([tick for tick in ticks if low <= tick <= high])
    bar.ax.xaxis.set_major_formatter(show)
    bar.ax.minorticks_off()
    bar.ax.tick_params(length=2)
    bar.ax.spines[:].set_visible(False)


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    """About four round numbers between ``low`` and ``high``."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        rounds = (digit * 10.0**exponent for exponent in exponents for digit in digits)
        ticks = [tick for tick in rounds if low <= tick <= high]
        if len(ticks) >= 3:
            break
    return ticks[:: -(-len(ticks) // 4)]


def _si(count: float) -> str:
    """``12.3 k``, three digits."""
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(count) >= factor:
            return f"{count / factor:.3g}{unit}"
    return f"{count:.3g}"


def _luminance(color: tuple[float, ...]) -> float:
    """Relative luminance of an sRGB colour, by the definition of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
