"""Arrays of .npz files, measured before they are read, as ``arrays.py`` does it for one array.

A member of an archive that unpacks to more than its header says is refused, too. What is read has the checksum of the
archive.
"""

import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fullgnn.errors import quoted
from fullgnn.storage.arrays import DamagedArray, Header, damage, mapped, read_header, read_values
from fullgnn.telemetry.machine import check_fits

_MAX_RATIO = 1040  # deflate cannot pack 1032 bytes into less than one
_LOCAL_HEADER = 30  # bytes, that of a member of an archive before its name


class Archive:
    """The arrays of a .npz file, by name.

    Raises:
        DamagedArray: the file is no such archive. A method raises it, too, for an array that cannot be read.
        OSError: the file cannot be opened.
    """

    def __init__(self, source: Path | BinaryIO) -> None:
        self._source = source
        if isinstance(source, Path) and not source.is_file():
            open(source).close()  # raises what is wrong
        with damage():
            self._zip = zipfile.ZipFile(source)
            members = self._zip.infolist()
            self._members = {member.filename.removesuffix(".npy"): member for member in members}
        if len(self._members) < len(members):
            raise DamagedArray("two arrays have one name")

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @property
    def names(self) -> list[str]:
        """The names of the arrays, in the order of the file."""
        return list(self._members)

    def header(self, name: str) -> Header:
        """The dtype and the shape of an array, of which nothing else is read."""
        with damage(), self._zip.open(self._measured(name)) as stream:
            return read_header(stream, self._members[name].file_size)

    def read(self, name: str, what: str = "", cure: str = "it may be damaged") -> np.ndarray:
        """The array ``name``.

        Args:
            what, cure: begin and end the error of an array that is larger than the memory.

        Raises:
            DataError: the array does not fit into memory.
        """
        with damage():
            with self._zip.open(self._measured(name)) as stream:
                header = read_header(stream, self._members[name].file_size)
                check_fits(header.num_bytes, what or f"array {quoted(name)}", cure)
                return read_values(stream, header)

    def is_stored(self, name: str) -> bool:
        """Whether the archive holds an array as it is, neither packed nor encrypted."""
        member = self._members[name]
        return member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1

    def map(self, name: str) -> np.ndarray:
        """The array ``name``, which ``is_stored``, mapped into memory and read-only: it may be larger than the memory.

        Its checksum is not compared, since that would read all of it. Its values may lie at any byte, and then the
        array is not aligned.
        """
        assert isinstance(self._source, Path)
        with damage():
            member = self._measured(name)
            with self._source.open("rb") as stream:
                stream.seek(member.header_offset)
                local = stream.read(_LOCAL_HEADER)
                if len(local) < _LOCAL_HEADER or local[:4] != b"PK\x03\x04":
                    raise DamagedArray("its entry is not where the archive says")
                lengths = (
                    int.from_bytes(local[place : place + 2], "little") for place in (26, 28)
                )  # of name and extra
                begin = member.header_offset + _LOCAL_HEADER + sum(lengths)
                if begin + member.file_size > stream.seek(0, 2) or member.file_size != member.compress_size:
                    raise DamagedArray(f"it announces {member.file_size} bytes, which the file cannot hold")
                stream.seek(begin)
                header = read_header(stream, member.file_size)
            return mapped(self._source, header, begin, "r")

    def _measured(self, name: str) -> zipfile.ZipInfo:
        """The entry of a member, which can have the size that it says."""
        member = self._members[name]
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DamagedArray(f"it is packed by method {member.compress_type}, and only deflate is read")
        most = member.compress_size * (_MAX_RATIO if member.compress_type == zipfile.ZIP_DEFLATED else 1)
        end = member.header_offset + member.compress_size
        stream = self._zip.fp
        assert stream is not None
        if member.file_size > most or end > stream.seek(0, 2):
            raise DamagedArray(f"it announces {member.file_size} bytes, which the file cannot hold")
        return member


def read_arrays(source: Path | BinaryIO) -> dict[str, np.ndarray]:
    """All arrays of a .npz file.

    Raises:
        DamagedArray: the file cannot be read.
        DataError: the arrays do not fit into memory.
        OSError: the file cannot be opened.
    """
    with Archive(source) as archive:
        total = sum(archive.header(name).num_bytes for name in archive.names)
        check_fits(total, f"{source}" if isinstance(source, Path) else "the archive", "delete it if it is damaged")
        return {name: archive.read(name) for name in archive.names}
