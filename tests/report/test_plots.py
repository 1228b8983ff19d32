"""Plots show the data that they are given: marks are read back from the axes."""

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")

from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from matplotlib.axes import Axes  # noqa: E402
from matplotlib.colors import LogNorm, to_hex, to_rgb  # noqa: E402
from PIL import Image  # noqa: E402

from fullgnn.report import plots  # noqa: E402
from fullgnn.report.replicates import Mean  # noqa: E402
from fullgnn.report.runs import ShownRun  # noqa: E402


def run(position: int, name: str) -> ShownRun:
    return ShownRun(position, name, name, f"{name}: ", (Path(name),), "", {}, {}, [], None, ())


def axes_of(draw: Any, *data: Any, title: str = "", theme: str = "light") -> Axes:
    with plots.drawn(plots.Plot("plot", title, "alt", draw, data), theme) as figure:
        figure.draw_without_rendering()
    return figure.axes[0]


def run_colors(theme: str) -> list[tuple[float, ...]]:
    with matplotlib.rc_context(plots.THEMES[theme]):
        return [to_rgb(color) for color in matplotlib.rcParams["axes.prop_cycle"].by_key()["color"]]


def legend(axes: Axes) -> list[str]:
    return [text.get_text() for key in axes.figure.legends for text in key.get_texts()]


@pytest.mark.parametrize("in_percent", [False, True])
def test_curves(in_percent: bool) -> None:
    series = {"first": (0, {1: 0.5, 2: np.nan, 3: 0.25}), "last": (7, {2: 1.0})}
    axes = axes_of(plots.curves, series, in_percent, title="loss")
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 2, 3], [2]]
    factor = 100 if in_percent else 1
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [0.5 * factor, np.nan, 0.25 * factor])
    assert [line.get_color() for line in axes.lines] == ["C0", "C7"]
    assert axes.lines[1].get_linestyle() != axes.lines[0].get_linestyle() and axes.lines[1].get_marker() == "o"
    assert axes.lines[0].get_linewidth() > axes.lines[1].get_linewidth()
    assert legend(axes) == ["first", "last"] and axes.get_title(loc="left") == "loss"


def test_one_curve_needs_no_legend() -> None:
    assert legend(axes_of(plots.curves, {"": (0, {1: 0.5, 2: 0.25})}, False)) == []


def test_means_have_a_band() -> None:
    series = {"seeds": (0, {1: Mean([0.25, 0.75]), 2: Mean([0.5, 0.5, 0.5])}), "alone": (1, {1: 0.5, 2: 0.25})}
    axes = axes_of(plots.curves, series, True)
    (band,) = axes.collections
    heights = {x: sorted({y for at, y in band.get_paths()[0].vertices if at == x}) for x in (1, 2)}
    spread = 100 * np.std([0.25, 0.75], ddof=1)
    np.testing.assert_allclose(heights[1], [50 - spread, 50 + spread])
    assert heights[2] == [50]


def test_bars_of_runs_lie_beside_their_names() -> None:
    runs = [run(0, "a"), run(7, "a long name " * 12)]
    axes = axes_of(plots.by_run, runs, {"epoch": [4.0, 2.0]}, "ms", [(3.0, 6.0), (1.5, 2.5)])
    assert [bar.get_width() for bar in axes.patches] == [4, 2]
    assert len({bar.get_facecolor() for bar in axes.patches}) == 2 and axes.get_xlabel() == "ms"
    (whiskers,) = [marks for marks in axes.collections if hasattr(marks, "get_segments")]
    np.testing.assert_allclose([segment[:, 0] for segment in whiskers.get_segments()], [(3, 6), (1.5, 2.5)])
    first, second = [text.get_text() for text in axes.get_yticklabels()]
    assert first == "a" and second.startswith("a long name") and second.endswith("…") and second.count("\n") == 2
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first run is at the top
    parts = axes_of(plots.by_run, runs, {"SpMM": [1.0, 2.0], "dense": [3.0, 1.0]}, "ms")
    assert [(bar.get_x(), bar.get_width()) for bar in parts.patches] == [(0, 1), (0, 2), (1, 3), (2, 1)]
    assert legend(parts) == ["SpMM", "dense"]
    high, low = (axes_of(plots.by_run, some, {"epoch": [1.0] * len(some)}, "ms").figure for some in (runs, runs[:1]))
    assert high.get_size_inches()[1] > low.get_size_inches()[1]


def test_speed_up_stands_beside_the_ideal() -> None:
    series = {"1d": {4: (3.0, 2.5, 3.5), 1: (1.0, 0.9, 1.1)}, "1.5d": {2: (1.5, 1.25, 1.75)}}
    axes = axes_of(plots.speed_up, series)
    ideal, *_ = axes.lines
    assert (list(ideal.get_xdata()), list(ideal.get_ydata())) == ([1, 4], [1, 4])
    assert legend(axes) == ["ideal", "1d", "1.5d"]
    lines = {line.get_label(): line.lines[0] for line in axes.containers}
    assert (list(lines["1d"].get_xdata()), list(lines["1d"].get_ydata())) == ([1, 4], [1, 3])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "4"]


def test_stacked_bars_stand_on_each_other() -> None:
    axes = axes_of(plots.stacked, ["0", "1"], "rank", "ms", {"SpMM": [4.0, 2.0], "new": [1.0, 3.0]}, 10.0)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("rank", "ms")
    bars = [(bar.get_x() + bar.get_width() / 2, bar.get_y(), bar.get_height()) for bar in axes.patches]
    assert np.allclose(bars, [(0, 0, 4), (1, 0, 2), (0, 4, 1), (1, 2, 3)])
    assert legend(axes) == ["SpMM", "new"] and axes.get_ylim() == (0, 10.5)
    assert len({to_hex(bar.get_facecolor()) for bar in axes.patches}) == 2


def test_grouped_bars_of_a_label_stand_beside_each_other() -> None:
    series = {"a": (0, [4.0, 2.0]), "b": (1, [1.0, 3.0, 5.0])}
    axes = axes_of(plots.grouped, ["0", "1", "2"], "rank", "M", series)
    bars = sorted((bar.get_x(), bar.get_height()) for bar in axes.patches)
    assert [height for _, height in bars] == [4, 1, 2, 3, 5]
    edges = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert all(right <= left + 1e-9 for (_, right), (left, _) in zip(sorted(edges), sorted(edges)[1:]))


def test_a_plot_grows_with_its_legend() -> None:
    heights = []
    for num_runs in (2, 12):
        series = {f"a name that takes a line, {k}": (k, {1: 0.5, 2: 0.25}) for k in range(num_runs)}
        axes = axes_of(plots.curves, series, False)
        heights.append(axes.get_position().height * axes.figure.get_size_inches()[1])
    assert heights[1] == pytest.approx(heights[0], rel=0.15)


def test_many_bars_have_few_labels() -> None:
    axes = axes_of(plots.stacked, [str(k) for k in range(64)], "rank", "ms", {"SpMM": [1.0] * 64}, 1.0)
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert len(axes.patches) == 64 and len(labels) <= 10 and labels[:2] == ["0", "7"]


def test_density_map() -> None:
    bounds, parts = np.array([0, 3, 6, 8]), np.array([0, 4, 4, 8])
    density = np.array([[0.5, 0.0, 0.01], [0.0, 0.1, 0.0], [0.0, 0.0, 1.0]])
    axes = axes_of(plots.density_map, bounds, density, (0.01, 1.0), parts)
    (mesh,) = axes.collections
    shown = mesh.get_array()
    assert np.array_equal(shown.filled(0), density) and np.array_equal(shown.mask, density == 0)
    assert isinstance(mesh.norm, LogNorm) and mesh.get_clim() == (0.01, 1.0)
    borders = sorted((tuple(line.get_xdata()), tuple(line.get_ydata())) for line in axes.lines)
    assert borders == sorted([((0, 1), (4, 4)), ((4, 4), (0, 1))] * 2)
    assert axes.get_ylim() == (8, 0) and axes.get_xlim() == (0, 8)  # row 0 at the top
    scale = axes.figure.axes[1]
    assert [text.get_text() for text in scale.get_xticklabels()] == ["1 %", "10 %", "100 %"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_block_map(theme: str) -> None:
    nnz = np.array([[1_500_000, 0], [12_300, 7]])
    axes = axes_of(plots.block_map, nnz, theme=theme)
    assert np.array_equal(axes.collections[0].get_array(), nnz)
    texts = {tuple(text.get_position()): text.get_text() for text in axes.texts}
    assert texts == {(0.5, 0.5): "1.5 M", (1.5, 0.5): "0", (0.5, 1.5): "12.3 k", (1.5, 1.5): "7"}
    assert len(axes_of(plots.block_map, np.zeros((20, 20), int), theme=theme).texts) == 0


def test_long_names_are_wrapped_and_whole() -> None:
    name = "scheme=1.5d " * 10 + "reorder=none"
    series = {name: (0, {1: 1.0}), "b": (1, {1: 0.5})}
    axes = axes_of(plots.curves, series, False, title=f"{name}: training loss")
    *lines, last = axes.get_title(loc="left").splitlines()
    assert " ".join(lines) == name and last == "training loss" and max(map(len, lines)) <= plots.MAX_NAME
    assert legend(axes) == ["\n".join(lines), "b"]


def test_colours_on_dark_paper_are_lighter() -> None:
    for theme, colors in (("light", plots.RUN_COLORS), ("dark", plots.DARK_RUN_COLORS)):
        assert [to_hex(color).upper() for color in run_colors(theme)] == list(colors)
    for light, dark in zip(run_colors("light"), run_colors("dark")):
        assert all(more > less for more, less in zip(dark, light) if less < 1)


def test_a_picture_is_written_for_light_and_for_dark(tmp_path) -> None:
    data = ({"": (0, {1: 1.0, 2: 0.5})}, False)
    images = plots.write_images(tmp_path, plots.Plot("loss", "$a$ & \\b", "what it says", plots.curves, data))
    papers = {"loss.png": "#ffffff", "loss_dark.png": "#14171a"}
    assert {path.name for path in tmp_path.iterdir()} == papers.keys()
    for name, paper in papers.items():
        pixels = matplotlib.image.imread(tmp_path / name)
        assert pixels.shape[:2] == (round(3.1 * plots.DPI), round(4.6 * plots.DPI))
        assert to_hex(pixels[0, 0]) == paper
        assert Image.open(tmp_path / name).mode == "P"  # a palette: a third of the bytes
    assert [image["class"] for image in images] == ["light", "dark"]
    assert all((image["alt"], image["width"], image["height"]) == ("what it says", "442", "298") for image in images)
