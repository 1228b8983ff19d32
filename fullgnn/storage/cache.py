"""What runs leave for later runs: arrays on disk, found by the content that they were computed from.

A file ``<folder>/<kind>/<key>.npz`` is written once, whole, and never changed; its key says all that it depends on. So
nothing is ever out of date, jobs may share a folder, and any file may be deleted at any time.
"""

import hashlib
import json
import logging
import zipfile
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np

from fullgnn.errors import ConfigError
from fullgnn.storage.atomic import replacing

log = logging.getLogger(__name__)

FORMAT = 1
"""Part of every key: raise it when what is stored, or the way to compute it, changes."""

_NAMES = "__names__"  # lists the other arrays of a file: a damaged directory may lose some without an error


class Cache:
    """The arrays kept in ``folder``; without one nothing is kept, found or hashed."""

    def __init__(self, folder: str | None):
        self.folder = None if folder is None else Path(folder).expanduser().absolute()

    def check(self) -> None:
        """Make the folder, and write to it.

        Raises:
            ConfigError: that is not possible.
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
        """SHA-256 of the named ``parts``, or an empty text without a folder.

        An array counts with its dtype, shape and bytes, which are read where they lie; anything else as its JSON.
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

    def load(self, kind: str, key: str) -> dict[str, np.ndarray] | None:
        """What was stored under ``kind`` and ``key``, to the bit. A damaged file counts as none, with a warning."""
        if self.folder is None:
            return None
        path = self.folder / kind / f"{key}.npz"
        try:
            return _read(path)
        except FileNotFoundError:
            return None
        except Exception as error:  # zipfile and numpy raise whatever the damage leads them to, at any length
            log.warning("%s cannot be read (%s): it is not used", path, type(error).__name__)
            return None

    def store(self, kind: str, key: str, arrays: dict[str, np.ndarray]) -> None:
        """Keep ``arrays``; readers see the file whole or not at all. A run goes on, with a warning, if it cannot."""
        if self.folder is None:
            return
        path = self.folder / kind / f"{key}.npz"
        try:
            with replacing(path) as temporary:
                np.savez(temporary, **arrays, **{_NAMES: np.array(list(arrays))})  # type: ignore[arg-type]
        except OSError as error:
            log.warning("%s cannot be written (%s): it is not kept", path, error.strerror or error)


def _read(source: Path | BinaryIO) -> dict[str, np.ndarray]:
    """The arrays of a .npz, each member read to its end: only there does zipfile compare the checksum."""
    arrays = {}
    with zipfile.ZipFile(source) as archive:
        for member in archive.namelist():
            with archive.open(member) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
                if file.read():
                    raise ValueError(f"{member} is longer than its array")
            arrays[member.removesuffix(".npy")] = array
    if arrays.pop(_NAMES).tolist() != list(arrays):
        raise ValueError("some arrays are missing")
    return arrays
