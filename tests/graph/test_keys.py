"""The compiled loops over pairs of nodes, compared with NumPy's."""

import numpy as np
import pytest

from fullgnn.graph import _keys_cpu
from fullgnn.graph._keys_cpu import columns_of, nodes_at, sort_keys, split_keys


@pytest.mark.parametrize("largest", [0, 1, 900, 10**6, 2**62])
@pytest.mark.parametrize("count", [1, 50, 20_000])
def test_keys_are_sorted_in_buckets(monkeypatch: pytest.MonkeyPatch, largest: int, count: int) -> None:
    monkeypatch.setattr(_keys_cpu, "MIN_KEYS", 1)
    keys = np.random.default_rng(0).integers(0, largest, count, endpoint=True)
    np.testing.assert_array_equal(sort_keys(keys.copy()), np.sort(keys))


def test_keys_are_pairs() -> None:
    num_nodes = 3_000_000  # the square of it is beyond int32
    rng = np.random.default_rng(1)
    first, second = rng.integers(0, num_nodes, (2, 500))
    for numbers, wanted in zip(split_keys(first * num_nodes + second, num_nodes), (first, second), strict=True):
        np.testing.assert_array_equal(numbers, wanted)


def test_columns_of_sorted_keys() -> None:
    dense = np.random.default_rng(2).random((40, 40)) < 0.2
    dense[[0, 17, 39]] = False
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(dense.sum(axis=1))])
    actual = columns_of(rows * 40 + columns, indptr)
    assert actual.dtype == np.int32
    np.testing.assert_array_equal(actual, columns)


@pytest.mark.parametrize("num_groups", [1, 7, 60])
def test_drawn_nodes_are_those_of_a_binary_search(num_groups: int) -> None:
    """Also at the borders of ranges, where the random number is 0."""
    rng = np.random.default_rng(num_groups)
    degree = rng.random(300) ** 4 + 1e-3
    cumulative = np.concatenate([[0.0], np.cumsum(degree)])
    starts = np.sort(rng.choice(np.arange(1, 300), num_groups - 1, replace=False)) if num_groups > 1 else []
    starts = np.array([0, *starts, 300])
    base, width = cumulative[starts[:-1]], np.diff(cumulative[starts])
    counts = rng.integers(0, 90, num_groups)
    random = rng.random(counts.sum())
    random[::5] = 0
    position = np.repeat(base, counts) + random * np.repeat(width, counts)
    wanted = (np.searchsorted(cumulative, position, side="right") - 1).clip(max=299)
    np.testing.assert_array_equal(nodes_at(cumulative, base, width, counts, random), wanted)
