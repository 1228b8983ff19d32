"""Files and folders under temporary names, so that nothing half-written stays where another program finds it.

A file takes its name when it is complete, in one step, even if the program is interrupted. A folder goes with the
process that made it: at its end, or, if the process was killed, at the next start. The folder holds a lock of its
owner, which the system releases when the owner, and the ranks that it has forked, have ended, however that happened.
"""

import fcntl
import functools
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fullgnn.errors import ConfigError

PREFIX = "fullgnn-"
_LOCK = ".owner"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, with the same suffix, to be written inside the ``with`` block.

    At its end the temporary file takes the place of ``path`` in one step. If the block raises, the temporary file is
    removed and ``path`` is unchanged. The folder is created if it does not exist.

    Raises:
        OSError: the folder or the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` in one step; see :func:`replacing`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def make_folder(path: str | Path, key: str = "out") -> Path:
    """Create the folder ``path`` before a command does its work, so that a wrong path fails at once.

    Raises:
        ConfigError: the folder cannot be created; the message names ``key``, the configuration key of the path.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{key}={path} cannot be created ({error.strerror}): choose another folder") from error
    return folder


@contextmanager
def writing_to(key: str, folder: object) -> Iterator[None]:
    """Turn an ``OSError`` of the ``with`` block into a user error about the ``folder`` that a ``key`` names.

    Raises:
        ConfigError: the folder, or a file in it, cannot be written.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{key}={folder} cannot be written ({reason}): choose another folder") from error


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
