"""Assigning stages to replicas: pure functions."""

import numpy as np
import pytest

from fullgnn.schemes.product_layout import assign_stages, rank_sums


@pytest.mark.parametrize("num_stages", [1, 2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("replication", [1, 2, 3, 4, 8])
def test_every_stage_once_and_counts_within_one(num_stages: int, replication: int) -> None:
    rng = np.random.default_rng(num_stages * 10 + replication)
    shares = assign_stages(rng.integers(0, 1000, (num_stages, num_stages)), replication)
    assert len(shares) == replication
    assert sorted(stage for stages in shares for stage in stages) == list(range(num_stages))
    assert all(stages == sorted(stages) for stages in shares)
    counts = [len(stages) for stages in shares]
    assert max(counts) - min(counts) <= 1


def test_heavy_stages_are_kept_apart() -> None:
    nnz = np.tile([100, 100, 1, 1], (4, 1))  # stages 0 and 1 are heavy: consecutive runs would give both to one replica
    shares = assign_stages(nnz, 2)
    assert rank_sums(nnz, shares).max() == 101
    assert {0, 1} not in [set(stages) for stages in shares]


def test_consecutive_runs_where_nothing_is_gained() -> None:
    assert assign_stages(np.ones((4, 4), np.int64), 2) == [[0, 1], [2, 3]]


def test_rank_sums_adds_up_to_the_matrix() -> None:
    nnz = np.arange(25).reshape(5, 5)
    assert rank_sums(nnz, assign_stages(nnz, 3)).sum() == nnz.sum()
