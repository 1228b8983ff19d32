"""Plots of the page, each drawn for light and for dark paper, as a file and inside the page: curves and bars.

``maps.py`` draws the maps.
"""

import base64
import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.style
import numpy as np
from matplotlib import rc_params_from_file, rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from fullgnn.report.runs import Run
from fullgnn.report.spread import std

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
    "choose rows to keep": "#EE8866",
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
DPI = 200
NUM_COLORS = 64
"""Colours of the palette of a plot: a few, their shades at the edges of lines, and those of a map."""
WIDE = (4.6, 3.1)
"""Width and height of bars and curves, in inches. A page of usual width shows an inch as one inch."""
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
    image = image.quantize(NUM_COLORS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    file = io.BytesIO()
    image.save(file, "png", optimize=True, dpi=(DPI, DPI))
    return file.getvalue()


@contextmanager
def drawn(plot: Plot, theme: str) -> Iterator[Figure]:
    """A figure with one plot, to be rendered inside the ``with`` block, where the settings of the theme hold.

    A long name of a run in its title has a line of its own.
    """
    with matplotlib.style.context([STYLES / "plots.mplstyle", STYLES / f"{theme}.mplstyle"]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the name is whole in the page's text
        figure = Figure(plot.size, dpi=DPI, layout="constrained")
        axes, title = figure.add_subplot(), plot.title
        axes.set_title("\n".join(map(_wrapped, title.rsplit(": ", 1))) if len(title) > MAX_NAME else title)
        plot.draw(axes, **plot.data)
        _add_legend(figure, axes)
        yield figure


def curves(axes: Axes, series: Mapping[Run, Mapping[int, float]], in_percent: bool, labels: Mapping[Run, str]) -> None:
    """Lines over the epochs. A line of means has a band of one standard deviation above and below it.

    Args:
        series: the value at each epoch; nan leaves a gap.
        in_percent: the values are shares.
        labels: texts of the legend; empty: there is no legend.
    """
    factor = 100 if in_percent else 1
    for above, (run, points) in zip(range(len(series))[::-1], series.items()):
        epochs, line = list(points), [factor * at for at in points.values()]
        around = [factor * std(at) for at in points.values()]
        axes.plot(
            epochs,
            line,
            color=f"C{run.position}",
            linestyle=_dashes(run.position),
            linewidth=1.3 + 1.5 * above / len(series),  # curves that are close are seen beneath each other
            marker="o" if len(points) == 1 else None,
            label=_wrapped(labels[run]) if run in labels else None,
        )
        if any(around):
            low, high = np.subtract(line, around), np.add(line, around)
            axes.fill_between(epochs, low, high, color=f"C{run.position}", alpha=0.2, linewidth=0)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=STEPS))
    axes.set(xlabel="epoch", ylabel="%" if in_percent else "")
    axes.grid(axis="y")


def by_run(
    axes: Axes,
    runs: Sequence[Run],
    parts: Mapping[str, Sequence[float]],
    unit: str,
    ranges: Sequence[tuple[float, float]] = (),
) -> None:
    """A horizontal bar for each run, the first one at the top, with the names of the runs at their left.

    Args:
        parts: the lengths of each part; one part has the colours of the runs, several have their own.
        ranges: for each run the ends of a whisker; empty: there are none.
    """
    places, base = np.arange(len(runs)), np.zeros(len(runs))
    for name, values in parts.items():
        color = [f"C{run.position}" for run in runs] if len(parts) == 1 else _color_of_part(name)
        axes.barh(places, values, 0.62, base, color=color, label=name if len(parts) > 1 else None)
        base = base + np.asarray(values, float)
    if ranges:
        whiskers = np.abs(np.transpose(ranges) - base)
        axes.errorbar(base, places, xerr=whiskers, fmt="none", ecolor=rcParams["text.color"], capsize=2.5, elinewidth=1)
    axes.set_yticks(places, [_shortened(run.label) for run in runs])
    axes.set(ylim=(len(runs) - 0.4, -0.6), xlabel=unit)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def plot_by_run(
    name: str,
    title: str,
    alt: str,
    runs: Sequence[Run],
    parts: Mapping[str, Sequence[float]],
    unit: str,
    ranges: Sequence[tuple[float, float]] = (),
) -> Plot:
    """``by_run`` as a plot, whose height is that of its bars and their names."""
    lines = sum(_shortened(run.label).count("\n") for run in runs)
    data = {"runs": runs, "parts": parts, "unit": unit, "ranges": ranges}
    return Plot(name, title, alt, by_run, data, (WIDE[0], 0.9 + 0.3 * len(runs) + 0.16 * lines))


def speed_up(axes: Axes, series: Mapping[str, Mapping[int, tuple[float, float, float]]]) -> None:
    """Lines of the speed-up against the number of ranks, both on logarithmic scales, beside the ideal one.

    Args:
        series: by name; for each number of ranks the speed-up and the ends of a whisker.
    """
    counts = sorted({count for points in series.values() for count in points})
    axes.plot(
        [counts[0], counts[-1]], [1, counts[-1] / counts[0]], color=rcParams["axes.edgecolor"], dashes=(4, 3),
        linewidth=1, label="ideal",
    )  # fmt: skip
    for k, (name, points) in enumerate(series.items()):
        middle, low, high = np.transpose([points[count] for count in sorted(points)])
        whiskers = [middle - low, high - middle]
        axes.errorbar(
            sorted(points), middle, yerr=whiskers, color=f"C{k}", linestyle=_dashes(k), marker="o", markersize=4,
            capsize=2.5, elinewidth=1, label=_wrapped(name),
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(counts, list(map(str, counts)))
    axes.yaxis.set_major_formatter(lambda factor, _: f"{factor:.3g}")
    axes.minorticks_off()
    axes.set(xlabel="ranks, p", ylabel="speed-up")
    axes.grid(axis="y")


def stacked(axes: Axes, axis: Axis, parts: Mapping[str, Sequence[float]], top: float) -> None:
    """A bar for each label, made of parts.

    Args:
        top: end of the axis, the same for plots to compare.
    """
    width, base = _prepare_bars(axes, axis), np.zeros(len(axis.labels))
    for name, values in parts.items():
        axes.bar(range(len(values)), values, width, base, color=_color_of_part(name), label=name)
        base = base + np.asarray(values, float)
    axes.set_ylim(0, 1.05 * top or 1)


def grouped(axes: Axes, axis: Axis, series: Mapping[Run, Sequence[float]], labels: Mapping[Run, str]) -> None:
    """Bars of several runs beside each other at each label.

    Args:
        series: a value for each label, or for the first of them.
        labels: texts of the legend; empty: there is no legend.
    """
    width = _prepare_bars(axes, axis)
    if len(series) > 1:
        width = 0.8 / len(series)
    for k, (run, values) in enumerate(series.items()):
        at = np.arange(len(values)) + (k - (len(series) - 1) / 2) * width
        label = _wrapped(labels[run]) if run in labels else None
        axes.bar(at, values, width, color=f"C{run.position}", label=label)
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


def _wrapped(name: str) -> str:
    """A long name in several lines."""
    return textwrap.fill(name, MAX_NAME)


def _shortened(name: str) -> str:
    """A name beside a bar: at most three lines, which leave room for the bar."""
    return "\n".join(textwrap.wrap(name, MAX_NAME // 2, max_lines=3, placeholder=" …"))


def _dashes(position: int) -> str:
    return DASHES[position // len(RUN_COLORS) % len(DASHES)]


def _color_of_part(name: str) -> str:
    return PART_COLORS.get(name, rcParams["axes.labelcolor"])


def _add_legend(figure: Figure, axes: Axes) -> None:
    """A legend below the axes, for which the figure grows."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        longest = max(map(len, labels))
        columns = 1 if longest > 24 else 2 if longest > 12 else 4
        lines = -(-sum(label.count("\n") + 1 for label in labels) // columns)
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + LEGEND_LINE * (lines - 1))
        figure.legend(handles, labels, loc="outside lower left", ncols=columns, columnspacing=1.2)
