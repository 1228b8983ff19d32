"""The sections that show where the non-zeros are: by cell, by block, and by the density of their tile."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fullgnn.report.content import COUNT, MANY, PageBlock, Table, alike, each, in_words, missing, table_of, together
from fullgnn.report.costs import nnz_by_rank
from fullgnn.report.plots import Plot, block_map, density_map, grouped
from fullgnn.report.replicates import Quantity
from fullgnn.report.runs import ShownRun
from fullgnn.telemetry.screen import percent

MapArrays = tuple[np.ndarray, ...]
"""What a map is drawn from."""
Maps = Mapping[ShownRun, MapArrays]


def adjacency(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """A map of each dataset and one of each order, those of one dataset on one scale, and their numbers."""
    structures = {run: run.structure for run in runs if run.structure}
    before = {run: (at.cell_bounds, at.cell_nnz_before, at.cell_bounds[[0, -1]]) for run, at in structures.items()}
    after = {run: (at.cell_bounds, at.cell_nnz_after, at.part_bounds) for run, at in structures.items()}
    limits: dict[ShownRun, tuple[float, float]] = {}
    for kind in alike(before, _same).values():
        limits |= dict.fromkeys(kind, _limits([maps[run] for run in kind for maps in (before, after)]))
    for when, maps in (("before", before), ("after", after)):
        yield from _maps(maps, f"{when} ordering", partial(_density, when, maps, limits))
    yield from missing(runs, structures, "structure.npz", counted="edge_cut")


def blocks(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """A map of each way to cut, and bars of all runs side by side at each rank."""
    cuts = {run: (run.structure.block_nnz,) for run in runs if run.structure}
    yield from _maps(cuts, "non-zeros by block", partial(_block, cuts))
    yield from nnz_by_rank(runs)
    yield from missing(runs, cuts, "structure.npz", counted="edge_cut")


def tile_density(runs: list[ShownRun]) -> Iterator[PageBlock]:
    """Bars of all runs side by side at each density; runs with the same order have the same."""
    shares = {run: run.record["tile_density"] for run in runs if run.record.get("tile_density")}
    bins = list(dict.fromkeys(name for of_run in shares.values() for name in of_run))
    kinds = alike(shares)
    if shares:
        fullest, series = {}, {}
        for first, kind in kinds.items():
            label = together([run.label for run in kind]) if len(shares) > 1 else ""
            series[label] = first.position, [100 * shares[first].get(name, 0) for name in bins]
            share, name = max((share, name) for name, share in shares[first].items())
            fullest[together([run.name for run in kind])] = f"has most, {percent(share)}, at {name} %"
        data = (bins, "% of the tile", "% of the non-zeros", series)
        alt = each("Non-zeros by the density of their tile", fullest)
        yield "plot", Plot("tiles", "non-zeros by density of their tile", alt, grouped, data)
        columns = [Quantity(name, name, percent) for name in bins]
        caption = "Share of the non-zeros by the density of their tile, in per cent"
        yield "numbers", table_of(caption, {run.name: of_run for run, of_run in shares.items()}, columns)
    yield from missing(runs, shares, "tile densities", counted="tile_density")


def _maps(maps: Maps, title: str, make: Callable[[ShownRun, str], tuple[Plot, Table]]) -> Iterator[PageBlock]:
    """A plot of each kind of map, and its numbers; equal maps are drawn once. Of many maps, a few without numbers.

    Args:
        maps: of all runs that have one.
        make: draws the map of a run; takes the prefix of its title as well.
    """
    kinds = list(alike(maps, _same).values())
    for kind in kinds[:MANY]:
        names = [run.name for run in kind]
        plot, numbers = make(kind[0], f"{together(names)}: " if len(kinds) > 1 else "")
        yield "plot", plot
        if len(kinds) <= MANY:
            yield "numbers", numbers
        if 2 < len(kind) < len(maps):
            yield "note", f"{title.capitalize()}: {in_words(names)} have the same map."
    if len(kinds) > MANY:
        left_out = in_words([kind[0].name for kind in kinds[MANY:]])
        told = f"the page has no map of {left_out}, and no numbers of the others"
        yield "note", f"{title.capitalize()}: {told}; one of fewer runs has them."


def _density(when: str, maps: Maps, limits: Mapping[ShownRun, Any], run: ShownRun, prefix: str) -> tuple[Plot, Table]:
    bounds, nnz, parts = maps[run]
    on_diagonal = percent(float(np.trace(nnz) / max(nnz.sum(), 1)))
    cut = f"; {len(parts) - 1} block rows" if when == "after" else ""
    alt = f"{prefix or f'{run.name}: '}density of the adjacency {when} ordering, in {len(nnz)} by {len(nnz)} cells; "
    alt += f"{on_diagonal} of the non-zeros are in cells on the diagonal{cut}."
    data = (bounds, nnz / _area(bounds), limits[run], parts)
    plot = Plot(f"density_{run.position}_{when}", f"{prefix}{when} ordering", alt, density_map, data)
    return plot, _matrix(f"{prefix}Non-zeros by cell {when} ordering", "", list(map(str, bounds[:-1])), nnz)


def _block(cuts: Maps, run: ShownRun, prefix: str) -> tuple[Plot, Table]:
    (nnz,) = cuts[run]
    size = f"{len(nnz)} by {len(nnz)} blocks"
    alt = f"{prefix or f'{run.name}: '}non-zeros of {size}, {COUNT(nnz.min())} to {COUNT(nnz.max())}."
    plot = Plot(f"blocks_{run.position}", f"{prefix}non-zeros by block", alt, block_map, (nnz,))
    return plot, _matrix(f"{prefix}Non-zeros by block", "row / column", list(map(str, range(len(nnz)))), nnz)


def _same(maps: MapArrays, others: MapArrays) -> bool:
    return all(map(np.array_equal, maps, others))


def _area(bounds: np.ndarray) -> np.ndarray:
    """(cells, cells), the numbers of places in the cells."""
    return np.outer(np.diff(bounds), np.diff(bounds))


def _limits(maps: Sequence[MapArrays]) -> tuple[float, float]:
    """Ends of a scale for several maps; the least density still has a colour."""
    density = np.concatenate([(nnz / _area(bounds))[nnz > 0] for bounds, nnz, _ in maps])
    return (density.min() / 1.5, density.max()) if len(density) else (0.1, 1.0)


def _matrix(caption: str, corner: str, labels: list[str], counts: np.ndarray) -> Table:
    """The numbers of a map."""
    return Table(caption, [corner, *labels], [[label, *map(COUNT, row)] for label, row in zip(labels, counts)])
