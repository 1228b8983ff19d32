"""The key-value store in which the ranks of a job find each other.

torchrun keeps one store while its ranks run, also when it starts them again (``--max-restarts``); ranks that fullgnn
has started share a file instead. Keys that are written there stay. So each attempt has its own key prefix, and in it
each use of the store, since a script may train several times: the name of the use and a counter. All ranks use the
store for the same purposes in the same order, so that their counters agree.
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


def attempt() -> int:
    """How often torchrun has started the ranks of this job before, because one of them failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def is_file() -> bool:
    """Whether the store of the job is a file, which all its ranks, on one machine, share."""
    return STORE_FILE in os.environ


def job_store(use: str, timeout_s: float) -> dist.Store:
    """Connect to the store of the job that the environment describes, with a new key prefix for this ``use``.

    Args:
        timeout_s: seconds after which connecting, or waiting for a key, raises RuntimeError.
    """
    global _connection
    _uses[use] += 1
    if _connection is None:
        _connection = _connect(timeout_s)
    return _prefixed(_connection, use, timeout_s)


def another_connection(use: str, timeout_s: float) -> dist.Store:
    """The store that the latest ``job_store`` of this ``use`` has returned, over a connection of its own: a thread that
    shares a connection would wait while another thread waits for a key."""
    return _prefixed(_connect(timeout_s), use, timeout_s)


def _connect(timeout_s: float) -> dist.Store:
    if path := os.environ.get(STORE_FILE):
        return dist.FileStore(path)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return next(dist.rendezvous("env://", rank, size, timeout=timedelta(seconds=timeout_s)))[0]


def _prefixed(connection: dist.Store, use: str, timeout_s: float) -> dist.Store:
    store = dist.PrefixStore(f"fullgnn/{attempt()}/{use}/{_uses[use]}", connection)
    store.set_timeout(timedelta(seconds=timeout_s))
    return store
