"""Rows of a block row along its replicas on GPUs, by one all-to-all.

``Halo.gather_targets`` and ``Halo.reduce`` send messages on CPUs; these functions do the same for an exchange that
packs rows, see ``packed.py``. Each is the adjoint of the other.
"""

from torch import Tensor

from fullgnn.distributed import Axis


def gather_slices(own: Tensor, slices: list[slice], axis: Axis) -> Tensor:
    """Return the (num_targets, F) rows of a block row, of which each replica has a slice.

    Args:
        own: (num_own, F), this replica's slice.
        slices: those of all replicas, one after the other.
        axis: the replicas.
    """
    sizes = _sizes(slices)
    whole = own.new_empty(sum(sizes), own.shape[1])
    # NCCL has no gather of slices that differ in size.
    sent = own.repeat(axis.size, 1)
    return axis.all_to_all_rows(sent, [len(own)] * axis.size, whole, sizes, "gather").wait()


def sum_slices(partial: Tensor, slices: list[slice], axis: Axis) -> Tensor:
    """Return the (num_own, F) sums of this replica's slice, added in replica order.

    Args:
        partial: (num_targets, F), what this replica adds to the rows of the block row.
        slices, axis: see ``gather_slices``.
    """
    sizes = _sizes(slices)
    num_own = sizes[axis.index]
    parts = partial.new_empty(axis.size * num_own, partial.shape[1])
    axis.all_to_all_rows(partial.contiguous(), sizes, parts, [num_own] * axis.size, "reduce_scatter").wait()
    first, second, *rest = parts.split(num_own) if num_own else [parts] * axis.size
    total = first + second
    for part in rest:
        total += part
    return total


def _sizes(slices: list[slice]) -> list[int]:
    return [rows.stop - rows.start for rows in slices]
