"""The stages of 1.5D: which block a rank multiplies in which stage, and which replica computes which stage."""

import itertools

import numpy as np


def stage_source(part: int, stage: int, num_parts: int, stage_order: str) -> int:
    """The block column that block row ``part`` multiplies in ``stage``."""
    return stage if stage_order == "broadcast" else (part + stage) % num_parts


def stage_sources(num_parts: int, stage_order: str) -> np.ndarray:
    """(b, b) int64: ``stage_source`` of each block row (first index) in each stage (second)."""
    stages = np.arange(num_parts)
    return np.tile(stages, (num_parts, 1)) if stage_order == "broadcast" else (stages[:, None] + stages) % num_parts


def stage_nnz(block_nnz: np.ndarray, stage_order: str) -> np.ndarray:
    """(b, b) non-zeros of each block row (first index) in each stage (second)."""
    return np.take_along_axis(block_nnz, stage_sources(len(block_nnz), stage_order), axis=1)


def assign_stages(block_nnz: np.ndarray, replication: int) -> list[list[int]]:
    """Assign every stage to one replica, so that the replicas' stage counts differ by at most one.

    In stage j, block row i multiplies the ``block_nnz[i, j]`` non-zeros of its block. Two assignments are compared:
    runs of consecutive stages, and a greedy one that gives each stage, the heaviest first, to the least loaded replica.
    The result is the assignment whose most loaded rank multiplies fewer non-zeros.

    Args:
        block_nnz: (b, b) int64, non-zeros of each block.
        replication: number of replicas r.

    Returns:
        r ascending lists of stage ids.
    """
    num_stages = block_nnz.shape[1]
    bounds = np.arange(replication + 1) * num_stages // replication
    runs = [list(range(start, stop)) for start, stop in itertools.pairwise(bounds)]
    greedy = _least_loaded(block_nnz, replication)
    return min(runs, greedy, key=lambda shares: _heaviest(block_nnz, shares))


def rank_sums(by_stage: np.ndarray, shares: list[list[int]]) -> np.ndarray:
    """Sum a (b, stages) quantity, such as non-zeros, over the stages of each rank: (b, r)."""
    return np.stack([by_stage[:, stages].sum(axis=1) for stages in shares], axis=1)


def _least_loaded(block_nnz: np.ndarray, replication: int) -> list[list[int]]:
    num_stages = block_nnz.shape[1]
    small, num_large = divmod(num_stages, replication)
    shares: list[list[int]] = [[] for _ in range(replication)]
    load = np.zeros((block_nnz.shape[0], replication), np.int64)
    for stage in np.argsort(-block_nnz.sum(axis=0), kind="stable"):
        full_large = sum(len(stages) > small for stages in shares)
        open_shares = [
            k
            for k, stages in enumerate(shares)
            if len(stages) < small or (len(stages) == small and full_large < num_large)
        ]
        k = min(open_shares, key=lambda k: ((load[:, k] + block_nnz[:, stage]).max(), len(shares[k])))
        shares[k].append(int(stage))
        load[:, k] += block_nnz[:, stage]
    return [sorted(stages) for stages in shares]


def _heaviest(block_nnz: np.ndarray, shares: list[list[int]]) -> int:
    return int(rank_sums(block_nnz, shares).max(initial=0))
