"""Rows of a block row along its replicas: by one all-to-all where rows travel side by side, see ``packed.py``, and
otherwise by messages. Gathering and summing are the adjoint of each other.
"""

from collections.abc import Sequence

from torch import Tensor

from fullgnn.distributed import Axis


def gather_slices(own: Tensor, slices: list[slice], axis: Axis, packed: bool) -> Tensor:
    """Return the (num_targets, F) rows of a block row, of which each replica has a slice.

    Args:
        own: (num_own, F), this replica's slice.
        slices: those of all replicas, one after the other.
        axis: the replicas.
        packed: whether rows travel side by side.
    """
    sizes = _sizes(slices)
    whole = own.new_empty(sum(sizes), own.shape[1])
    if packed:  # NCCL has no gather of slices that differ in size
        return axis.all_to_all_rows(own.repeat(axis.size, 1), [len(own)] * axis.size, whole, sizes, "gather").wait()
    own, others = own.contiguous(), [index for index in range(axis.size) if index != axis.index]
    whole[slices[axis.index]] = own
    arriving = [(whole[slices[index]], index) for index in others]
    started, received = axis.exchange([(own, index) for index in others], arriving, "gather")
    for work in (*received, *started):
        work.wait()
    return whole


def sum_slices(partial: Tensor, slices: list[slice], axis: Axis, packed: bool) -> Tensor:
    """Return the (num_own, F) sums of this replica's slice, added in replica order.

    Args:
        partial: (num_targets, F), what this replica adds to the rows of the block row.
        slices, axis, packed: see ``gather_slices``.
    """
    sizes = _sizes(slices)
    num_own = sizes[axis.index]
    if not packed:
        parts = axis.all_to_all([partial[rows] for rows in slices], "reduce_scatter", [num_own] * axis.size)
        return add_in_order(parts)
    arriving = partial.new_empty(axis.size * num_own, partial.shape[1])
    axis.all_to_all_rows(partial.contiguous(), sizes, arriving, [num_own] * axis.size, "reduce_scatter").wait()
    return add_in_order(arriving.split(num_own) if num_own else [arriving] * axis.size)


def add_in_order(parts: Sequence[Tensor]) -> Tensor:
    """The sum of two ``parts`` or more, which has the same bits whenever they arrive."""
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total += part
    return total


def _sizes(slices: list[slice]) -> list[int]:
    return [rows.stop - rows.start for rows in slices]
