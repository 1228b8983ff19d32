"""End a rank when its launcher has ended, however that happened: no rank trains on without one."""

import ctypes
import os
import signal
import sys
import threading
import time
from typing import NoReturn

LAUNCHER_PID = "FULLGNN_LAUNCHER_PID"
"""Environment variable of a rank that fullgnn has started: the process id of its launcher."""

_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>
_POLL_S = 1.0


def end_with_launcher() -> None:
    """Let the system kill this process when its parent ends, also if SIGKILL ends the parent. May be called repeatedly.

    On Linux the signal comes when the parent's thread that started this process ends. A launcher waits for its ranks in
    the thread that started them. Other systems lack this signal, so that a thread of this process looks for the parent.
    """
    parent = int(os.environ.get(LAUNCHER_PID, os.getppid()))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # the parent had ended before the call
        _end()


def _watch(parent: int) -> NoReturn:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    _end()


def _end() -> NoReturn:
    os._exit(128 + signal.SIGKILL)
