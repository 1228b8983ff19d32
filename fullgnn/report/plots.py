"""Plots of the page: curves, bars and maps, each drawn for light and for dark paper, as files and inside the page."""

import base64
import io
import math
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.style
import numpy as np
from matplotlib import rc_params_from_file, rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fullgnn.reorder.structure import Structure
from fullgnn.report.runs import Run

STYLES = Path(__file__).parent  # folder of the style sheets
LIGHT = rc_params_from_file(STYLES / "light.mplstyle", use_default_template=False)
RUN_COLORS = LIGHT["axes.prop_cycle"].by_key()["color"]
"""Colours of the runs on light paper; C0, C1, ... in a plot."""
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
    "sample": "#77AADD",
    "gather features": "#99DDFF",
    "wait": "#DDDDDD",
    "load": "#BBCC33",
    "forward": "#44BB99",
    "backward": "#AAAA00",
    "update": "#EEDD88",
}
"""Colours of the phases, the collectives and the steps of a batch: the light scheme of Tol (2021), for areas on light
and dark paper."""
BORDER_COLOR = "#D55E00"
DPI = 200
WIDE = (4.6, 3.1)
"""Width and height of bars and curves, in inches. A page of usual width shows an inch as one inch."""
SQUARE = (4.6, 5.0)
"""Width and height of a map, in inches."""
STEPS = [1, 2, 2.5, 5, 10]
"""Steps between ticks, times a power of ten."""
MAX_NAME = 50
"""Characters of a run's name in one line of a plot."""
LEGEND_LINE = 0.2
"""Inches by which a plot grows for each further line of its legend."""


class Plot(NamedTuple):
    """One plot of the page."""

    name: str  # of its files
    title: str
    alt: str  # what the plot says, for those who do not see it
    draw: Callable[..., None]  # takes the axes and the ``data``
    data: Mapping[str, Any]
    size: tuple[float, float] = WIDE  # inches


class Axis(NamedTuple):
    """The words at the axes of bars."""

    labels: Sequence[str]  # one beneath each bar, or each group of bars
    what: str  # what the labels count
    unit: str  # of the bars' heights


def write_images(folder: Path, plot: Plot) -> list[dict[str, str]]:
    """Write ``plot`` to ``folder`` as ``name.png`` and ``name_dark.png``, and return the attributes of two <img>.

    The page shows the image that suits the reader's colour scheme. One <picture> with two sources would be printed as
    it is on the screen, also where that is dark.
    """
    images = []
    for theme, suffix in (("light", ""), ("dark", "_dark")):
        content = io.BytesIO()
        with drawn(plot, theme) as figure:
            figure.savefig(content, format="png", metadata={"Software": None})
        (folder / f"{plot.name}{suffix}.png").write_bytes(content.getvalue())
        width, height = (str(round(96 * inches)) for inches in figure.get_size_inches())  # with its legend
        source = "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
        images.append({"src": source, "alt": plot.alt, "width": width, "height": height, "class": theme})
    return images


@contextmanager
def drawn(plot: Plot, theme: str) -> Iterator[Figure]:
    """A figure with one plot, to be rendered inside the ``with`` block, where the settings of the theme hold.

    A long name of a run in its title has a line of its own.
    """
    with matplotlib.style.context([STYLES / "plots.mplstyle", STYLES / f"{theme}.mplstyle"]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the name is whole in the page's text
        figure = Figure(plot.size, dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        axes, title = figure.add_subplot(), plot.title
        axes.set_title("\n".join(map(_wrapped, title.rsplit(": ", 1))) if len(title) > MAX_NAME else title)
        plot.draw(axes, **plot.data)
        _add_legend(figure, axes)
        yield figure


def curves(axes: Axes, series: Mapping[Run, Mapping[int, float]], in_percent: bool) -> None:
    """Lines over the epochs.

    Args:
        series: the value at each epoch; nan leaves a gap.
        in_percent: the values are shares.
    """
    for above, (run, points) in zip(range(len(series))[::-1], series.items()):
        axes.plot(
            list(points),
            [100 * at if in_percent else at for at in points.values()],
            color=f"C{run.position}",
            linestyle=DASHES[run.position // len(RUN_COLORS) % len(DASHES)],
            linewidth=1.3 + 1.5 * above / len(series),  # curves that agree are seen beneath each other
            marker="o" if len(points) == 1 else None,
            label=_label(run, series),
        )
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=STEPS))
    axes.set(xlabel="epoch", ylabel="%" if in_percent else "")
    axes.grid(axis="y")


def stacked(axes: Axes, axis: Axis, parts: Mapping[str, Sequence[float]], top: float) -> None:
    """A bar for each label, made of parts.

    Args:
        top: end of the axis, the same for plots to compare.
    """
    width, base = _prepare_bars(axes, axis), np.zeros(len(axis.labels))
    for name, values in parts.items():
        color = PART_COLORS.get(name, rcParams["axes.labelcolor"])
        axes.bar(range(len(values)), values, width, base, color=color, label=name)
        base = base + np.asarray(values, float)
    axes.set_ylim(0, 1.05 * top or 1)


def grouped(axes: Axes, axis: Axis, series: Mapping[Run, Sequence[float]]) -> None:
    """Bars of several runs beside each other at each label.

    Args:
        series: a value for each label, or for the first of them.
    """
    width = _prepare_bars(axes, axis)
    if len(series) > 1:
        width = 0.8 / len(series)
    for k, (run, values) in enumerate(series.items()):
        at = np.arange(len(values)) + (k - (len(series) - 1) / 2) * width
        axes.bar(at, values, width, color=f"C{run.position}", label=_label(run, series))
    axes.set_ylim(bottom=0)


def _prepare_bars(axes: Axes, axis: Axis) -> float:
    """Write at most about ten labels, and return the width of a bar: few bars are narrow, or they would be slabs."""
    num_bars = len(axis.labels)
    step = -(-num_bars // 10)
    axes.set_xticks(range(0, num_bars, step), axis.labels[::step])
    axes.set(xlim=(-0.6, num_bars - 0.4), xlabel=axis.what, ylabel=axis.unit)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")
    return 0.8 if num_bars > 8 else 0.1 + 0.06 * num_bars


def density_map(axes: Axes, structure: Structure, density: np.ndarray, limits: tuple[float, float]) -> None:
    """Shares of non-zeros by cell on a logarithmic scale, with the borders of the block rows.

    Args:
        density: (cells, cells); 0 has the colour of the paper.
        limits: ends of the scale, both above 0.
    """
    bounds, parts = structure.cell_bounds, structure.part_bounds
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


def _wrapped(name: str) -> str:
    """A long name in several lines."""
    return textwrap.fill(name, MAX_NAME)


def _label(run: Run, series: Collection[Run]) -> str | None:
    """Name of a run in the legend; a single run needs no legend."""
    return _wrapped(run.name) if len(series) > 1 else None


def _add_legend(figure: Figure, axes: Axes) -> None:
    """A legend below the axes, for which the figure grows."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        longest = max(map(len, labels))
        columns = 1 if longest > 22 else 2 if longest > 12 else 4
        lines = -(-sum(label.count("\n") + 1 for label in labels) // columns)
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + LEGEND_LINE * (lines - 1))
        figure.legend(handles, labels, loc="outside lower left", ncols=columns, columnspacing=1.2)


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
