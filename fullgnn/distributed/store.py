"""The key-value store in which the ranks of a job find each other.

torchrun keeps one store while its ranks run; ranks that fullgnn has started share a file instead. Keys that are written
there stay. A script may train several times, so each use of the store has its own key prefix: the name of the use and a
counter. All ranks use the store for the same purposes in the same order, so that their counters agree.
"""

import os
from collections import Counter
from datetime import timedelta

import torch.distributed as dist

STORE_FILE = "FULLGNN_STORE_FILE"
"""Environment variable of a rank that fullgnn has started: the path of the file that is the store of its job."""

_connection: dist.Store | None = None  # kept, because a store that rank 0 hosts lives as long as this object
_uses: Counter[str] = Counter()


def under_torchrun() -> bool:
    """Whether this process is a rank that torchrun, ``launch_workers`` or ``fork_workers`` has started."""
    return "TORCHELASTIC_RUN_ID" in os.environ or STORE_FILE in os.environ


def job_store(use: str, timeout_s: float) -> dist.Store:
    """Connect to the store of the job that the environment describes, with a new key prefix for this ``use``.

    Args:
        timeout_s: seconds after which connecting, or waiting for a key, raises RuntimeError.
    """
    global _connection
    _uses[use] += 1
    timeout = timedelta(seconds=timeout_s)
    if _connection is None:
        if path := os.environ.get(STORE_FILE):
            _connection = dist.FileStore(path)
        else:
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            _connection, _, _ = next(dist.rendezvous("env://", rank, size, timeout=timeout))
    store = dist.PrefixStore(f"fullgnn/{use}/{_uses[use]}", _connection)
    store.set_timeout(timeout)
    return store
