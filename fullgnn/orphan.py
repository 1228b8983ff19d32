"""End a rank when its launcher has ended, however that happened: no rank trains on without one.

It imports nothing that takes long, since a rank looks for its launcher first of all.
"""

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

LAUNCHER_PID = "FULLGNN_LAUNCHER_PID"
"""Environment variable of a rank that fullgnn has started: the process id of its launcher."""

_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>
_POLL_S = 1.0
_REFUSED_S = 1.0
"""Seconds for which nobody may listen where torchrun keeps its store, before the rank ends."""
_SELF, _PARENT = os.getpid(), os.getppid()  # as fullgnn is imported


def end_with_launcher() -> None:
    """Let the system kill this process when its parent ends, also if SIGKILL ends the parent. May be called repeatedly.

    On Linux the signal comes when the parent's thread that started this process ends. A launcher waits for its ranks in
    the thread that started them. Other systems lack this signal, so that a thread of this process looks for the parent.

    The parent may have ended before. Then this process has another one than its launcher has told, or than it had when
    it began to import fullgnn; and nobody listens where torchrun kept its store. (That the parent is process 1 means
    nothing: in a container, torchrun may be process 1.)
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    else:
        threading.Thread(target=_watch, daemon=True).start()
    end_if_orphaned()


def end_if_orphaned() -> None:
    """End this process if its launcher has ended."""
    if _has_another_parent() or _store_is_gone():
        _end()


def _has_another_parent() -> bool:
    parent = int(os.environ.get(LAUNCHER_PID, 0)) or (_PARENT if os.getpid() == _SELF else os.getppid())
    return os.getppid() != parent


def _store_is_gone() -> bool:
    """Whether a launcher of torch has started this process, and nobody listens where that launcher keeps its store.

    The store is there before the ranks, on the first machine. A machine that cannot be reached refuses nothing.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return False
    place, deadline = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), time.monotonic() + _REFUSED_S
    while True:
        try:
            socket.create_connection(place, timeout=_REFUSED_S).close()
            return False
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                return True
            time.sleep(_REFUSED_S / 10)
        except OSError:
            return False


def _watch() -> NoReturn:
    while not _has_another_parent():
        time.sleep(_POLL_S)
    _end()


def _end() -> NoReturn:
    os._exit(128 + signal.SIGKILL)
