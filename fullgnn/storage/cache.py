"""Cache of results for later runs: arrays on disk, keyed by a hash of the data that they were computed from.

A file ``<folder>/<kind>/<key>.npz`` is written atomically. Its key covers all that the arrays depend on, or what
identifies it: of a dataset's files the path, size and times. So jobs may share a folder, and any file may be deleted at
any time.
"""

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, TypeVar

import numpy as np

from fullgnn.errors import ConfigError, quoted, reason_of
from fullgnn.storage.archive import read_arrays
from fullgnn.storage.arrays import DamagedArray
from fullgnn.storage.folder import replacing

log = logging.getLogger(__name__)

T = TypeVar("T")

FORMAT = 1
"""Part of every key: increase it when the stored arrays, or the way to compute them, change."""

_NAMES = "__names__"  # names the other arrays of a file: a damaged zip directory may lose some without an error


class Cache:
    """The arrays stored in ``folder``; without a folder nothing is stored, loaded or hashed."""

    def __init__(self, folder: str | None):
        self.folder = None if folder is None else Path(folder).expanduser().absolute()

    def check(self) -> None:
        """Create the folder, and check that it can be written.

        Raises:
            ConfigError: the folder cannot be created or written.
        """
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise ConfigError(
                f"runtime.cache_dir={self.folder} cannot be written ({error.strerror}): choose another folder or null"
            ) from error

    def key(self, **parts: Any) -> str:
        """SHA-256 of the named ``parts``; an empty text if there is no folder.

        An array is hashed by its dtype, shape and bytes, without a copy if it is contiguous; anything else by its JSON.
        """
        if self.folder is None:
            return ""
        digest = hashlib.sha256()
        for name, part in {"format": FORMAT, **parts}.items():
            array = np.ascontiguousarray(part) if isinstance(part, np.ndarray) else None
            head = part if array is None else [part.dtype.str, part.shape]
            digest.update(json.dumps([name, array is not None, head], sort_keys=True, default=str).encode() + b"\n")
            if array is not None:
                digest.update(array.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def load(self, kind: str, key: str, make: Callable[[dict[str, np.ndarray]], T]) -> T | None:
        """What ``make`` makes of the arrays stored under ``kind`` and ``key``; None if there is no file.

        A file that is damaged, or of whose arrays ``make`` can make nothing, is ignored, and a warning is logged.
        """
        if self.folder is None:
            return None
        path = self.folder / kind / f"{key}.npz"
        try:
            return make(_read(path))
        except FileNotFoundError:
            return None
        except Exception as error:  # also memory that is too little: the arrays are computed anew
            log.warning("%s cannot be read (%s): it is not used", path, quoted(reason_of(error)))
            return None

    def store(self, kind: str, key: str, arrays: dict[str, np.ndarray]) -> None:
        """Store ``arrays`` in one atomic write. If it fails, a warning is logged and the run continues."""
        if self.folder is None:
            return
        path = self.folder / kind / f"{key}.npz"
        try:
            with replacing(path) as temporary:
                np.savez(temporary, **arrays, **{_NAMES: np.array(list(arrays))})  # type: ignore[arg-type]
        except OSError as error:
            log.warning("%s cannot be written (%s): the result is not cached", path, error.strerror or error)


def _read(source: Path | BinaryIO) -> dict[str, np.ndarray]:
    """Read the arrays of a .npz, with their checksums."""
    arrays = read_arrays(source)
    if arrays.pop(_NAMES).tolist() != list(arrays):
        raise DamagedArray("some arrays are missing")
    return arrays
