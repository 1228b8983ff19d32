"""The sections that show where the non-zeros are: by cell, by block, and by the density of their tile."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from fullgnn.report.content import COUNT, MANY, Block, Table, alike, in_words, missing, together
from fullgnn.report.maps import SQUARE, block_map, density_map
from fullgnn.report.plots import Axis, Plot, grouped
from fullgnn.report.ranks import nnz_by_rank, ordinals
from fullgnn.report.runs import Run
from fullgnn.report.spread import shown
from fullgnn.telemetry.screen import percent

STRUCTURE = "structure.npz"
Arrays = tuple[np.ndarray, ...]
"""What a map is drawn from."""
Kinds = Mapping[Run, list[Run]]
"""The first run of each map -> all runs that have the same map."""


def adjacency(runs: list[Run]) -> Iterator[Block]:
    """A map of each dataset and one of each order, those of one dataset on one scale, and their numbers."""
    found = {run: run.structure for run in runs if run.structure}
    before = {run: (one.cell_bounds, one.cell_nnz_before, one.cell_bounds[[0, -1]]) for run, one in found.items()}
    after = {run: (one.cell_bounds, one.cell_nnz_after, one.part_bounds) for run, one in found.items()}
    datasets = alike(before, _same)
    limits: dict[Run, tuple[float, float]] = {}
    for kind in datasets.values():
        scale = _limits([maps[run] for run in kind for maps in (before, after)])
        limits |= dict.fromkeys(kind, scale)
    for when, maps in (("before", before), ("after", after)):

        def density(run: Run, prefix: str, when: str = when, maps: Mapping[Run, Arrays] = maps) -> tuple[Plot, Table]:
            return _density(run, prefix, when, maps[run], limits[run])

        yield from _maps(datasets if when == "before" else alike(after, _same), found, f"{when} ordering", density)
    yield from missing(runs, found, STRUCTURE, counted="edge_cut")


def blocks(runs: list[Run]) -> Iterator[Block]:
    """A map of each way to cut, and bars of all runs side by side at each rank."""
    found = {run: run.structure for run in runs if run.structure}
    cuts = {run: (structure.block_nnz,) for run, structure in found.items()}

    def block(run: Run, prefix: str) -> tuple[Plot, Table]:
        (nnz,) = cuts[run]
        size = f"{len(nnz)} by {len(nnz)} blocks"
        alt = f"{prefix or f'{run.name}: '}non-zeros of {size}, {COUNT(nnz.min())} to {COUNT(nnz.max())}."
        plot = Plot(f"blocks_{run.position}", f"{prefix}non-zeros by block", alt, block_map, {"nnz": nnz}, SQUARE)
        return plot, _matrix(f"{prefix}Non-zeros by block", "row / column", ordinals(nnz), nnz)

    yield from _maps(alike(cuts, _same), found, "non-zeros by block", block)
    yield from nnz_by_rank(runs)
    yield from missing(runs, found, STRUCTURE, counted="edge_cut")


def tile_density(runs: list[Run]) -> Iterator[Block]:
    """Bars of all runs side by side at each density; runs with the same order have the same."""
    found = {run: run.record["tile_density"] for run in runs if run.record.get("tile_density")}
    bins = list(dict.fromkeys(name for shares in found.values() for name in shares))
    kinds = alike(found, lambda one, other: one == other)
    if found:
        names = {first: together([run.name for run in kind]) for first, kind in kinds.items()}
        most = {first: max((share, name) for name, share in found[first].items()) for first in kinds}
        fullest = "; ".join(
            f"{names[run]} has most, {percent(share)}, at {name} %" for run, (share, name) in most.items()
        )
        series = {run: [100 * found[run].get(name, 0) for name in bins] for run in kinds}
        labels = {first: together([run.label for run in kind]) for first, kind in kinds.items() if len(found) > 1}
        data = {"axis": Axis(bins, "% of the tile", "% of the non-zeros"), "series": series, "labels": labels}
        alt = f"Non-zeros by the density of their tile: {fullest}."
        yield "plot", Plot("tiles", "non-zeros by density of their tile", alt, grouped, data)
        rows = [[run.name, *(shown(shares.get(name), percent) for name in bins)] for run, shares in found.items()]
        caption = "Share of the non-zeros by the density of their tile, in per cent"
        yield "numbers", Table(caption, ["", *bins], rows)
    yield from missing(runs, found, "tile densities", counted="tile_density")


def _maps(
    kinds: Kinds, runs: Mapping[Run, object], title: str, make: Callable[[Run, str], tuple[Plot, Table]]
) -> Iterator[Block]:
    """A plot of each kind of map, and its numbers; equal maps are drawn once. Of many maps, a few without numbers.

    Args:
        runs: all runs that have such a map.
        make: draws the map of a run; takes the prefix of its title as well.
    """
    for first, kind in list(kinds.items())[:MANY]:
        names = [run.name for run in kind]
        plot, numbers = make(first, f"{together(names)}: " if len(kinds) > 1 else "")
        yield "plot", plot
        if len(kinds) <= MANY:
            yield "numbers", numbers
        if 2 < len(kind) < len(runs):
            yield "note", f"{title.capitalize()}: {in_words(names)} have the same map."
    if len(kinds) > MANY:
        left_out = [run.name for run in list(kinds)[MANY:]]
        told = f"the page has no map of {in_words(left_out)}, and no numbers of the others"
        yield "note", f"{title.capitalize()}: {told}; one of fewer runs has them."


def _density(run: Run, prefix: str, when: str, arrays: Arrays, limits: tuple[float, float]) -> tuple[Plot, Table]:
    bounds, nnz, parts = arrays
    on_diagonal = percent(float(np.trace(nnz) / max(nnz.sum(), 1)))
    cut = f"; {len(parts) - 1} block rows" if when == "after" else ""
    alt = (
        f"{prefix or f'{run.name}: '}density of the adjacency {when} ordering, in {len(nnz)} by {len(nnz)} cells; "
        f"{on_diagonal} of the non-zeros are in cells on the diagonal{cut}."
    )
    data = {"bounds": bounds, "density": nnz / _area(bounds), "limits": limits, "parts": parts}
    plot = Plot(f"density_{run.position}_{when}", f"{prefix}{when} ordering", alt, density_map, data, SQUARE)
    return plot, _matrix(f"{prefix}Non-zeros by cell {when} ordering", "", list(map(str, bounds[:-1])), nnz)


def _same(one: Arrays, other: Arrays) -> bool:
    return all(map(np.array_equal, one, other))


def _area(bounds: np.ndarray) -> np.ndarray:
    """(cells, cells), the numbers of places in the cells."""
    return np.outer(np.diff(bounds), np.diff(bounds))


def _limits(maps: list[Arrays]) -> tuple[float, float]:
    """Ends of a scale for several maps; the least density still has a colour."""
    density = np.concatenate([(nnz / _area(bounds))[nnz > 0] for bounds, nnz, _ in maps])
    return (density.min() / 1.5, density.max()) if len(density) else (0.1, 1.0)


def _matrix(caption: str, corner: str, labels: list[str], counts: np.ndarray) -> Table:
    """The numbers of a map."""
    return Table(caption, [corner, *labels], [[label, *map(COUNT, row)] for label, row in zip(labels, counts)])
