"""Atomic writes: a file appears complete or not at all, even if the program is interrupted."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fullgnn.errors import ConfigError


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
