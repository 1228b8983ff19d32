"""Sharing the stages of 1.5D over the replicas."""

import numpy as np


def share_stages(block_nnz: np.ndarray, replication: int) -> list[list[int]]:
    """Give each replica index its stages: every stage to one replica, counts equal within one.

    Stage j costs block row i the ``block_nnz[i, j]`` non-zeros of its block. Two ways are compared, runs of consecutive
    stages and heaviest first to the least loaded, and the one whose most loaded rank has less to multiply is taken.

    Args:
        block_nnz: (b, b) int64, non-zeros of each block.
        replication: number of replicas r.

    Returns:
        r ascending lists of stage ids.
    """
    num_stages = block_nnz.shape[1]
    bounds = np.arange(replication + 1) * num_stages // replication
    runs = [list(range(start, stop)) for start, stop in zip(bounds[:-1], bounds[1:])]
    greedy = _least_loaded(block_nnz, replication)
    return min(runs, greedy, key=lambda shares: _heaviest(block_nnz, shares))


def rank_sums(by_stage: np.ndarray, shares: list[list[int]]) -> np.ndarray:
    """(b, r): of a number for each block row and stage, as its non-zeros, the sum over the stages of each rank."""
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
