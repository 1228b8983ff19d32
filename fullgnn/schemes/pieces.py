"""The exchanges that bring the rows of other ranks, where these do not arrive stage by stage.

The stages of a replica, in the order of its list, are joined into groups: one exchange brings the rows of a group, and
one product multiplies them. A rank's own rows need no exchange, and are multiplied first.

    whole     all stages are one group; every holder sends each reader a message
    packed    one all-to-all a *piece*. A piece is a group of stages, or some columns of a group of one stage. There are
              as few pieces as ``piece_rows`` allows, which bounds the rows of a piece; one, if nothing bounds them

Every rank computes the same pieces, from the rows that all ranks send and receive.
"""

import itertools
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Pieces:
    """How the rows of other ranks arrive."""

    groups: list[int]  # for each place in the list of stages of a replica, the group of the stage; ascending, from 0
    slices: list[int]  # for each group, into how many slices of columns a product cuts its rows
    packed: bool  # one all-to-all a piece; otherwise a message for each pair of ranks

    @property
    def num_exchanges(self) -> int:
        """The number of exchanges of a product."""
        return sum(self.slices)


def all_at_once(num_places: int, packed: bool) -> Pieces:
    """One exchange for all stages of a replica, which has at most ``num_places``."""
    return Pieces([0] * num_places, [1], packed)


def packed_pieces(rows: np.ndarray, piece_rows: int) -> Pieces:
    """The fewest pieces, with groups of stages that follow each other.

    Args:
        rows: (num, num_places) int64, GLOBAL: what each rank sends, and what each rank receives, for the stages at each
            place.
        piece_rows: the most rows, of all columns, that a rank sends or receives in a piece.
    """
    groups, slices = list[int](), list[int]()
    total = np.zeros(len(rows), np.int64)
    for of_place in rows.T:
        joined = total + of_place
        if groups and (joined.max() <= piece_rows or not total.any()):
            total = joined
        else:
            slices.append(1)
            total = of_place
        groups.append(len(slices) - 1)
        slices[-1] = max(1, -(-int(total.max()) // piece_rows))
    return Pieces(groups, slices, packed=True)


def cut_columns(width: int, num_slices: int, unit: int) -> list[slice]:
    """``width`` columns in at most ``num_slices`` slices of about equal width, which begin at multiples of ``unit``."""
    num_units = -(-width // unit)
    num_slices = max(1, min(num_slices, num_units))
    bounds = [min(width, unit * (number * num_units // num_slices)) for number in range(num_slices + 1)]
    return [slice(first, stop) for first, stop in itertools.pairwise(bounds)]
