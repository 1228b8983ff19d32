"""The time of what a task that finds links does beside the model: draws, partners' rows on their way, and scores."""

import numpy as np

from fullgnn.costs.hardware import Hardware
from fullgnn.costs.product_time import gather_s_per_byte
from fullgnn.costs.statistics import PlannedJob

ROWS_OF_SCORE = 2 + 4
"""Rows that the score of a pair reads or writes: its two in the forward pass; in the backward pass these again, and
their gradients."""

DENSE_PASSES = 6
"""Passes over the rows of a rank in a step: zeros for two gradients, and their sum."""


def link_s(job: PlannedJob, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of an epoch in which each rank draws and scores pairs."""
    links, row_bytes = job.links, job.graph.num_classes * job.dtype.itemsize
    assert links is not None
    draws = links.of_ranks(links.draws.ravel())
    drawn_s = draws * (links.width - 1) * hardware.draw_s
    scores_s = draws * links.width * ROWS_OF_SCORE * row_bytes * gather_s_per_byte(job, job.rows, row_bytes, hardware)
    passes_s = links.num_steps * DENSE_PASSES * job.num_own_rows * row_bytes / hardware.copy_bytes_per_s
    return drawn_s + scores_s + passes_s


def link_waiting_s(job: PlannedJob, hardware: Hardware) -> np.ndarray:
    """(b, r) seconds of an epoch in which each rank waits for the rows of partners, and for gradients of its own."""
    links, row_bytes = job.links, job.graph.num_classes * job.dtype.itemsize
    size = job.grid.num_ranks
    if links is None or size == 1:
        return np.zeros(job.num_own_rows.shape)
    received = links.bytes_received(row_bytes)
    moved = received["exchange"] + received["push"]
    messages = hardware.link("exchange", size)
    finding_s = 5 * messages.latency_s + received["ids"] / messages.bytes_per_s
    if job.shares_memory(hardware.device):  # two rounds a step; a row is written to a slot, and read from there
        copied = 2 * moved + 2 * links.num_steps * job.num_own_rows * row_bytes
        rounds_s = 2 * links.num_steps * hardware.link("shared", size).latency_s
        return finding_s + rounds_s + copied / hardware.copy_bytes_per_s
    return finding_s + 2 * links.num_steps * messages.latency_s + moved / messages.bytes_per_s
