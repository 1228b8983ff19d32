"""The key-value store in which the ranks of a job find each other.

torchrun keeps one store for as long as its ranks run, and what is written there stays. A script may train several
times, so each use of the store has a prefix of its own: its name and how often the process has come to it. All ranks
come to the same uses in the same order, so they count alike.
"""

import os
from collections import Counter
from datetime import timedelta

import torch.distributed as dist

_connection: dist.Store | None = None  # kept: where rank 0 hosts the store, it lives as long as this
_uses: Counter[str] = Counter()


def job_store(use: str, timeout_s: float) -> dist.Store:
    """The store of the job that torchrun's environment describes, with keys that no earlier ``use`` has written.

    Args:
        timeout_s: after which connecting, and waiting for a key, raises RuntimeError.
    """
    global _connection
    _uses[use] += 1
    timeout = timedelta(seconds=timeout_s)
    if _connection is None:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        _connection, _, _ = next(dist.rendezvous("env://", rank, size, timeout=timeout))
    store = dist.PrefixStore(f"fullgnn/{use}/{_uses[use]}", _connection)
    store.set_timeout(timeout)
    return store
