"""The compiled part of :mod:`fullgnn.tasks.ranking`. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np

from fullgnn.kernels.support.process import even_slices, parallel_for
from fullgnn.kernels.support.vectors import compiled

ROWS = 16  # rows of a task of a thread


def take_best(
    scores: np.ndarray,
    num_items: int,
    begin: int,
    first: int,
    known_indptr: np.ndarray,
    known_ids: np.ndarray,
    best_scores: np.ndarray,
    best_ids: np.ndarray,
    num_tied: np.ndarray,
) -> None:
    """Merge the scores of consecutive items into the best ones so far; of equal scores, the earlier item is better.

    An item whose score is NaN or -Inf is left out.

    Args:
        scores: (num_users, at least num_items), of the users from ``begin`` on and the items from ``first`` on.
        known_indptr, known_ids: by user, ascending ids of the items that are left out.
        best_scores, best_ids: (number of all users, k), descending, -Inf where there are no more items; changed in
            place.
        num_tied: (number of all users,) int64, items that are not among the best and have the score of the last of
            them; changed in place.
    """
    arguments = scores, num_items, begin, first, known_indptr, known_ids, best_scores, best_ids, num_tied
    parallel_for(
        lambda rows: _take_best(rows.start, rows.stop, *arguments), even_slices(len(scores), -(-len(scores) // ROWS))
    )


@compiled()
def _take_best(start, stop, scores, num_items, begin, first, known_indptr, known_ids, best_scores, best_ids, num_tied):
    k = best_scores.shape[1]
    for row in range(start, stop):
        user, values = begin + row, scores[row]
        top, ids = best_scores[user], best_ids[user]
        known = known_ids[known_indptr[user] : known_indptr[user + 1]]
        place = np.searchsorted(known, first)
        last, tied = top[k - 1], num_tied[user]
        for item in range(num_items):
            value = values[item]
            if not value >= last:  # most items, and NaN
                continue
            while place < len(known) and known[place] < first + item:
                place += 1
            if (place < len(known) and known[place] == first + item) or value == -np.inf:
                continue
            if value == last:
                tied += 1
                continue
            at = k - 1
            while at > 0 and value > top[at - 1]:
                top[at], ids[at] = top[at - 1], ids[at - 1]
                at -= 1
            top[at], ids[at] = value, first + item
            # The item that had been the last one is out: it ties with the new last one, or nothing does.
            tied = tied + 1 if top[k - 1] == last and last > -np.inf else 0
            last = top[k - 1]
        num_tied[user] = tied
