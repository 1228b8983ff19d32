"""Row sums of a CSR matrix by compensated summation. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np

from fullgnn.kernels.support.vectors import compiled


def accurate_row_sums(indptr: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum the entries of each row of a CSR matrix, and their magnitudes.

    Args:
        indptr: (num_rows + 1,), data: (nnz,) float64.

    Returns:
        (num_rows,) float64 sums, as exact as if they were computed with twice the digits and then rounded, so that
        the order of the entries does not matter; and (num_rows,) float64 sums of magnitudes, to working precision.
    """
    total, magnitude = (np.zeros(len(indptr) - 1) for _ in range(2))
    _sum_rows(indptr, data, total, magnitude)
    return total, magnitude


@compiled()
def _sum_rows(indptr, data, total, magnitude):
    """Accumulate the rounding error of every addition in ``lost`` and add it at the end (Neumaier,
    "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", 1974)."""
    for row in range(len(total)):
        running, lost, size = 0.0, 0.0, 0.0
        for edge in range(indptr[row], indptr[row + 1]):
            addend = data[edge]
            size += abs(addend)
            new = running + addend
            if abs(running) >= abs(addend):
                lost += (running - new) + addend
            else:
                lost += (addend - new) + running
            running = new
        total[row], magnitude[row] = running + lost, size
