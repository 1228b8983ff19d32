"""A model of the cache hit rate of a product A @ H, with the same result on every machine.

The cache holds whole rows of H in sets of ``ways``; row j belongs to set j modulo the number of sets, and a full set
evicts the least recently used row (LRU). The product reads rows of H in the order of A's CSR arrays, row after row, as
one thread would; a GPU processes many rows of A at a time and reads in another order within each wave. The first read
of a row misses.
"""

import numpy as np

from fullgnn.errors import ConfigError

WAYS = 16


def hit_rate(
    indptr: np.ndarray,
    indices: np.ndarray,
    num_columns: int,
    capacity_rows: int,
    ways: int = WAYS,
    rows: slice = slice(None),
) -> float:
    """Fraction of the reads of H that hit the cache; 0 if nothing is read.

    Args:
        indptr: (num_rows + 1,) row starts of A in CSR.
        indices: (nnz,) int32 or int64 columns of A: the rows of H in the order of reading.
        num_columns: number of columns of A, equal to the number of rows of H.
        capacity_rows: rows that the cache holds; rounded to the nearest multiple of ``ways``, at least one set.
        ways: rows of a set. ``capacity_rows`` or more makes a fully associative cache.
        rows: the consecutive rows of A to simulate, a sample if A is large; the cache is empty before the first.

    Raises:
        ConfigError: ``capacity_rows`` or ``ways`` below 1, or ``rows`` with gaps.
    """
    if capacity_rows < 1 or ways < 1:
        raise ConfigError(f"a cache of {capacity_rows} rows in sets of {ways} holds nothing: give 1 or more of each")
    first, stop, step = rows.indices(len(indptr) - 1)
    if step != 1:
        raise ConfigError(f"rows {rows} are not consecutive: leave out the step")
    reads = indices[indptr[first] : indptr[max(first, stop)]]
    if len(reads) == 0:
        return 0.0
    ways = min(ways, capacity_rows)
    # Imported here, since it imports numba, which must see the thread counts that the launcher sets.
    from fullgnn.reorder._lru import count_hits

    return count_hits(reads, num_columns, max(1, round(capacity_rows / ways)), ways) / len(reads)
