"""The cache model is compared with a slow cache of ordered dictionaries and has the properties of every cache."""

from collections import OrderedDict

import numpy as np
import pytest
from scipy import sparse

from fullgnn.errors import ConfigError
from fullgnn.reorder.cache_model import hit_rate


def slow_hit_rate(reads: np.ndarray, num_sets: int, ways: int) -> float:
    """Hit rate of a cache whose sets are dictionaries in the order of use: the least recently used line leaves."""
    sets: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(num_sets)]
    hits = 0
    for line in reads.tolist():
        lines_of_set = sets[line % num_sets]
        if line in lines_of_set:
            hits += 1
            lines_of_set.move_to_end(line)
        else:
            lines_of_set[line] = None
            if len(lines_of_set) > ways:
                lines_of_set.popitem(last=False)
    return hits / max(1, len(reads))


def random_csr(num_rows: int, num_columns: int, density: float, seed: int) -> sparse.csr_array:
    matrix = sparse.random_array((num_rows, num_columns), density=density, format="csr", rng=seed)
    matrix.sort_indices()
    return matrix


@pytest.mark.parametrize(("num_sets", "ways"), [(1, 1), (7, 1), (1, 5), (3, 2), (4, 16), (16, 4), (1, 64), (50, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_it_counts_as_a_slow_cache_does(num_sets: int, ways: int, seed: int) -> None:
    adj = random_csr(120, 90, 0.1, seed)
    rate = hit_rate(adj.indptr, adj.indices, 90, num_sets * ways, ways)
    assert rate == slow_hit_rate(adj.indices, num_sets, ways)


def test_reads_in_any_order_and_in_int64() -> None:
    reads = np.random.default_rng(0).integers(0, 40, 3000)  # not sorted, and repeated within a row
    assert hit_rate(np.array([0, 3000]), reads, 40, 24, 8) == slow_hit_rate(reads, 3, 8)


def test_where_everything_fits_only_first_reads_miss() -> None:
    adj = random_csr(200, 150, 0.05, 1)
    distinct = len(np.unique(adj.indices))
    assert hit_rate(adj.indptr, adj.indices, 150, 150, ways=150) == 1 - distinct / adj.nnz


def test_more_ways_than_rows_of_the_cache_are_full_associativity() -> None:
    adj = random_csr(200, 150, 0.05, 1)
    assert hit_rate(adj.indptr, adj.indices, 150, 12, ways=1000) == slow_hit_rate(adj.indices, 1, 12)


def test_a_larger_fully_associative_cache_never_hits_less() -> None:
    adj = random_csr(300, 200, 0.05, 2)
    rates = [hit_rate(adj.indptr, adj.indices, 200, capacity, ways=capacity) for capacity in range(1, 201, 7)]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]


def test_a_cyclic_walk_longer_than_the_cache_never_hits() -> None:
    reads = np.tile(np.arange(10), 5)
    assert hit_rate(np.array([0, 50]), reads, 10, 9, ways=9) == 0
    assert hit_rate(np.array([0, 50]), reads, 10, 10, ways=10) == 0.8


def test_the_capacity_is_taken_to_whole_sets() -> None:
    adj = random_csr(120, 90, 0.1, 0)

    def rate(capacity: int) -> float:
        return hit_rate(adj.indptr, adj.indices, 90, capacity, ways=8)

    assert rate(21) == rate(24) == rate(27) != rate(32)
    assert rate(9) == rate(8)


def test_a_sample_of_rows_is_those_rows_alone() -> None:
    adj = random_csr(120, 90, 0.1, 3)
    part = adj[30:80]
    expected = hit_rate(part.indptr, part.indices, 90, 16, 4)
    assert hit_rate(adj.indptr, adj.indices, 90, 16, 4, slice(30, 80)) == expected
    assert hit_rate(adj.indptr, adj.indices, 90, 16, 4, slice(80, 30)) == 0
    with pytest.raises(ConfigError, match="are not consecutive: leave out the step$"):
        hit_rate(adj.indptr, adj.indices, 90, 16, 4, slice(0, 10, 2))


def test_without_reads_nothing_hits() -> None:
    assert hit_rate(np.zeros(4, np.int64), np.empty(0, np.int32), 3, 16) == 0


@pytest.mark.parametrize(("capacity", "ways"), [(0, 16), (16, 0)])
def test_a_cache_of_nothing_is_refused(capacity: int, ways: int) -> None:
    with pytest.raises(ConfigError, match="holds nothing: give 1 or more of each$"):
        hit_rate(np.array([0, 1]), np.array([0]), 1, capacity, ways)
