"""Temporary folders, which go with the process that made them: at its end, or, if it was killed, at the next start.

Each folder holds a lock of its owner. The system releases the lock when the owner, and the ranks that it has forked,
have ended, however that happened.
"""

import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "fullgnn-"
_LOCK = ".owner"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make an empty folder on this machine, and remove it at the end of the ``with`` block.

    The first one of a process also removes those that killed processes of the same user have left.
    """
    remove_abandoned()
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
    with open(made / _LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = made.rename(made.with_name(made.name.removeprefix(".")))  # others see it with its lock only
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def remove_abandoned() -> None:
    """Remove the temporary folders whose owners have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with open(folder / _LOCK, "r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if there is an owner
                shutil.rmtree(folder, ignore_errors=True)
