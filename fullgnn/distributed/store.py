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


_LOOK_S = 0.5  # seconds that a rank waits for an answer to a token that may be an earlier start's
_NAP_S = 0.01  # seconds between two looks at keys that are not waited for

_connection: dist.Store | None = None  # kept, because a store that rank 0 hosts lives as long as this object
_token = ""  # distinguishes this start of the ranks from earlier ones; the same on all ranks
_uses: Counter[str] = Counter()


def under_torchrun() -> bool:
    """Whether this process is a rank that torchrun, ``launch_workers`` or ``fork_workers`` has started."""
    return "TORCHELASTIC_RUN_ID" in os.environ or STORE_FILE in os.environ


def attempt() -> int:
    """torchrun's count of restarts on this machine. All machines start their ranks again when a rank has failed, but
    only the machine of that rank counts it, so that the counts of several machines differ."""
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
    global _connection, _token
    _uses[use] += 1
    if _connection is None:
        connection = _connect(timeout_s)
        _token = "" if is_file() else agree_on_token(connection, *_place(), timeout_s)
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


def agree_on_token(store: dist.Store, rank: int, size: int, timeout_s: float) -> str:
    """A random token, the same on all ranks, that no earlier start of the ranks has used.

    The ranks cannot count the starts: ``attempt`` differs among machines, and a rank may have ended before it wrote
    anything. So rank 0 draws the token. Another rank may read the token of an earlier start, which is still in the
    store. It therefore draws a token too, and accepts rank 0's when rank 0 has sent its own back: no earlier rank 0
    can have done that.

    Raises:
        AbsentRank: a rank has not come in ``timeout_s`` seconds.
    """
    own, deadline = uuid.uuid4().hex, time.monotonic() + timeout_s
    return _hand_out(store, own, size, deadline) if rank == 0 else _ask_for(store, own, rank, deadline)


def _hand_out(store: dist.Store, token: str, size: int, deadline: float) -> str:
    """Rank 0: publish the ``token``, and answer every other rank that has read it."""
    store.set("fullgnn/token", token)
    waiting = set(range(1, size))
    while True:
        for rank in sorted(waiting):
            question, answer = _handshake(token, rank)
            if store.check([question]):
                store.set(answer, store.get(question).decode())
                waiting.remove(rank)
        if not waiting:
            return token
        if time.monotonic() > deadline:
            raise AbsentRank(min(waiting))
        time.sleep(_NAP_S)


def _ask_for(store: dist.Store, own: str, rank: int, deadline: float) -> str:
    """Another ``rank``, with its ``own`` token: read rank 0's until rank 0 answers."""
    while time.monotonic() < deadline:
        with suppress(dist.DistStoreError):  # the key is not there yet
            store.wait(["fullgnn/token"], timedelta(seconds=_LOOK_S))
            token = store.get("fullgnn/token").decode()
            question, answer = _handshake(token, rank)
            store.set(question, own)
            store.wait([answer], timedelta(seconds=_LOOK_S))
            if store.get(answer).decode() == own:
                return token
            time.sleep(_NAP_S)
    raise AbsentRank(0)


def _handshake(token: str, rank: int) -> tuple[str, str]:
    """The keys under which ``rank`` asks, and rank 0 answers."""
    return f"fullgnn/{token}/question/{rank}", f"fullgnn/{token}/answer/{rank}"


def _prefixed(connection: dist.Store, use: str, timeout_s: float) -> dist.Store:
    store = dist.PrefixStore(f"fullgnn/{_token}/{use}/{_uses[use]}", connection)
    store.set_timeout(timedelta(seconds=timeout_s))
    return store
