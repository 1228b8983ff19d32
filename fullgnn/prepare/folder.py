"""A prepared graph as a folder, whose arrays are mapped into memory.

    layout.json              format version, key, facts, and the size and checksum of each file
    part_0/, part_1/, ...    a .npy for each array of a part, see ``prepared.py``

The folder is written under a temporary name and takes its own in one step when it is complete. Nothing in it is ever
changed. A file is compared with its checksum when it is first read.
"""

import errno
import io
import itertools
import json
import math
import os
import shutil
import uuid
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError, DataError
from fullgnn.kernels.support.threads import parallel_for
from fullgnn.prepare.facts import GraphFacts
from fullgnn.prepare.prepared import LazyArrays, Part, PreparedGraph, TakenRows
from fullgnn.storage.arrays import DamagedArray, map_npy, read_npy

FORMAT = 1
"""Version of the format: increase it when the files, or what they mean, change."""

LAYOUT = "layout.json"
_BLOCK = 1 << 22  # bytes that are read at once
_SMALL = 1 << 20  # bytes of a file that is read instead of mapped


def write_folder(prepared: PreparedGraph, path: Path) -> Path:
    """Write ``prepared`` to the new folder ``path``. If another process has written it meanwhile, that one stays.

    Raises:
        ConfigError: the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.mkdir(parents=True)
        parts = [part.arrays for part in prepared.parts()]
        for number in range(len(parts)):
            (temporary / f"part_{number}").mkdir()
        files: dict[str, list[int]] = {}

        def write(place: tuple[int, str]) -> None:
            number, name = place
            file = f"part_{number}/{name}.npy"
            files[file] = _write(temporary / file, parts[number][name])

        parallel_for(write, ((number, name) for number, arrays in enumerate(parts) for name in arrays))
        about = {"format": FORMAT, "key": prepared.key, "facts": prepared.facts.to_json(), "files": files}
        (temporary / LAYOUT).write_text(json.dumps(about) + "\n", encoding="utf-8")
        try:
            temporary.rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    except OSError as error:
        raise ConfigError(
            f"the prepared graph cannot be written to {path.parent} ({error.strerror or error}): choose another"
            " runtime.cache_dir, or TMPDIR where there is none"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return path


def open_folder(path: Path) -> PreparedGraph:
    """Open the folder that ``write_folder`` has written. Its arrays are read when they are asked for.

    Raises:
        DataError: the folder is damaged, or has another format; also later, by the first use of a damaged file.
    """
    about = read_layout(path)
    try:
        facts, files, key = GraphFacts.from_json(about["facts"]), about["files"], str(about["key"])
        names: list[list[str]] = [[] for _ in range(facts.num_parts)]
        for file in files:
            folder, name = file.split("/")
            names[int(folder.removeprefix("part_"))].append(name.removesuffix(".npy"))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path / LAYOUT, f"{type(error).__name__}: {error}") from error

    def part(number: int) -> Part:
        return Part(LazyArrays({name: _reader(path, f"part_{number}/{name}.npy", files) for name in names[number]}))

    return PreparedGraph(facts, cache(part), key, path)


def read_layout(path: Path) -> dict[str, Any]:
    """The content of ``layout.json`` in the folder ``path``.

    Raises:
        DataError: it is missing or damaged, or has another format.
    """
    file = path / LAYOUT
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        version = about["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(file, getattr(error, "strerror", None) or str(error)) from error
    if version != FORMAT:
        raise DataError(
            f"{path} has the format {version} of prepared graphs, and this fullgnn reads {FORMAT}: delete the folder,"
            " and the next run prepares it anew"
        )
    return about


def _write(file: Path, array: np.ndarray | TakenRows) -> list[int]:
    """Write ``array``, some rows at a time; returns the size and the checksum of the file."""
    header = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(header, about)
    size, checksum = 0, 0
    row_bytes = max(1, math.prod(array.shape[1:]) * array.dtype.itemsize)
    step = max(1, _BLOCK // row_bytes)
    pieces = (np.ascontiguousarray(array[first : first + step]) for first in range(0, array.shape[0], step))
    with file.open("wb", buffering=0) as stream:
        for piece in itertools.chain([np.frombuffer(header.getvalue(), np.uint8)], pieces):
            rest = piece.reshape(-1).view(np.uint8).data
            checksum = zlib.crc32(rest, checksum)
            size += len(rest)
            while len(rest):
                rest = rest[stream.write(rest) :]
    return [size, checksum]


def _checksum(file: Path) -> int:
    found, block = 0, bytearray(_BLOCK)
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(block):
            found = zlib.crc32(memoryview(block)[:count], found)
    return found


def _reader(path: Path, name: str, files: Mapping[str, list[int]]) -> Callable[[], np.ndarray]:
    """Reads the array of a small file, and maps that of another one. Writing to the array does not change the file."""
    file, (size, checksum) = path / name, files[name]

    def compare(num_bytes: int, found: int) -> None:
        if (num_bytes, found) != (size, checksum):
            raise _damaged(file, f"{num_bytes} bytes instead of {size}" if num_bytes != size else "checksum")

    @cache
    def check() -> None:
        compare(os.path.getsize(file), _checksum(file))

    def read() -> np.ndarray:
        try:
            if size > _SMALL:
                check()
                return map_npy(file)
            found = file.stat().st_size
            compare(found, checksum if found != size else zlib.crc32(content := file.read_bytes()))
            return read_npy(io.BytesIO(content), size)
        except OSError as error:
            raise _damaged(file, error.strerror or str(error)) from error
        except DamagedArray as error:
            raise _damaged(file, str(error)) from error

    return read


def _damaged(file: Path, why: str) -> DataError:
    folder = file.parent if file.name == LAYOUT else file.parent.parent
    return DataError(
        f"the prepared graph is damaged: {file} ({why}): delete the folder {folder}, and the next run prepares it anew"
    )
