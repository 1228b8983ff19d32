"""Arrays of .npy files, measured before they are read: what a header announces must be there, and fit.

Nothing in a file is trusted. An array of a header with 10^12 elements is refused before memory is allocated. No array
of Python objects is read, whose bytes would be run as a pickle. ``archive.py`` reads .npz files in the same way.
"""

import ast
import io
import itertools
import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from fullgnn.errors import FullGNNError, quoted
from fullgnn.telemetry.machine import check_fits

MAGIC = b"\x93NUMPY"
"""How every .npy begins."""

_ALIGNMENT = 64  # bytes, that of memory from torch
_MAX_HEADER = 10_000  # bytes, numpy's own limit
_CHUNK = 1 << 20  # bytes that are read at once
_BLOCK = 1 << 22  # bytes that are written, or added to a checksum, at once
_KINDS = "biufcSUMm"  # of dtypes whose bytes are plain values


class DamagedArray(ValueError):
    """An array, or the archive that should have it, cannot be read; the message says why, and cuts text of the file."""


class ObjectArray(DamagedArray):
    """The array holds Python objects, which are never read."""


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class SomeRows(Protocol):
    """An array, or what makes some rows of one when they are asked for: not all of them need to be in memory."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    def __getitem__(self, rows: slice, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Header:
    """What the beginning of a .npy says, after it has been compared with the size of the file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int  # bytes before the values

    @property
    def num_bytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(stream: BinaryIO, size: int) -> np.ndarray:
    """The array of a .npy file of ``size`` bytes; raises as ``Archive.read``."""
    with damage():
        header = read_header(stream, size)
        check_fits(header.num_bytes, "an array", "it may be damaged")
        return read_values(stream, header)


def row_blocks(array: SomeRows) -> Iterator[slice]:
    """The slices of some megabytes in which ``write_npy`` takes ``array``, in order."""
    row_bytes = max(1, math.prod(array.shape[1:]) * array.dtype.itemsize)
    step = max(1, _BLOCK // row_bytes)
    return (slice(first, first + step) for first in range(0, array.shape[0], step))


def write_npy(file: Path, array: SomeRows) -> tuple[int, int]:
    """Write ``array`` to a .npy file, some rows at a time; returns the size and the checksum of the file.

    Raises:
        OSError: the file cannot be written.
    """
    header = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(header, about)
    size, checksum = 0, 0
    pieces = (np.ascontiguousarray(array[rows]) for rows in row_blocks(array))
    with file.open("wb", buffering=0) as stream:
        for piece in itertools.chain([np.frombuffer(header.getvalue(), np.uint8)], pieces):
            rest = piece.reshape(-1).view(np.uint8).data
            checksum = zlib.crc32(rest, checksum)
            size += len(rest)
            while len(rest):
                rest = rest[stream.write(rest) :]
    return size, checksum


def file_checksum(file: Path) -> int:
    """The checksum of a file, as ``write_npy`` returns it.

    Raises:
        OSError: the file cannot be read.
    """
    checksum, block = 0, bytearray(_BLOCK)
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(block):
            checksum = zlib.crc32(memoryview(block)[:count], checksum)
    return checksum


def map_npy(file: Path, read_only: bool = False) -> np.ndarray:
    """The array of a .npy file, mapped into memory; writing to the array does not change the file.

    Args:
        read_only: whether the array cannot be written to. The system then lets it be larger than the memory.

    Raises:
        DamagedArray: the file is damaged.
        OSError: the file cannot be opened.
    """
    with damage(), file.open("rb") as stream:
        header = read_header(stream, file.stat().st_size)
    return mapped(file, header, 0, "r" if read_only else "c")


def mapped(file: Path, header: Header, begin: int, mode: str) -> np.ndarray:
    """The array of a .npy that begins at the byte ``begin`` of ``file``."""
    if not header.num_bytes:  # nothing can be mapped
        return np.empty(header.shape, header.dtype)
    order = "F" if header.fortran_order else "C"
    place = begin + header.offset
    mapped = np.memmap(file, header.dtype, mode, place, header.shape, order)  # type: ignore[call-overload]
    return mapped.view(np.ndarray)


def read_header(stream: _Stream, size: int) -> Header:
    """Read the beginning of a .npy of ``size`` bytes, up to its values.

    Raises:
        DamagedArray: it is not the beginning of a .npy, or announces another size.
        ObjectArray: the array holds Python objects.
    """
    start = stream.read(8)
    if start[:6] != MAGIC or len(start) < 8 or start[6] not in (1, 2, 3):
        raise DamagedArray("it is no .npy")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    text = stream.read(length) if length <= _MAX_HEADER else b""
    if len(text) < length:
        raise DamagedArray(f"its header has {len(text)} of {length} bytes")
    try:
        about = ast.literal_eval(re.sub(r"(?<=\d)L(?=[,)])", "", text.decode("utf-8" if start[6] == 3 else "latin1")))
        descr, fortran_order, shape = about["descr"], about["fortran_order"], about["shape"]
        known = set(about) == {"descr", "fortran_order", "shape"} and isinstance(fortran_order, bool)
        if not known or not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError
    except Exception as error:  # the text may be anything
        raise DamagedArray(f"its header is {quoted(text.decode('latin1'))}") from error
    header = Header(_dtype(descr), shape, fortran_order, 8 + width + length)
    if header.offset + header.num_bytes != size:
        raise DamagedArray(
            f"its header announces {header.num_bytes} bytes of values, and there are {max(0, size - header.offset)}"
        )
    return header


def _dtype(descr: object) -> np.dtype:
    """The dtype with this text, if its values are plain."""
    if isinstance(descr, str) and descr.lstrip("<>|=")[:1] == "O":
        raise ObjectArray("it holds Python objects")
    try:
        if not isinstance(descr, str) or len(descr) > 30:
            raise ValueError
        dtype = np.dtype(descr)
        if dtype.kind not in _KINDS or dtype.hasobject or dtype.shape:
            raise ValueError
    except Exception as error:
        raise DamagedArray(f"its values have the dtype {quoted(descr)}, and are no numbers") from error
    return dtype


def read_values(stream: _Stream, header: Header) -> np.ndarray:
    """The values of a .npy whose ``header`` has just been read from ``stream``; the ``stream`` must end with them."""
    array = _empty(math.prod(header.shape), header.dtype)
    if header.num_bytes:
        into, done = array.view(np.uint8).data, 0
        while done < header.num_bytes:
            piece = stream.read(min(_CHUNK, header.num_bytes - done))
            if not piece:
                raise DamagedArray(f"its values end after {done} of {header.num_bytes} bytes")
            into[done : done + len(piece)] = piece
            done += len(piece)
    if stream.read(1):  # the checksum is compared at the end
        raise DamagedArray("it is longer than its array")
    return array.reshape(header.shape, order="F" if header.fortran_order else "C")


def _empty(count: int, dtype: np.dtype) -> np.ndarray:
    """(count,) uninitialised, aligned like a tensor of torch: the last bit of a library's sums may depend on that."""
    num_bytes = count * dtype.itemsize
    memory = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + num_bytes].view(dtype) if num_bytes else np.empty(count, dtype)


@contextmanager
def damage() -> Iterator[None]:
    """Turn what a damaged archive raises, which may be nearly anything, into a ``DamagedArray``."""
    try:
        yield
    except (DamagedArray, FullGNNError, MemoryError):
        raise
    except zipfile.BadZipFile as error:
        raise DamagedArray(quoted(error) or "it is no archive") from error
    except zlib.error as error:
        raise DamagedArray(quoted(error)) from error
    except OSError as error:
        raise DamagedArray(error.strerror or quoted(error)) from error
    except Exception as error:
        raise DamagedArray(f"{type(error).__name__}: {quoted(error)}") from error
