"""Plots of the page, each drawn for light and for dark paper, as a file and inside the page: lines, bars and maps."""

import base64
import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps, rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator
from PIL import Image

from fullgnn.report.content import unit
from fullgnn.report.replicates import std
from fullgnn.report.runs import ShownRun

RUN_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of the runs on light paper, C0, C1, ... in a plot: those of Okabe and Ito (2008), which are distinct for all
kinds of colour vision. The seventh run has the first colour again."""
DARK_RUN_COLORS = ("#4095C5", "#E08640", "#40B696", "#D99BBD", "#ECB740", "#80C7EF")
"""The same colours, with a quarter of white, for dark paper."""
DASHES = ("solid", "dashed", "dotted", "dashdot")
"""Line styles, which distinguish runs of the same colour."""
LIGHT = ("#77AADD", "#EE8866", "#44BB99", "#99DDFF", "#BBCC33", "#EEDD88", "#AAAA00", "#AAAAAA", "#FFAABB", "#DDDDDD")
"""The light scheme of Tol (2021), which is for areas on light and dark paper."""
PARTS = "SpMM communication dense exchange broadcast reduce_scatter all_reduce other gather wait".split()
STEPS = ("sample", "choose rows to keep", "forward", "gather features", "load", "update", "backward")
PART_COLORS = dict(zip(PARTS, LIGHT)) | dict(zip(STEPS, LIGHT))
"""The colours of phases and collectives, and of the steps of a batch, which share no plot with them."""
DPI = 200
SIZE = (4.6, 3.1)
"""Width and height of bars and curves, in inches. A page of usual width shows an inch as one inch."""
MAX_NAME = 50
"""Characters of a run's name in one line of a plot."""
wrapped = partial(textwrap.fill, width=MAX_NAME)
"""A long name in several lines."""
WHISKERS: dict[str, Any] = {"capsize": 2.5, "elinewidth": 1}
Series = Mapping[str, tuple[int, Any]]
"""What a plot shows of each run, by its text in the legend, which is empty where there is no legend: the position of
the run, which decides its colour, and its values."""
Parts = Mapping[str, Sequence[float]]


def _theme(paper: str, ink: str, muted: str, grid: str, densities: str, run_colors: Sequence[str]) -> dict[Any, Any]:
    """Fonts, lines and colours of plots on one paper, as matplotlib's settings. A colour map of ``densities`` begins
    near the colour of the paper."""
    return {
        "text.parse_math": False,  # a name with dollars is text
        **dict.fromkeys(("font.size", "axes.titlesize"), 10),
        **dict.fromkeys(("axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 9),
        **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width", "grid.linewidth"), 0.6),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
        **{"axes.titlelocation": "left", "axes.titlepad": 8, "legend.handlelength": 1.5, "lines.linewidth": 1.6},
        **dict.fromkeys(("figure.facecolor", "savefig.facecolor", "axes.facecolor"), paper),
        **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), muted),
        **{"text.color": ink, "grid.color": grid, "image.cmap": densities, "axes.axisbelow": True},
        "axes.prop_cycle": f"cycler(color={list(run_colors)})",
    }


THEMES = {
    "light": _theme("#ffffff", "#1c1c1c", "#666666", "#e6e6e6", "YlGnBu", RUN_COLORS),
    "dark": _theme("#14171a", "#e8e6e3", "#a3a3a0", "#2d3237", "YlGnBu_r", DARK_RUN_COLORS),
}


class Plot(NamedTuple):
    """One plot of the page."""

    name: str  # of its files
    title: str
    alt: str  # what the plot says, for those who do not see it
    draw: Callable[..., None]  # takes the axes, and the ``data``
    data: tuple[Any, ...]


def write_images(folder: Path, plot: Plot) -> list[dict[str, str]]:
    """Write ``plot`` to ``folder`` as ``name.png`` and ``name_dark.png``, and return the attributes of two <img>.

    The page shows the image that suits the reader's colour scheme. One <picture> with two sources would be printed as
    it is on the screen, also where that is dark.
    """
    images = []
    for theme, suffix in (("light", ""), ("dark", "_dark")):
        with drawn(plot, theme) as figure:
            content = _png(figure)
        (folder / f"{plot.name}{suffix}.png").write_bytes(content)
        width, height = (str(round(96 * inches)) for inches in figure.get_size_inches())  # with its legend
        source = "data:image/png;base64," + base64.b64encode(content).decode()
        images.append({"src": source, "alt": plot.alt, "width": width, "height": height, "class": theme})
    return images


def _png(figure: Figure) -> bytes:
    """The figure as a PNG file with a palette, which takes about a third of the bytes of one with full colours."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # once, while savefig lays the figure out and draws it twice
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    # 64 colours: a few, their shades at the edges of lines, and those of a map
    image = image.quantize(64, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    file = io.BytesIO()
    image.save(file, "png", optimize=True, dpi=(DPI, DPI))
    return file.getvalue()


@contextmanager
def drawn(plot: Plot, theme: str) -> Iterator[Figure]:
    """A figure with one plot, to be rendered inside the ``with`` block, where the settings of the theme hold.

    A long name of a run in its title has a line of its own.
    """
    with rc_context(THEMES[theme]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the name is whole in the page's text
        figure = Figure(SIZE, dpi=DPI, layout="constrained")
        axes, title = figure.add_subplot(), plot.title
        axes.set_title("\n".join(map(wrapped, title.rsplit(": ", 1))) if len(title) > MAX_NAME else title)
        plot.draw(axes, *plot.data)
        _add_legend(figure, axes)
        yield figure


def curves(axes: Axes, series: Series, in_percent: bool) -> None:
    """Lines over the epochs. A line of means has a band of one standard deviation above and below it.

    Args:
        series: the value at each epoch; nan leaves a gap.
        in_percent: the values are shares.
    """
    factor = 100 if in_percent else 1
    for k, (label, (position, points)) in enumerate(series.items()):
        epochs, line = list(points), factor * np.array([*points.values()], float)
        around = factor * np.array([*map(std, points.values())])
        color, marker = f"C{position}", "o" if len(points) == 1 else None
        width = 1.3 + 1.5 * (len(series) - 1 - k) / len(series)  # curves that are close are seen beneath each other
        looks: dict[str, Any] = {"linestyle": _dashes(position), "linewidth": width, "marker": marker}
        axes.plot(epochs, line, color=color, label=label, **looks)
        if any(around):
            axes.fill_between(epochs, line - around, line + around, color=color, alpha=0.2, linewidth=0)
    axes.locator_params(nbins=5)
    axes.locator_params("x", integer=True)
    axes.set(xlabel="epoch", ylabel="%" if in_percent else "")
    axes.grid(axis="y")


def speed_up(axes: Axes, series: Mapping[str, Mapping[int, tuple[float, float, float]]]) -> None:
    """Lines of the speed-up against the number of ranks, both on logarithmic scales, beside the ideal one.

    Args:
        series: by name; for each number of ranks the speed-up and the ends of a whisker.
    """
    counts = sorted({count for points in series.values() for count in points})
    ends = np.array([counts[0], counts[-1]])
    axes.loglog(ends, ends / ends[0], base=2, color=rcParams["axes.edgecolor"], dashes=(4, 3), lw=1, label="ideal")
    for k, (name, points) in enumerate(series.items()):
        middle, low, high = np.transpose([points[count] for count in sorted(points)])
        looks: dict[str, Any] = {"color": f"C{k}", "linestyle": _dashes(k), "marker": "o", "markersize": 4, **WHISKERS}
        axes.errorbar(sorted(points), middle, yerr=[middle - low, high - middle], label=name, **looks)
    axes.set(xticks=counts, xticklabels=counts, xlabel="ranks, p", ylabel="speed-up")
    axes.yaxis.set_major_formatter(lambda factor, _: f"{factor:.3g}")
    axes.minorticks_off()
    axes.grid(axis="y")


def by_run(axes: Axes, runs: Sequence[ShownRun], parts: Parts, unit_name: str, ranges: Sequence[Any] = ()) -> None:
    """A horizontal bar for each run, the first one at the top, with the names of the runs at their left.

    Args:
        parts: the lengths of each part; one part has the colours of the runs, several have their own.
        ranges: for each run the ends of a whisker; empty: there are none.
    """
    names = ["\n".join(textwrap.wrap(run.label, MAX_NAME // 2, max_lines=3, placeholder=" …")) for run in runs]
    axes.figure.set(figheight=0.9 + 0.3 * len(runs) + 0.16 * sum(name.count("\n") for name in names))
    places, colors = np.arange(len(runs)), [f"C{run.position}" for run in runs]
    ends = _stack(axes.barh, places, parts, 0.62, colors if len(parts) == 1 else None)
    if ranges:
        whiskers = np.abs(np.transpose(ranges) - ends)
        axes.errorbar(ends, places, xerr=whiskers, fmt="none", ecolor=rcParams["text.color"], **WHISKERS)
    axes.set(yticks=places, yticklabels=names, ylim=(len(runs) - 0.4, -0.6), xlim=(0, None), xlabel=unit_name)
    axes.locator_params("x", nbins=4)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def stacked(axes: Axes, bars: Sequence[str], what: str, unit_name: str, parts: Parts, top: float) -> None:
    """A bar for each of the names in ``bars``, made of parts.

    Args:
        what: what the names count.
        top: end of the axis, the same for plots to compare.
    """
    _stack(axes.bar, np.arange(len(bars)), parts, _prepare_bars(axes, bars, what, unit_name))
    axes.set_ylim(0, 1.05 * top or 1)


def grouped(axes: Axes, bars: Sequence[str], what: str, unit_name: str, series: Series) -> None:
    """Bars of several runs beside each other at each of the names in ``bars``.

    Args:
        what: what the names count.
        series: a value for each name, or for the first of them.
    """
    alone = _prepare_bars(axes, bars, what, unit_name)
    width = 0.8 / len(series) if len(series) > 1 else alone
    for k, (label, (position, values)) in enumerate(series.items()):
        places = np.arange(len(values)) + (k - (len(series) - 1) / 2) * width
        axes.bar(places, values, width, color=f"C{position}", label=label)
    axes.set_ylim(bottom=0)


def _stack(
    draw: Callable[..., object], places: np.ndarray, parts: Parts, width: float, colors: Sequence[str] | None = None
) -> np.ndarray:
    """Draw bars whose ``parts`` follow each other, and return where they end.

    Args:
        draw: of upright bars or of horizontal ones.
        colors: of the bars; without them each part has its own, and a line of the legend.
    """
    ends = np.zeros(len(places))
    for name, lengths in parts.items():
        color = colors or PART_COLORS.get(name, rcParams["axes.labelcolor"])
        draw(places, lengths, width, ends, color=color, label=None if colors else name)
        ends = ends + np.asarray(lengths, float)
    return ends


def _prepare_bars(axes: Axes, bars: Sequence[str], what: str, unit_name: str) -> float:
    """Write at most about ten names, and return the width of a bar: few bars are narrow, or they would be slabs."""
    count, step = len(bars), -(-len(bars) // 10)
    axes.set_xticks(range(0, count, step), bars[::step])
    axes.set(xlim=(-0.6, count - 0.4), xlabel=what, ylabel=unit_name)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")
    return 0.8 if count > 8 else 0.1 + 0.06 * count


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
            draw_line(bound, color="#D55E00", linewidth=min(0.9, 8 / len(parts)))
    _square(axes, int(bounds[-1]), "column", "row")
    ticks = _logarithmic_ticks(*limits)
    _add_scale(axes, mesh, lambda share, _: f"{100 * share:.3g} %", ticks=ticks, label="stored share of a cell")


def block_map(axes: Axes, nnz: np.ndarray) -> None:
    """Counts by block, of which the numbers are in the blocks while there is room.

    Args:
        nnz: (parts, parts) integers.
    """
    num_parts, norm = len(nnz), Normalize(0, max(int(nnz.max(initial=0)), 1))
    soft = ListedColormap(colormaps[rcParams["image.cmap"]](np.linspace(0, 0.75, 256)))  # the areas are few and large
    mesh = axes.pcolormesh(nnz, cmap=soft, norm=norm, edgecolors=rcParams["axes.facecolor"], linewidth=1)
    if num_parts <= 6:
        for (row, column), count in np.ndenumerate(nnz):
            brightness = np.dot(soft(norm(count))[:3], (0.2126, 0.7152, 0.0722))  # by Rec. 709
            ink = "#1c1c1c" if brightness > 0.635 else "#ffffff"
            axes.text(column + 0.5, row + 0.5, _si(count), ha="center", va="center", color=ink, fontsize=9)
    _square(axes, num_parts, "block column", "block row")
    marks = np.unique(np.linspace(0, num_parts - 1, min(num_parts, 8)).astype(int))
    axes.set(xticks=marks + 0.5, xticklabels=marks, yticks=marks + 0.5, yticklabels=marks)
    axes.tick_params(length=0)
    ticks = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
    _add_scale(axes, mesh, lambda count, _: _si(count), ticks=ticks, label="non-zeros")


def _square(axes: Axes, size: int, xlabel: str, ylabel: str) -> None:
    """Axes of a map, with row 0 at the top."""
    axes.figure.set(figheight=5.0)  # with its scale
    axes.set(aspect="equal", xlim=(0, size), ylim=(size, 0), xlabel=xlabel, ylabel=ylabel)
    axes.spines[:].set_visible(False)
    axes.locator_params(nbins=4, integer=True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda node, _: _si(node))


def _add_scale(axes: Axes, mesh: Any, show: Callable[[float, float], str], **ticks_and_label: Any) -> None:
    """The colour scale, below a map."""
    bar = axes.figure.colorbar(mesh, ax=axes, location="bottom", shrink=0.7, aspect=35, pad=0.03, **ticks_and_label)
    bar.ax.xaxis.set_major_formatter(show)
    bar.ax.minorticks_off()
    bar.ax.tick_params(length=2)
    bar.ax.spines[:].set_visible(False)


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    """About four round numbers between ``low`` and ``high``."""
    for digits in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        ticks = [tick for tick in LogLocator(subs=digits).tick_values(low, high) if low <= tick <= high]
        if len(ticks) >= 3:
            break
    return ticks[:: -(-len(ticks) // 4)]


def _si(count: float) -> str:
    """``12.3 k``, three digits."""
    divisor, name = unit(abs(count), ("", " k", " M", " G"))
    return f"{count / divisor:.3g}{name}"


def _dashes(position: int) -> str:
    return DASHES[position // len(RUN_COLORS) % len(DASHES)]


def _add_legend(figure: Figure, axes: Axes) -> None:
    """A legend below the axes, for which the figure grows. A long name has several lines."""
    handles, names = axes.get_legend_handles_labels()
    if handles:
        labels = [wrapped(name) for name in names]
        longest = max(map(len, labels))
        columns = 1 if longest > 24 else 2 if longest > 12 else 4
        lines = -(-sum(label.count("\n") + 1 for label in labels) // columns)
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.2 * (lines - 1))
        figure.legend(handles, labels, loc="outside lower left", ncols=columns, columnspacing=1.2)
