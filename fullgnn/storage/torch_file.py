"""Read a file of ``torch.save`` that may be damaged, or come from anywhere, as ``torch.load(..., weights_only=True)``
does, and with these differences:

1. Each member of the archive is compared with its CRC-32, once, as it is read. ``torch.load`` does not compare any.
2. What a header claims is compared with the size of the file before memory is taken for it. ``torch.load`` takes the
   number of elements that the pickle claims, and reads beyond the end of a shorter member.
3. The pickle holds tensors that are dense, numbers, texts, None, lists, tuples, sets and mappings of these, and nothing
   else. It is read by Python's own unpickler in Python, which takes memory for what is there alone.

The archive is a zip whose members are stored, not compressed; ``data.pkl`` has the structure, ``data/<key>`` the bytes.
"""

import collections
import io
import math
import os
import pickle
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from fullgnn.errors import DataError, message_of, quoted

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_SIGNATURE = b"PK\3\4"
_STORED = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_BLOCK = 1 << 22
_OPCODES = """
    PROTO STOP MARK GLOBAL REDUCE BUILD BINPERSID BINPUT LONG_BINPUT BINGET LONG_BINGET EMPTY_DICT EMPTY_LIST
    EMPTY_TUPLE SETITEM SETITEMS APPEND APPENDS TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWTRUE NEWFALSE BININT BININT1 BININT2
    LONG1 BINFLOAT BINUNICODE
""".split()
"""The operations of pickle's protocol 2, in which ``torch.save`` writes."""
_compared: set[tuple[int, ...]] = set()
"""What identifies the files that this process, or that which it was forked from, has compared with their checksums."""


class _Damaged(Exception):
    """The file is not what ``torch.save`` writes; the message says why."""


def load(path: Path, directory_crc: int | None = None) -> Any:
    """The object in the file ``path``, with its tensors on the host.

    Args:
        directory_crc: of the directory of the file; None: it is not known.

    Raises:
        DataError: the file is damaged, or holds what is not read; the message says why, and no cure.
        FileNotFoundError: there is no file.
    """
    with _reading(path) as archive:
        archive.compare_directory(directory_crc)
        content = archive.load()
        _compared.add(archive.identity)
        return content


def compare(path: Path, directory_crc: int | None = None) -> None:
    """Compare every member of the file ``path`` with its CRC-32. ``load`` does not do it again in this process, and in
    its forks, unless the file changes.

    Raises:
        DataError, FileNotFoundError: as ``load``.
    """
    with _reading(path) as archive:
        archive.compare_directory(directory_crc)
        for name in archive.members:
            archive.skim(name)
        _compared.add(archive.identity)


def directory_crc(path: Path) -> int:
    """The CRC-32 of the directory of a file that has just been written. The directory has the CRC-32 of each member."""
    with _reading(path) as archive:
        return archive.directory_crc


@contextmanager
def _reading(path: Path) -> Iterator["_Archive"]:
    """The open archive; what its damage raises becomes a ``DataError``."""
    try:
        with path.open("rb") as file:
            yield _Archive(file)
    except FileNotFoundError:
        raise
    except _Damaged as error:
        raise DataError(quoted(error)) from error
    except MemoryError as error:
        raise DataError(f"its {path.stat().st_size} bytes do not fit in memory") from error
    except Exception as error:  # zipfile, pickle and torch raise many kinds of errors
        raise DataError(quoted(f"{type(error).__name__}: {message_of(error)}")) from error


class _Archive:
    """The members of an open zip, of which each lies at its place and has its size."""

    def __init__(self, file: BinaryIO):
        self._file = file
        stat = os.fstat(file.fileno())
        self.identity = stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
        self._is_compared = self.identity in _compared
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            self._directory = archive.start_dir
        file.seek(self._directory)
        self.directory_crc = zlib.crc32(file.read())
        self.members: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            name = info.filename.partition("/")[2]
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
                raise _Damaged(f"the member {name} is compressed or encrypted")
            if info.header_offset + info.file_size > self._directory or not name or name in self.members:
                raise _Damaged(f"the member {name} does not lie in the file")
            self.members[name] = info
        if sum(info.file_size for info in infos) > self._directory:
            raise _Damaged("its members overlap")
        if not self.members.keys() >= {"data.pkl", "version"}:
            raise _Damaged("it is an archive, but not one of torch.save")

    def compare_directory(self, expected: int | None) -> None:
        """Refuse another directory than the ``expected`` one."""
        if expected is not None and self.directory_crc != expected:
            raise _Damaged("checksum of its directory")

    def _find(self, name: str) -> zipfile.ZipInfo:
        """Go to the first byte of the member ``name``."""
        info = self.members.get(name)
        if info is None:
            raise _Damaged(f"the member {name} is missing")
        self._file.seek(info.header_offset)
        header = self._file.read(_LOCAL_HEADER.size)
        signature, *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        if signature != _SIGNATURE or self._file.read(name_length) != info.filename.encode():
            raise _Damaged(f"the header of the member {name} is damaged")
        if self._file.seek(extra_length, io.SEEK_CUR) + info.file_size > self._directory:
            raise _Damaged(f"the member {name} does not lie in the file")
        return info

    def read(self, name: str) -> Tensor:
        """(bytes,) uint8, the member ``name``."""
        info = self._find(name)
        content = torch.empty(info.file_size, dtype=torch.uint8)
        view: Any = memoryview(content.numpy())  # type: ignore[arg-type]
        count = self._file.readinto(view)  # type: ignore[attr-defined]
        if count != info.file_size or not (self._is_compared or zlib.crc32(view) == info.CRC):
            raise _Damaged(f"checksum of the member {name}")
        return content

    def skim(self, name: str) -> None:
        """Compare the member ``name`` with its checksum, unless this process has done it."""
        info = self._find(name)
        if self._is_compared:
            return
        crc, rest, block = 0, info.file_size, memoryview(bytearray(min(_BLOCK, info.file_size)))
        while rest:
            count = self._file.readinto(block[: min(rest, _BLOCK)])  # type: ignore[attr-defined]
            if not count:
                break
            crc, rest = zlib.crc32(block[:count], crc), rest - count
        if rest or crc != info.CRC:
            raise _Damaged(f"checksum of the member {name}")

    def load(self) -> Any:
        """The object of ``data.pkl``. Members that it does not use are compared too."""
        used = {"data.pkl", *(name for name in self.members if name.startswith("data/"))}
        for name in self.members.keys() - used:
            self.skim(name)
        if "byteorder" in self.members and bytes(self.read("byteorder").numpy()) != sys.byteorder.encode():
            raise _Damaged("it was written on a machine with another order of bytes")
        unpickler = _TorchUnpickler(bytes(self.read("data.pkl").numpy()), self)
        content = unpickler.load()
        for name in used - {"data.pkl"} - unpickler.read_names:
            self.skim(name)
        return content


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, _gradient: Any, hooks: Any, *rest: Any) -> Tensor:
    """A dense tensor of a storage; the arguments are those of ``torch._utils._rebuild_tensor_v2``."""
    if not (
        isinstance(storage, Tensor) and type(offset) is int and isinstance(size, tuple) and isinstance(stride, tuple)
    ):
        raise _Damaged("a tensor without a storage")
    if len(size) != len(stride) or hooks or any(rest):
        raise _Damaged("a tensor with hooks, or without strides")
    if not all(type(number) is int and 0 <= number < 2**48 for number in (offset, *size, *stride)):
        raise _Damaged(f"a tensor of the shape {size}")
    span = offset + sum((length - 1) * step for length, step in zip(size, stride)) + 1
    if math.prod(size) and (span > len(storage) or math.prod(size) > len(storage)):
        raise _Damaged(f"a tensor of the shape {size} in a storage of {len(storage)} elements")
    return storage.as_strided(size, stride, offset) if math.prod(size) else storage.new_empty(size)


def _parameter(data: Any, _gradient: Any, hooks: Any) -> Tensor:
    if not isinstance(data, Tensor) or hooks:
        raise _Damaged("a parameter without a tensor")
    return data


def _ordered(*values: Any) -> collections.OrderedDict[Any, Any]:
    if values:
        raise _Damaged("an ordered mapping that is made of something")
    return collections.OrderedDict()


def _counter(values: Any) -> collections.Counter[Any]:
    if type(values) is not dict:
        raise _Damaged("a counter that is made of no mapping")
    return collections.Counter(values)


_CALLED: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("collections", "OrderedDict"): _ordered,
    ("collections", "Counter"): _counter,
    ("torch", "Size"): torch.Size,
}


class _TorchUnpickler(pickle._Unpickler):  # in Python: its memory follows what is there
    """Makes the object of ``data.pkl``, with nothing but ``_CALLED`` and the storages of torch."""

    def __init__(self, content: bytes, archive: _Archive):
        super().__init__(io.BytesIO(content), encoding="utf-8")
        self._archive = archive
        self._storages: dict[str, Tensor] = {}

    @property
    def read_names(self) -> set[str]:
        """The members that have been read."""
        return {f"data/{key}" for key in self._storages}

    def load_build(self) -> None:
        """Drop what would become attributes, such as the ``_metadata`` of a ``state_dict``."""
        stack: list[Any] = self.stack  # type: ignore[attr-defined]
        stack.pop()
        if not isinstance(stack[-1], collections.OrderedDict):
            raise _Damaged("it sets attributes")

    def load_setitem(self) -> None:
        """Put one value into a mapping."""
        stack: list[Any] = self.stack  # type: ignore[attr-defined]
        value, key = stack.pop(), stack.pop()
        self._put([key, value])

    def load_setitems(self) -> None:
        """Put several values into a mapping."""
        self._put(self.pop_mark())  # type: ignore[attr-defined]

    def _put(self, items: list[Any]) -> None:
        """Keys are texts or numbers: hashing others, such as tuples of tuples, can take for ever or end the process."""
        mapping = self.stack[-1]  # type: ignore[attr-defined]
        if not isinstance(mapping, dict) or not all(type(key) in (str, int) for key in items[::2]):
            raise _Damaged("a mapping has other keys than texts and numbers")
        mapping.update(zip(items[::2], items[1::2], strict=True))

    dispatch = {number: pickle._Unpickler.dispatch[number] for number in (getattr(pickle, op)[0] for op in _OPCODES)}  # noqa: RUF012
    dispatch[pickle.BUILD[0]] = load_build  # type: ignore[assignment]
    dispatch[pickle.SETITEM[0]] = load_setitem  # type: ignore[assignment]
    dispatch[pickle.SETITEMS[0]] = load_setitems  # type: ignore[assignment]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _CALLED:
            return _CALLED[module, name]
        if module == "torch" and name in _STORED:
            return _STORED[name]
        raise _Damaged(f"it names {module}.{name}, which no checkpoint needs")

    def persistent_load(self, pid: Any) -> Tensor:
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage" and isinstance(pid[1], torch.dtype)):
            raise _Damaged("a storage of another kind")
        _, dtype, key, _, count = pid
        if not isinstance(key, str) or type(count) is not int:
            raise _Damaged("a storage without a name or a size")
        if key not in self._storages:
            info = self._archive.members.get(f"data/{key}")
            size = -1 if info is None else info.file_size
            if size != count * dtype.itemsize:
                raise _Damaged(f"a storage claims {count} elements of {dtype}, and its member has {size} bytes")
            self._storages[key] = self._archive.read(f"data/{key}")
        return self._storages[key].view(dtype)
