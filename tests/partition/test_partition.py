import numpy as np
import pytest

from fullgnn.errors import PartitionError
from fullgnn.partition import Cut, Partition


@pytest.mark.parametrize("num_nodes", [0, 1, 2, 7, 8, 1000])
@pytest.mark.parametrize("num_parts", [1, 2, 3, 8])
def test_equal_covers_every_node_in_nearly_equal_parts(num_nodes: int, num_parts: int) -> None:
    partition = Partition.equal(num_nodes, num_parts)
    assert partition.bounds.tolist() == [i * num_nodes // num_parts for i in range(num_parts + 1)]
    assert (partition.num_parts, partition.num_nodes) == (num_parts, num_nodes)
    assert partition.sizes.sum() == num_nodes and np.ptp(partition.sizes) <= 1
    nodes = np.arange(num_nodes)
    assert np.array_equal(np.concatenate([nodes[partition.slice(part)] for part in range(num_parts)]), nodes)


def test_equal_is_exact_beyond_32_bits() -> None:
    bounds = Partition.equal(2**40 + 1, 3).bounds
    assert bounds.tolist() == [0, (2**40 + 1) // 3, 2 * (2**40 + 1) // 3, 2**40 + 1]


@pytest.mark.parametrize(("num_nodes", "num_parts"), [(5, 0), (5, -1), (-1, 2)])
def test_equal_refuses_impossible_counts(num_nodes: int, num_parts: int) -> None:
    with pytest.raises(PartitionError, match="at least 1 part"):
        Partition.equal(num_nodes, num_parts)


@pytest.mark.parametrize(
    "bounds",
    [[0], [1, 2], [0, 3, 2], [0.0, 2.0], [[0, 1], [1, 2]]],
    ids=["one bound", "not from 0", "decreasing", "floats", "two axes"],
)
def test_partition_refuses_wrong_bounds(bounds: list) -> None:
    with pytest.raises(PartitionError, match="Partition bounds"):
        Partition(np.array(bounds))


def test_partition_keeps_its_own_read_only_int64_bounds() -> None:
    given = np.array([0, 2, 2, 5], dtype=np.int32)
    partition = Partition(given)
    given[1] = 4
    assert partition.bounds.tolist() == [0, 2, 2, 5] and partition.bounds.dtype == np.int64
    assert partition.sizes.tolist() == [2, 0, 3] and partition.slice(1) == slice(2, 2)
    with pytest.raises(ValueError, match="read-only"):
        partition.bounds[1] = 4


def test_cut_collects_the_nodes_of_each_part_in_their_order() -> None:
    cut = Cut.from_part_id(np.array([3, 0, 3, 0, 1]), num_parts=5, used="mine")
    assert cut.perm.tolist() == [1, 3, 4, 0, 2] and cut.perm.dtype == np.int64
    assert cut.partition.bounds.tolist() == [0, 2, 3, 3, 5, 5]


@pytest.mark.parametrize(
    ("perm", "mistake"),
    [([0, 1, 1], "permutation"), ([0, 1], "permutation"), ([0.0, 1.0, 2.0], "permutation"), ([1, 0, 2], "order")],
)
def test_cut_refuses_what_is_no_permutation_or_has_its_own_order(perm: list, mistake: str) -> None:
    with pytest.raises(PartitionError, match=f"Partitioner mine did not .*{mistake}"):
        Cut(np.array(perm), Partition(np.array([0, 2, 3])), used="mine")
