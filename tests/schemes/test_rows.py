"""Who holds which rows: pure functions."""

import numpy as np
import pytest

from fullgnn.partition import Partition
from fullgnn.schemes.product_layout import slice_rows, stage_nnz, stage_sources


@pytest.mark.parametrize("num_slices", [1, 2, 3, 4])
def test_every_row_has_one_holder_and_slices_are_even(num_slices: int) -> None:
    partition = Partition(np.array([0, 5, 5, 12, 14]))
    rows = slice_rows(partition, num_slices)
    assert rows.total == 14 and rows.num_slices == num_slices
    for part in range(4):
        sizes = [held.stop - held.start for held in rows.slices(part)]
        assert sum(sizes) == rows.block_size(part) == partition.sizes[part]
        assert max(sizes) - min(sizes) <= 1
        assert rows.block(part) == partition.slice(part)


def test_holders_are_the_replicas_of_the_block_or_the_own_replica() -> None:
    partition = Partition(np.array([0, 4, 9]))
    assert slice_rows(partition, 2).holders(1, 0, 2) == [(2, slice(0, 2)), (3, slice(2, 5))]
    assert slice_rows(partition, 1).holders(1, 1, 2) == [(3, slice(0, 5))]


def test_restricted_rows_stay_where_they_are() -> None:
    rows = slice_rows(Partition(np.array([0, 4, 9])), 2)
    mask = np.array([1, 0, 0, 1, 0, 0, 1, 1, 1], bool)
    assert rows.restrict(mask).bounds.tolist() == [[0, 1, 2], [2, 2, 5]]


def test_diagonal_stages_meet_every_source_once_a_step() -> None:
    for stage in range(5):
        assert sorted(stage_sources(5, "diagonal")[:, stage].tolist()) == list(range(5))
        assert {*stage_sources(5, "broadcast")[:, stage].tolist()} == {stage}
    nnz = np.arange(9).reshape(3, 3)
    assert stage_nnz(nnz, "broadcast").tolist() == nnz.tolist()
    assert stage_nnz(nnz, "diagonal").tolist() == [[0, 1, 2], [4, 5, 3], [8, 6, 7]]
