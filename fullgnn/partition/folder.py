"""A prepared graph as a folder, whose arrays are mapped into memory.

    layout.json              format version, key, facts, the size and checksum of each file, and a checksum of all this
    part_0/, part_1/, ...    a .npy for each array of a part, see ``prepared.py``

The folder is written under a temporary name and takes its own in one step when it is complete. Nothing in it is ever
changed. A file is compared with its checksum, and its array with the facts, when it is first read.
"""

import errno
import io
import json
import os
import re
import shutil
import uuid
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError, DataError, PartitionError, quoted, reason_of
from fullgnn.kernels.support.process import parallel_for
from fullgnn.partition.facts import GraphFacts
from fullgnn.partition.prepared import LISTS, LazyArrays, Part, PreparedGraph, check_array, check_names
from fullgnn.storage.arrays import DamagedArray, file_checksum, map_npy, read_header, read_npy, write_npy
from fullgnn.storage.text import parse_json, read_text

FORMAT = 1
"""Version of the format: increase it when the files, or what they mean, change."""

LAYOUT = "layout.json"
LISTED = {f"{name}_indptr": f"{name}_ids.npy" for name in LISTS} | {
    "features_indptr": "features_indices.npy",
    "features_indices": "features_data.npy",
}
"""By the name of an array, the file whose length it must agree with."""
_CHECKSUM = "checksum"  # key of layout.json: of all its other values
_DAMAGED = "the prepared graph is damaged: "
SMALL = 1 << 20  # bytes of a file that is read instead of mapped


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
            files[file] = [*write_npy(temporary / file, parts[number][name])]

        parallel_for(write, ((number, name) for number, arrays in enumerate(parts) for name in arrays))
        about = {"format": FORMAT, "key": prepared.key, "facts": prepared.facts.to_json(), "files": files}
        (temporary / LAYOUT).write_text(json.dumps(about | {_CHECKSUM: _sum_of(about)}) + "\n", encoding="utf-8")
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
        facts, key = GraphFacts.from_json(about["facts"]), about["key"]
        facts.check()
        if not (isinstance(key, str) and re.fullmatch("[0-9a-f]*", key)):
            raise DataError(f"key is {quoted(key)}")
        files = _checked_files(about["files"])
        names: list[list[str]] = [[] for _ in range(facts.num_parts)]
        for file in files:
            folder, _, name = file.partition("/")
            names[int(folder.removeprefix("part_"))].append(name.removesuffix(".npy"))
        for of_part in names:
            check_names(of_part, facts)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(path / LAYOUT, quoted(reason_of(error))) from error
    except (DataError, PartitionError) as error:
        raise _damaged(path / LAYOUT, str(error)) from error

    def part(number: int) -> Part:
        return Part(LazyArrays({name: _reader(path, number, name, files, facts) for name in names[number]}))

    return PreparedGraph(facts, cache(part), key, path)


def read_layout(path: Path) -> dict[str, Any]:
    """The content of ``layout.json`` in the folder ``path``.

    Raises:
        DataError: it is missing or damaged, or has another format.
    """
    file = path / LAYOUT
    try:
        about = parse_json(read_text(file), file)
    except DataError as error:
        raise _damaged(file, str(error).removeprefix(f"{file} ")) from error
    if not isinstance(about, dict) or type(about.get("format")) is not int:
        raise _damaged(file, "it has no format")
    if about["format"] != FORMAT:
        raise DataError(
            f"{path} has the format {about['format']} of prepared graphs, and this fullgnn reads {FORMAT}: delete the"
            " folder, and the next run prepares it anew"
        )
    checksum = about.pop(_CHECKSUM, None)  # the first version did not write it
    if checksum is not None and checksum != _sum_of(about):
        raise _damaged(file, "checksum")
    return about


def _sum_of(about: Mapping[str, Any]) -> int:
    """The checksum of all values in ``layout.json``."""
    return zlib.crc32(json.dumps(about).encode())


def _checked_files(files: Any) -> dict[str, tuple[int, int]]:
    """The size and the checksum of each file. Raises: DataError, TypeError, ValueError."""
    checked = {name: (size, checksum) for name, (size, checksum) in files.items()}
    for name, numbers in checked.items():
        is_name = re.fullmatch(r"part_(0|[1-9]\d*)/[a-z_][a-z0-9_]*\.npy", name)
        if not is_name or not all(type(number) is int for number in numbers):
            raise DataError(f"files has {quoted(name)}")
    return checked


def _reader(
    path: Path, part: int, name: str, files: Mapping[str, tuple[int, int]], facts: GraphFacts
) -> Callable[[], np.ndarray]:
    """Reads the array of a small file, and maps that of another one. Writing to the array does not change the file."""
    place = f"part_{part}/{name}.npy"
    file, (size, checksum) = path / place, files[place]

    def compare(num_bytes: int, crc: int) -> None:
        if (num_bytes, crc) != (size, checksum):
            raise _damaged(file, f"{num_bytes} bytes instead of {size}" if num_bytes != size else "checksum")

    def checked(array: np.ndarray) -> np.ndarray:
        listed = file.with_name(LISTED[name]) if name in LISTED else None
        num_listed = None if listed is None else _num_rows(listed)
        check_array(name, array, facts, part, num_listed)
        return array

    @cache
    def check() -> None:
        compare(os.path.getsize(file), file_checksum(file))
        checked(map_npy(file))

    def read() -> np.ndarray:
        try:
            if size > SMALL:
                check()
                return map_npy(file)
            num_bytes = file.stat().st_size
            compare(num_bytes, checksum if num_bytes != size else zlib.crc32(content := file.read_bytes()))
            return checked(read_npy(io.BytesIO(content), size))
        except OSError as error:
            raise _damaged(file, error.strerror or str(error)) from error
        except DamagedArray as error:
            raise _damaged(file, str(error)) from error
        except DataError as error:
            raise error if str(error).startswith(_DAMAGED) else _damaged(file, str(error)) from error

    return read


def _num_rows(file: Path) -> int:
    """The length of the array in a .npy."""
    with file.open("rb") as stream:
        return read_header(stream, file.stat().st_size).shape[0]


def _damaged(file: Path, why: str) -> DataError:
    folder = file.parent if file.name == LAYOUT else file.parent.parent
    return DataError(f"{_DAMAGED}{file} ({why}): delete the folder {folder}, and the next run prepares it anew")
