"""A token on which the ranks of one start agree, in a store in which torchrun has left the keys of earlier starts."""

import time
import uuid
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist

_LOOK_S = 0.5  # seconds that a rank waits for an answer to a token that may be an earlier start's
_NAP_S = 0.01  # seconds between two looks at keys that are not waited for


class AbsentRank(dist.DistStoreError):
    """A rank of the job has not come in time."""

    def __init__(self, rank: int):
        super().__init__(f"rank {rank} has not joined the job")


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
