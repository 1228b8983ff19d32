"""Encoded rows of all nodes in a file, which the ranks of a machine map in place of memory that they share.

    rank 0            encodes the features and writes the rows, some at a time, unless an earlier run has kept them
    another machine   that does not see the file receives the rows, some at a time, and writes a file of its own
    each rank         maps the file, read-only: rows are read from disk when they are gathered, and the system drops
                      them from memory when it is short of it

With ``runtime.cache_dir`` the file ``encoded/KEY.npy`` is kept there. ``encoded/KEY.npz`` beside it has its size and
checksum, and what the codec has learnt. Without it, the file is in a temporary folder, and is removed as soon as all
ranks have mapped it; its space on the disk is free again when they have ended.
"""

import logging
from contextlib import ExitStack
from pathlib import Path
from tempfile import gettempdir

import numpy as np

from fullgnn.codecs import Codec, EncodedRows, Features
from fullgnn.codecs.encoded import KIND, State, has_state
from fullgnn.distributed import (
    World,
    all_gather_objects,
    broadcast_object,
    on_every_rank,
    receive_arrays,
    send_arrays,
)
from fullgnn.errors import DataError, quoted, reason_of
from fullgnn.storage.arrays import DamagedArray, file_checksum, map_npy, row_blocks, write_npy
from fullgnn.storage.cache import Cache
from fullgnn.storage.folder import replacing, temporary_folder, writing_to

log = logging.getLogger(__name__)

_FILE = "__file__"  # name of the size and the checksum of the rows, beside the arrays of the codec's state


class RowFiles(ExitStack):
    """The file of a run. At the end of the ``with`` block a temporary file is removed.

    Args:
        cache: where the file is kept.
        keys: of the codec.
    """

    def __init__(self, cache: Cache, keys: dict[str, object]):
        super().__init__()
        self._cache, self._keys = cache, keys
        self._path: Path | None = None

    def write(self, codec: Codec, features: Features) -> tuple[np.ndarray, State]:
        """Encode the ``features`` to a file, unless it is there. Rank 0 calls this.

        Returns:
            (num_nodes, W) rows, mapped and read-only, and the codec's state.

        Raises:
            ConfigError: the file cannot be written.
        """
        if self._cache.folder is None:
            with writing_to("TMPDIR", gettempdir()):
                self._path = self.enter_context(temporary_folder()) / "rows.npy"
                state, _ = _encode_to(self._path, codec, features)
            return map_npy(self._path, read_only=True), state
        key = self._cache.key(codec=self._keys, **features.identity(codec), mapped=True)
        self._path = self._cache.folder / KIND / f"{key}.npy"
        kept = self._cache.load(KIND, key, lambda arrays: (arrays.pop(_FILE).tolist(), arrays))
        if kept is not None and _is_whole(self._path, kept[0]):
            return map_npy(self._path, read_only=True), kept[1]
        with writing_to("runtime.cache_dir", self._cache.folder), replacing(self._path) as temporary:
            state, about = _encode_to(temporary, codec, features)
        self._cache.store(KIND, key, {_FILE: np.array(about), **state})
        return map_npy(self._path, read_only=True), state

    def share(self, world: World) -> np.ndarray:
        """(num_nodes, W) rows, mapped and read-only. Every rank calls it, after ``write`` on rank 0.

        Raises:
            ConfigError, DataError: a machine cannot write or map its file; the same on every rank.
        """
        path: Path = broadcast_object(self._path)
        first = world.rank - world.rank % world.local_size
        sees = all_gather_objects(_sees(path))
        blind = [leader for leader in range(0, world.size, world.local_size) if not sees[leader]]
        rows = map_npy(path, read_only=True) if world.rank == 0 else None
        received = _Received(*broadcast_object(None if rows is None else (rows.shape, rows.dtype)))
        if rows is not None:
            for leader in blind:
                for some in row_blocks(rows):
                    send_arrays({"rows": rows[some]}, leader)

        def receive() -> Path:
            if world.rank not in blind:
                return path
            try:
                with writing_to("TMPDIR", gettempdir()):
                    local = self.enter_context(temporary_folder()) / "rows.npy"
                    write_npy(local, received)
                    return local
            finally:
                received.skip_rest()

        local = all_gather_objects(on_every_rank(receive))[first]
        return on_every_rank(lambda: _mapped(local))  # its collective: nobody removes a file before all have mapped it


def _encode_to(path: Path, codec: Codec, features: Features) -> tuple[State, tuple[int, int]]:
    """Write the encoded rows; returns the codec's state, and the size and the checksum of the file."""
    rows = EncodedRows.of(codec, features)
    about = write_npy(path, codec.encode(features.whole()) if rows is None else rows)
    return codec.state() if has_state(codec) else {}, about  # type: ignore[attr-defined]


def _is_whole(file: Path, about: list[int]) -> bool:
    """Whether the ``file`` that an earlier run has kept has its size and checksum. A warning says what is wrong."""
    try:
        actual = [file.stat().st_size, file_checksum(file)]
        if actual == about:
            return True
        reason = f"{actual[0]} bytes instead of {about[0]}" if actual[0] != about[0] else "checksum"
    except OSError as error:
        reason = error.strerror or str(error)
    log.warning("%s cannot be read (%s): it is not used", file, quoted(reason))
    return False


def _sees(path: Path) -> bool:
    """Whether this machine has the file."""
    return path.is_file()


def _mapped(path: Path) -> np.ndarray:
    try:
        return map_npy(path, read_only=True)
    except (OSError, DamagedArray) as error:
        raise DataError(f"{path} cannot be mapped ({quoted(reason_of(error))}): start the run again") from error


class _Received:
    """Rows that rank 0 sends, block by block in their order."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype):
        self.shape, self.dtype = shape, dtype
        self._left = sum(1 for _ in row_blocks(self))

    def __getitem__(self, rows: slice) -> np.ndarray:
        self._left -= 1
        return receive_arrays(0)["rows"]

    def skip_rest(self) -> None:
        """Receive what is left, since rank 0 waits for that."""
        while self._left:
            self[:]
