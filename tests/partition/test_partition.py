import numpy as np
import pytest

from fullgnn.errors import PartitionError
from fullgnn.partition import Partition, contiguous


@pytest.mark.parametrize("num_nodes", [0, 1, 2, 7, 8, 1000])
@pytest.mark.parametrize("num_parts", [1, 2, 3, 8])
def test_contiguous_covers_every_node_in_nearly_equal_parts(num_nodes: int, num_parts: int) -> None:
    partition = contiguous(num_nodes, num_parts)
    assert partition.bounds.tolist() == [i * num_nodes // num_parts for i in range(num_parts + 1)]
    assert (partition.num_parts, partition.num_nodes) == (num_parts, num_nodes)
    assert partition.sizes.sum() == num_nodes and np.ptp(partition.sizes) <= 1
    nodes = np.arange(num_nodes)
    assert np.array_equal(np.concatenate([nodes[partition.slice(part)] for part in range(num_parts)]), nodes)


def test_contiguous_is_exact_beyond_32_bits() -> None:
    assert contiguous(2**40 + 1, 3).bounds.tolist() == [0, (2**40 + 1) // 3, 2 * (2**40 + 1) // 3, 2**40 + 1]


@pytest.mark.parametrize(("num_nodes", "num_parts"), [(5, 0), (5, -1), (-1, 2)])
def test_contiguous_refuses_impossible_counts(num_nodes: int, num_parts: int) -> None:
    with pytest.raises(PartitionError, match="at least 1 part"):
        contiguous(num_nodes, num_parts)


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
