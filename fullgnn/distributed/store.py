"""The key-value store in which the ranks of a job find each other.

torchrun keeps one store while its ranks run, also when it starts them again (``--max-restarts``); ranks that fullgnn
has started share a file instead. Keys that are written there stay. So each start of the ranks has its own key prefix,
and in it each use of the store, since a script may train several times: the name of the use and a counter. All ranks
use the store for the same purposes in the same order, so that their counters agree.
"""

import os
import time
import uuid
from collections import Counter
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist

STORE_FILE = "FULLGNN_STORE_FILE"
"""Environment variable of a rank that fullgnn has started: the path of the file that is the store of its job."""


class AbsentRank(dist.DistStoreError):
    """A rank of the job has not come in time."""

    def __init__(self, rank: int):
        super().__init__(f"rank {rank} has not joined the job")


_LOOK_S = 0.5  # seconds in which a rank waits for a key of a start that may be an earlier one
_NAP_S = 0.01  # seconds between two looks at keys that are not waited for

_connection: dist.Store | None = None  # kept, because a store that rank 0 hosts lives as long as this object
_start = ""  # what distinguishes this start of the ranks from those before, the same on all ranks
_uses: Counter[str] = Counter()


def under_torchrun() -> bool:
    """Whether this process is a rank that torchrun, ``launch_workers`` or ``fork_workers`` has started."""
    return "TORCHELASTIC_RUN_ID" in os.environ or STORE_FILE in os.environ


def attempt() -> int:
    """How often torchrun has started the ranks again because one of this machine has failed. Where it runs on several
    machines, the count differs among them: all start their ranks again when one of them does, and only that one counts.
    """
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def is_file() -> bool:
    """Whether the store of the job is a file, which all its ranks, on one machine, share."""
    return STORE_FILE in os.environ


def job_store(use: str, timeout_s: float) -> dist.Store:
    """Connect to the store of the job that the environment describes, with a new key prefix for this ``use``.

    The first call on a rank returns when rank 0 has called this function too, and on rank 0 when all ranks have.

    Args:
        timeout_s: seconds after which connecting, or waiting for a key, raises RuntimeError.

    Raises:
        AbsentRank: a rank has not come in that time.
    """
    global _connection, _start
    _uses[use] += 1
    if _connection is None:
        connection = _connect(timeout_s)
        _start = "" if is_file() else agree_on_start(connection, *_place(), timeout_s)
        _connection = connection
    return _prefixed(_connection, use, timeout_s)


def another_connection(use: str, timeout_s: float) -> dist.Store:
    """The store that the latest ``job_store`` of this ``use`` has returned, over a connection of its own: a thread that
    shares a connection would wait while another thread waits for a key."""
    return _prefixed(_connect(timeout_s), use, timeout_s)


def _connect(timeout_s: float) -> dist.Store:
    if path := os.environ.get(STORE_FILE):
        return dist.FileStore(path)
    return next(dist.rendezvous("env://", *_place(), timeout=timedelta(seconds=timeout_s)))[0]


def _place() -> tuple[int, int]:
    """This process's rank, and the number of ranks."""
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def agree_on_start(store: dist.Store, rank: int, size: int, timeout_s: float) -> str:
    """A word that all ranks of this start of the job have, and that no earlier start had.

    The ranks cannot count the starts: ``attempt`` differs among machines, and a rank may have ended before it wrote
    anything. So rank 0 makes a word up. A rank may find that of an earlier start, and take it for this one's; hence it
    makes up a word as well, and goes on when it has been answered with its own, which an ended rank 0 cannot have done.
    """
    own, deadline = uuid.uuid4().hex, time.monotonic() + timeout_s
    if rank == 0:
        store.set("fullgnn/start", own)
        waiting = set(range(1, size))
        while waiting:
            for other in sorted(waiting):
                hello, welcome = (f"fullgnn/{own}/{word}/{other}" for word in ("hello", "welcome"))
                if store.check([hello]):
                    store.set(welcome, store.get(hello).decode())
                    waiting.remove(other)
            if waiting and time.monotonic() > deadline:
                raise AbsentRank(min(waiting))
            time.sleep(_NAP_S if waiting else 0)
        return own
    while time.monotonic() < deadline:
        with suppress(dist.DistStoreError):  # it is not there yet
            store.wait(["fullgnn/start"], timedelta(seconds=_LOOK_S))
            start = store.get("fullgnn/start").decode()
            hello, welcome = (f"fullgnn/{start}/{word}/{rank}" for word in ("hello", "welcome"))
            store.set(hello, own)
            store.wait([welcome], timedelta(seconds=_LOOK_S))
            if store.get(welcome).decode() == own:
                return start
            time.sleep(_NAP_S)
    raise AbsentRank(0)


def _prefixed(connection: dist.Store, use: str, timeout_s: float) -> dist.Store:
    store = dist.PrefixStore(f"fullgnn/{_start}/{use}/{_uses[use]}", connection)
    store.set_timeout(timedelta(seconds=timeout_s))
    return store
