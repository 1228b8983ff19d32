"""The compiled part of :mod:`fullgnn.tasks.link_ranking`. Importing this module imports numba."""

import numba
import numpy as np

from fullgnn.kernels.support.threads import even_slices, parallel_for

ROWS = 16  # rows of a task of a thread


def take_best(
    scores: np.ndarray,
    begin: int,
    first: int,
    known_indptr: np.ndarray,
    known_ids: np.ndarray,
    best_scores: np.ndarray,
    best_ids: np.ndarray,
) -> None:
    """Merge the scores of consecutive items into the best ones so far; of equal scores, the earlier item is better.

    Args:
        scores: (num_users, num_items), of the users from ``begin`` on and the items from ``first`` on.
        known_indptr, known_ids: by user, ascending ids of the items that are left out.
        best_scores, best_ids: (number of all users, k), descending; changed in place.
    """
    arguments = scores, begin, first, known_indptr, known_ids, best_scores, best_ids
    parallel_for(
        lambda rows: _take_best(rows.start, rows.stop, *arguments), even_slices(len(scores), -(-len(scores) // ROWS))
    )


@numba.njit(cache=True, nogil=True)
def _take_best(start, stop, scores, begin, first, known_indptr, known_ids, best_scores, best_ids):
    num_items, k = scores.shape[1], best_scores.shape[1]
    for row in range(start, stop):
        user, values = begin + row, scores[row]
        top, ids = best_scores[user], best_ids[user]
        known = known_ids[known_indptr[user] : known_indptr[user + 1]]
        place = np.searchsorted(known, first)
        for item in range(num_items):
            if place < len(known) and known[place] == first + item:
                place += 1
                continue
            if not (values[item] > top[k - 1] or ids[k - 1] < 0):
                continue
            at = k - 1
            while at > 0 and (ids[at - 1] < 0 or values[item] > top[at - 1]):
                top[at], ids[at] = top[at - 1], ids[at - 1]
                at -= 1
            top[at], ids[at] = values[item], first + item
