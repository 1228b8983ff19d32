"""Wait for a GPU whose work needs what other ranks send, for no longer than a rank is waited for.

NCCL's watchdog ends an operation that takes longer than the timeout of its group. It never sees the operations of a
CUDA graph, which are captured once and replayed by the GPU alone. A replay that waits for a lost rank would therefore
keep the host waiting in ``torch.cuda.Event.synchronize`` for ever.
"""

import time
from typing import Protocol

from fullgnn.distributed.presence import Silence, present

_SPIN_S = 1e-3
"""Seconds in which the event is asked again and again, since most waits are short."""
_NAP_SHARE, LONGEST_NAP_S = 1 / 64, 1e-2
"""A nap as a fraction of the time of the wait so far, by which a wait is longer at most; and the bound of a nap."""


class Event(Protocol):
    """The methods of ``torch.cuda.Event`` that a wait needs."""

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...


def wait_for_gpu(event: Event) -> None:
    """Return when the GPU has come to ``event``.

    In a job of one rank this is ``event.synchronize()``: no other rank can keep the GPU waiting. Otherwise time counts
    as in ``Silence``, so that a job that was suspended goes on.

    Raises:
        TimeoutError: it has not in ``runtime.timeout_s`` seconds. ``joining.py`` turns it into a ``LostRank``, which
            names the ranks that show no sign of life.
    """
    ranks = present()
    if ranks is None or ranks.size == 1:
        event.synchronize()
        return
    begin, silence = time.monotonic(), Silence()
    while not event.query():
        if (waited := time.monotonic() - begin) < _SPIN_S:
            continue
        time.sleep(min(_NAP_SHARE * waited, LONGEST_NAP_S))
        if silence.look(False) > ranks.timeout_s:
            raise TimeoutError(f"a GPU did not complete its work within {ranks.timeout_s:g} s")
