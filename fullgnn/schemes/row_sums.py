"""Row sums of A', by which a rank normalises the blocks that it multiplies.

A rank adds up the rows of its own block row. Where blocks hold normalised entries, it needs the sums of all rows for
the time in which it builds them: they are added up over the ranks, since each rank has zeros in place of the rows of
the others.
"""

from collections.abc import Callable

import numpy as np

from fullgnn.distributed import World, all_gather_objects, on_every_rank, sum_of_all
from fullgnn.graph.normalize import Propagation, RowSums, check_rows, refuse_unusable, sums_of_rows, weighted_as
from fullgnn.prepare.prepared import PreparedGraph
from fullgnn.schemes.base import Needs
from fullgnn.schemes.layout import Grid
from fullgnn.schemes.nodes import numpy_dtype


def row_sum_arrays(world: World, source: PreparedGraph, grid: Grid, needs: Needs) -> dict[str, np.ndarray]:
    """The row sums that this rank needs, ``row_sum.<self_loops>.<part>`` by name. Every rank calls it.

    The weights are checked for the matrices that a model with these ``needs`` multiplies by.

    Raises:
        DataError: a sum, or a normalised entry, is out of range; the same on every rank.
    """
    facts, (part, replica) = source.facts, grid.place(world.rank)
    kinds = sorted({one.self_loops for one in needs.propagations if one.needs_row_sums})
    everywhere = facts.weighted or not needs.fold
    parts = range(facts.num_parts) if world.dry and everywhere else [part]
    found = on_every_rank(
        lambda: {(loops, number): _of_part(source, number, loops) for loops in kinds for number in parts}
    )
    if facts.weighted:
        _refuse_unusable(needs, kinds, found if replica == 0 or world.dry else {})
    own = {key: one.total for key, one in found.items()}
    if everywhere and not world.dry:
        for loops in kinds:
            whole = np.zeros(facts.num_nodes)
            if replica == 0:
                whole[facts.partition.slice(part)] = own[loops, part]
            whole = sum_of_all(whole)
            own |= {(loops, number): whole[facts.partition.slice(number)] for number in range(facts.num_parts)}
    if facts.weighted:
        on_every_rank(lambda: _check(source, part, needs, own))
    return {f"row_sum.{loops}.{number}": sums for (loops, number), sums in own.items()}


def _refuse_unusable(needs: Needs, kinds: list[bool], own: dict[tuple[bool, int], RowSums]) -> None:
    """Refuse, on every rank alike, a graph with a row whose sum a model with these ``needs`` cannot divide by.

    Args:
        kinds: whether there are self-loops, for each kind of sum.
        own: what this rank has found; empty on a replica, whose rows another rank has too.
    """
    everyone = all_gather_objects({key: one.unusable for key, one in own.items()})
    for loops in kinds:
        cures = [one.without_sums for one in needs.propagations if one.needs_row_sums and one.self_loops == loops]
        refuse_unusable((one for found in everyone for key, one in found.items() if key[0] == loops), cures[0])


def part_row_sums(source: PreparedGraph, number: int, self_loops: bool) -> np.ndarray:
    """(num_rows,) float64, the row sums of one part.

    Raises:
        DataError: nothing can be divided by a sum, or it is beyond float64.
    """
    found = _of_part(source, number, self_loops)
    refuse_unusable([found.unusable], Propagation.without_sums)
    return found.total


def _of_part(source: PreparedGraph, number: int, self_loops: bool) -> RowSums:
    facts, rows = source.facts, source.part(number).rows
    if not facts.weighted and not (self_loops and facts.counts.loops[number]):
        return RowSums(np.diff(rows.indptr).astype(np.float64) + self_loops)
    matrix = rows.matrix(facts.num_nodes)
    if facts.weighted:
        matrix = matrix.astype(np.float64)
    first = int(facts.partition.bounds[number])
    return sums_of_rows(matrix, self_loops, weighted_as(rows.weight), first, _names(source))


def _check(source: PreparedGraph, number: int, needs: Needs, sums: dict[tuple[bool, int], np.ndarray]) -> None:
    """Check the normalised entries of one part."""
    facts, dtype = source.facts, numpy_dtype(needs.dtype)
    matrix = source.part(number).rows.matrix(facts.num_nodes).astype(np.float64)
    unnormalized = (Propagation("none", one.self_loops) for one in needs.edges)
    for one in (*needs.propagations, *unnormalized):
        own = of_all = None
        if one.needs_row_sums:
            own = sums[one.self_loops, number]
            of_all = np.concatenate([sums[one.self_loops, part] for part in range(facts.num_parts)])
        check_rows(matrix, one, own, of_all, dtype, int(facts.partition.bounds[number]), _names(source))


def _names(source: PreparedGraph) -> Callable[[int], int]:
    """The ORIGINAL id of a row, for messages."""
    bounds = source.facts.partition.bounds

    def name_of(row: int) -> int:
        part = int(np.searchsorted(bounds, row, side="right")) - 1
        return int(source.part(part).node_id[row - bounds[part]])

    return name_of
