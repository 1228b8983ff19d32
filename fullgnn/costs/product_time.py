"""The time of the parts of a distributed product: gathering rows, and waiting for them. Passes over edges one by one
have the same parts."""

import numpy as np

from fullgnn.costs.hardware import Hardware
from fullgnn.costs.statistics import PlannedJob
from fullgnn.schemes.product_layout import BROADCAST, OWN, RowDistribution


def reads_in_place(job: PlannedJob, name: str, hardware: Hardware) -> bool:
    """Whether the ranks read each other's rows where they are in product ``name``, see ``Exchange``."""
    return job.shares_memory(hardware.device) and not (job.products[name].transports == BROADCAST).any()


def gather_s_per_byte(job: PlannedJob, rows: RowDistribution, row_bytes: float, hardware: Hardware) -> float:
    """Seconds for a byte of rows of a block of ``rows`` that a product gathers."""
    locality, table_bytes = job.graph.locality, rows.block_sizes.max() * row_bytes
    return locality / hardware.gather_rate(1) + (1 - locality) / hardware.gather_rate(table_bytes)


def multiply_s(job: PlannedJob, name: str, row_bytes: float, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of the local products of product ``name`` with rows of X of ``row_bytes``."""
    product = job.products[name]
    s_per_byte = gather_s_per_byte(job, product.in_rows, row_bytes, hardware)
    steps, out_rows = product.steps, product.out_rows.block_sizes[:, None]
    again = np.maximum(steps - 1, 0) * out_rows * row_bytes * 2 / hardware.copy_bytes_per_s  # sums: read and written
    return product.rank_nnz * row_bytes * s_per_byte + again + steps * hardware.op_s


def travel_s(job: PlannedJob, name: str, received: dict[str, np.ndarray], hardware: Hardware) -> np.ndarray:
    """(b, r) seconds in which the rows of a product travel.

    Args:
        received: bytes by collective; only those of rows of X count.
    """
    product, size = job.products[name], job.grid.num_ranks
    total, in_place = np.zeros(job.num_own_rows.shape), reads_in_place(job, name, hardware)
    for collective in ("broadcast", "exchange"):
        if not received[collective].any():
            continue
        if in_place:  # one round; the copy is a dense pass, reading is part of the product
            total += hardware.link("shared", size).latency_s
        else:
            link = hardware.link(collective, size)
            rounds = np.maximum(product.steps, 1) if product.pieces is None else product.pieces.num_exchanges
            total += received[collective] / link.bytes_per_s + link.latency_s * rounds
        if product.pieces is not None and in_place:  # the rows are copied side by side
            total += 2 * received[collective] / hardware.copy_bytes_per_s
    return total


def overlapped_s(
    job: PlannedJob, name: str, arriving_s: np.ndarray, compute_s: np.ndarray, leaving_s: np.ndarray | float = 0.0
) -> np.ndarray:
    """(b, r) seconds in which a rank waits for transfers that travel while it computes.

    Args:
        arriving_s: of the rows. Those of a step travel while the step before is computed.
        compute_s: of all steps.
        leaving_s: of the gradients at these rows, which travel while the step after is computed.
    """
    product = job.products[name]
    steps = np.maximum(product.steps, 1)
    if product.pieces is not None:
        own_s = compute_s * product.own_nnz / np.maximum(product.rank_nnz, 1)
        return np.maximum(arriving_s - own_s, 0) + leaving_s
    first_is_own = bool((np.diag(product.transports) == OWN).all()) and product.stage_order == "diagonal"
    num_moved = np.maximum(steps - 1 if first_is_own else steps, 1)
    arriving, leaving = arriving_s / num_moved, leaving_s / num_moved
    hidden = (steps - 1) * np.maximum(arriving + leaving - compute_s / steps, 0)
    return hidden + (0 if first_is_own else arriving) + leaving


def joining_s(job: PlannedJob, received: dict[str, np.ndarray], hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of the collectives among ``received`` that nothing hides: those along the replicas."""
    total = np.zeros(job.num_own_rows.shape)
    for collective in ("gather", "reduce_scatter", "all_reduce"):
        if collective in received and received[collective].any():
            link = hardware.link(collective, job.grid.num_ranks)
            total += link.latency_s * (received[collective] > 0) + received[collective] / link.bytes_per_s
    return total
