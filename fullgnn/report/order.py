"""Sections of a report: where the non-zeros are, before and after the nodes were ordered."""

import numpy as np

from fullgnn.report.costs import by_rank, told
from fullgnn.report.figures import SQUARE, Figures
from fullgnn.report.markup import Markup, numbers, paragraph, side_by_side
from fullgnn.report.plots import block_map, density_map, grouped
from fullgnn.report.runs import Run
from fullgnn.report.wording import absent, count, of
from fullgnn.telemetry.table import percent


def adjacency(runs: list[Run], figures: Figures) -> list[Markup]:
    """For each run two maps on one scale, and their numbers."""
    content: list[Markup] = []
    for position, run in enumerate(runs):
        if run.structure is None:
            continue
        bounds, parts = run.structure.cell_bounds, run.structure.part_bounds
        area = np.outer(np.diff(bounds), np.diff(bounds))
        maps = {"before": run.structure.cell_nnz_before, "after": run.structure.cell_nnz_after}
        density = np.concatenate([(nnz / area)[nnz > 0] for nnz in maps.values()])
        limits = (density.min() / 1.5, density.max()) if len(density) else (0.1, 1.0)  # the least still has a colour
        drawn, tables = [], []
        for when, nnz in maps.items():
            on_diagonal = percent(float(np.trace(nnz) / max(nnz.sum(), 1)))
            alt = (
                f"{run.name}: density of the adjacency {when} ordering, in {len(nnz)} by {len(nnz)} cells; "
                f"{on_diagonal} of the non-zeros are in cells on the diagonal; {len(parts) - 1} block rows."
            )
            draw = density_map(of(run, f"{when} ordering", runs), bounds, nnz / area, limits, parts)
            drawn.append(figures.add(f"density_{position}_{when}", alt, draw, SQUARE))
            first = [str(bound) for bound in bounds[:-1]]
            rows = [[start, *map(count, row)] for start, row in zip(first, nnz)]
            tables.append(numbers(of(run, f"Non-zeros by cell {when} ordering", runs), ["", *first], rows))
        content += [side_by_side(drawn), *tables]
    return [
        paragraph(
            "How much of each cell is stored, in the order of the dataset and in that of the run, without the "
            "self-loops that the run sets. Empty cells have no colour. Lines are the borders of the block rows, also "
            "in the order of the dataset, which is not cut. In the tables a cell is named by its first row and column.",
            class_="muted",
        ),
        *content,
        *absent(runs, (run for run in runs if run.structure), "structure.npz"),
    ]


def blocks(runs: list[Run], figures: Figures) -> list[Markup]:
    """For each run a map; all runs side by side at each rank."""
    drawn, tables = [], []
    for position, run in enumerate(runs):
        if run.structure is None:
            continue
        nnz = run.structure.block_nnz
        alt = f"{run.name}: non-zeros of {len(nnz)} by {len(nnz)} blocks, {count(nnz.min())} to {count(nnz.max())}."
        draw = block_map(of(run, "non-zeros by block", runs), nnz)
        drawn.append(figures.add(f"blocks_{position}", alt, draw, SQUARE))
        header = ["row / column", *(str(part) for part in range(len(nnz)))]
        rows = [[str(part), *map(count, row)] for part, row in enumerate(nnz)]
        tables.append(numbers(of(run, "Non-zeros by block", runs), header, rows))
    there = told(runs, "nnz")
    if there:
        caption = "Non-zeros that a rank multiplies in one product"
        units = ("non-zeros", "thousand", "million", "thousand million")
        plot, table = by_rank(there, "nnz", "non-zeros by rank", caption, figures, units)
        drawn.append(plot)
        tables.append(table)
    return [
        paragraph("Of the normalised adjacency, self-loops included, as the ranks multiply it.", class_="muted"),
        side_by_side(drawn),
        *tables,
        *absent(runs, (run for run in runs if run.structure), "structure.npz"),
        *absent(runs, (one.run for one in there), "the non-zeros of each rank"),
    ]


def tile_density(runs: list[Run], figures: Figures) -> list[Markup]:
    """All runs side by side at each density."""
    found = {k: run.record["tile_density"] for k, run in enumerate(runs) if run.record.get("tile_density")}
    bins = list(dict.fromkeys(name for shares in found.values() for name in shares))
    content = []
    if found:
        series = {k: (runs[k].name, [100 * shares.get(name, 0) for name in bins]) for k, shares in found.items()}
        fullest = "; ".join(
            f"{runs[k].name} has most, {percent(share)}, at {name} %"
            for k, shares in found.items()
            for share, name in [max((share, name) for name, share in shares.items())]
        )
        draw = grouped("non-zeros by density of their tile", bins, series, "% of the non-zeros", "% of the tile")
        content.append(
            side_by_side([figures.add("tiles", f"Non-zeros by the density of their tile: {fullest}.", draw)])
        )
        rows = [[runs[k].name, *(percent(shares.get(name)) for name in bins)] for k, shares in found.items()]
        content.append(numbers("Share of the non-zeros by the density of their tile, in per cent", ["", *bins], rows))
    return [
        paragraph(
            "Share of the non-zeros by how full their 32 × 32 tile of the ordered matrix is, in per cent.",
            class_="muted",
        ),
        *content,
        *absent(runs, (runs[k] for k in found), "tile densities"),
    ]
