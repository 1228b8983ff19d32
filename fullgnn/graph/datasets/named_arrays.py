"""The named arrays of an .npz file that may have come from anywhere, each checked for what it is to be."""

from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from fullgnn.errors import MAX_QUOTED, DataError, quoted
from fullgnn.graph.checks import first_line
from fullgnn.graph.csr import checked_csr
from fullgnn.storage.archive import Archive
from fullgnn.storage.arrays import MAGIC, DamagedArray, ObjectArray


class NamedArrays:
    """The named arrays of an npz file, each read on first access; its errors name the file, and end with ``cure``.

    Raises:
        DataError: the file is no npz file. A method raises it for an array that is missing, damaged or of another kind.
    """

    needs = "it has another layout"
    """What the error of an array that is missing says of the layout."""

    def __init__(self, file: Path, cure: str) -> None:
        self.file, self.cure = file, cure
        try:
            with file.open("rb") as stream:
                is_single = stream.read(len(MAGIC)) == MAGIC
            if is_single:
                raise DataError(f"{file} is a single numpy array, and a graph has several: {cure}")
            self.arrays = Archive(file)
        except (OSError, DamagedArray) as error:
            raise DataError(f"{file} is no npz file, or a truncated one ({reason_of_damage(error)}): {cure}") from error

    def __contains__(self, key: str) -> bool:
        return key in self.arrays.names

    def __getitem__(self, key: str) -> np.ndarray:
        return self._opened(key, False)

    def mapped(self, key: str) -> np.ndarray:
        """The array ``key``, mapped and read-only where the file holds it as it is; where it is packed, it is read."""
        return self._opened(key, True)

    def _opened(self, key: str, if_possible_mapped: bool) -> np.ndarray:
        if key not in self:
            names = quoted(", ".join(self.arrays.names)) or "none"
            raise DataError(f"{self.file} has no array {key!r}, only {names}: {self.needs}; {self.cure}")
        try:
            if if_possible_mapped and self.arrays.is_stored(key):
                return self.arrays.map(key)
            return self.arrays.read(key, f"{self.file}: array {key!r}", self.cure)
        except ObjectArray as error:
            raise DataError(
                f"{self.file}: array {key!r} holds Python objects, which are never read: save it as numbers, as in"
                " numpy.asarray(..., dtype=float)"
            ) from error
        except (OSError, DamagedArray) as error:
            reason = reason_of_damage(error)
            raise DataError(f"{self.file}: array {key!r} cannot be read ({reason}): {self.cure}") from error

    def optional(self, key: str) -> np.ndarray | None:
        """The array ``key``; None if the file does not have it."""
        return self[key] if key in self else None

    def integers(self, key: str) -> np.ndarray:
        """The array ``key``, whose numbers count something: floats are refused, not truncated."""
        array = self[key]
        if array.dtype.kind not in "iu":
            raise DataError(
                f"{self.file}: array {key!r} has dtype {array.dtype}, and takes integers: save"
                f" numpy.asarray({key}, dtype=numpy.int64)"
            )
        return array

    def integer(self, key: str) -> int:
        """The one integer of the array ``key``."""
        array = self.integers(key)
        if array.shape != ():
            raise DataError(f"{self.file}: array {key!r} has shape {array.shape}, and takes one integer: {self.cure}")
        return int(array)

    def text(self, key: str) -> str:
        """The one text of the array ``key``."""
        array = self[key]
        if array.shape != () or array.dtype.kind != "U":
            raise DataError(f"{self.file}: array {key!r} must be a text, as numpy.array('text'): {self.cure}")
        text = str(array)
        return text if text.isprintable() and len(text) <= MAX_QUOTED else quoted(text)

    def kind(self, key: str, length: int) -> str:
        """The kind of the dtype of the array ``key``, ``O`` for Python objects, which are never read; empty: it is no
        list of this ``length``, or absent, or damaged."""
        try:
            header = self.arrays.header(key) if key in self else None
        except DamagedArray as error:
            return "O" if isinstance(error, ObjectArray) else ""
        return header.dtype.kind if header is not None and header.shape == (length,) else ""

    def shape(self, prefix: str, kind: str = "CSR") -> tuple[int, ...]:
        """The shape of the sparse matrix of this ``kind`` whose arrays have this ``prefix``, such as ``adj_``."""
        shape = self.integers(f"{prefix}shape")
        if shape.shape != (2,):
            raise DataError(
                f"{self.file}: {prefix}* is no {kind} matrix ({prefix}shape has {shape.size} numbers): {self.cure}"
            )
        return tuple(map(int, shape))

    def sparse(self, prefix: str) -> csr_array:
        """The sparse matrix whose arrays have this ``prefix``."""
        shape, data = self.shape(prefix), self[f"{prefix}data"]
        indices, indptr = (self.integers(f"{prefix}{part}") for part in ("indices", "indptr"))
        try:
            return checked_csr(data, indices, indptr, shape)
        except ValueError as error:
            raise DataError(f"{self.file}: {prefix}* is no CSR matrix ({first_line(error)}): {self.cure}") from error


def reason_of_damage(error: Exception) -> str:
    """Why a file cannot be read, for a message."""
    return getattr(error, "strerror", None) or quoted(first_line(error))
