"""The files of a checkpoint: a folder ``checkpoints/epoch_<number>`` in the run folder, which rank 0 alone writes. One
that sampled training writes within the next epoch is called ``epoch_<number>_batch_<number>``.

    state.pt                what every rank has: epoch, model, optimizer, schedule, and the configuration
    best.pt                 the model at the best epoch so far
    state_rows_<k>.pt       parameters that have a row for each node: original ids and rows of a part of the nodes
    best_rows_<k>.pt        the same of the best epoch
    files.json              by name, the size of each of these files, and the CRC-32 of its directory

The folder is written under a temporary name, flushed to the disk, and then renamed: it is there complete, or not at
all. All files but the last are torch's own format and hold only what ``torch.load(..., weights_only=True)`` reads. Such
a file ends with a directory of its members, which has the CRC-32 of each. So ``files.json`` tells damage of any byte
that counts, and a file that is missing or of another checkpoint, and nothing is read twice to write it.
"""

import errno
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from fullgnn.errors import DataError, quoted
from fullgnn.storage.folder import CHECKPOINT, CHECKPOINTS, checkpoints, place_of
from fullgnn.storage.text import parse_json, read_text
from fullgnn.storage.torch_file import compare, directory_crc, load

T = TypeVar("T")

FORMAT = 1
"""Version of the files' contents."""

STATE, BEST = "state", "best"
FILES = "files.json"
_Sums = Mapping[str, tuple[int, int]]  # by name of a file, its size and the CRC-32 of its directory
_MAX_SUMS = 1 << 26  # bytes of files.json


class CheckpointWriter:
    """A checkpoint that is being written to ``folder`` and will be at ``target``; see ``writing``."""

    def __init__(self, folder: Path, target: Path):
        self.folder, self.target = folder, target
        self._num_parts = dict.fromkeys((STATE, BEST), 0)
        self._sums: dict[str, tuple[int, int]] = {}

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write ``<name>.pt``.

        Raises:
            OSError: the file cannot be written.
        """
        try:
            path = self.folder / f"{name}.pt"
            with open(path, "wb") as file:
                torch.save({"format": FORMAT, **content}, file)
                file.flush()
                os.fsync(file.fileno())
            self._sums[path.name] = sum_of(path)
        except RuntimeError as error:  # torch fails once more when it closes a file that could not be written
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise

    def write_rows(self, name: str, content: Mapping[str, Any]) -> None:
        """Write the next part of the rows that belong to ``name``, with their original ids ``node_id``."""
        self.write(f"{name}_rows_{self._num_parts[name]:04d}", content)
        self._num_parts[name] += 1

    def take(self, name: str, other: Path) -> None:
        """Take ``name`` over from a complete checkpoint, as a link to the same file where the system has links."""
        known: _Sums = {}
        with suppress(DataError):  # the files are whole, and their checksums are computed again
            known = _sums_of(other)
        for file in sorted(other.glob(f"{name}*.pt")):
            try:
                os.link(file, self.folder / file.name)
            except OSError:
                shutil.copyfile(file, self.folder / file.name)
            self._sums[file.name] = known.get(file.name) or sum_of(self.folder / file.name)

    def finish(self) -> None:
        """Write ``files.json``, when all other files are there.

        Raises:
            OSError: the file cannot be written.
        """
        with open(self.folder / FILES, "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, "files": self._sums}, file)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def writing(run_dir: Path, epoch: int, num_batches: int = 0) -> Iterator[CheckpointWriter]:
    """Write the checkpoint of ``epoch`` and of some batches of the next; it appears at the end of the block, unless the
    block raises.

    Raises:
        OSError: the folder cannot be written.
    """
    parent = run_dir / CHECKPOINTS
    name = f"epoch_{epoch:06d}" + (f"_batch_{num_batches:06d}" if num_batches else "")
    target, temporary = parent / name, parent / f".{name}.{uuid.uuid4().hex}"
    temporary.mkdir(parents=True)
    try:
        writer = CheckpointWriter(temporary, target)
        yield writer
        writer.finish()
        flush_file(temporary)
        if target.exists():
            shutil.rmtree(target)
        os.rename(temporary, target)
        flush_file(parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def find(path: str | Path) -> Path:
    """The checkpoint that ``path`` names: itself, or the latest one of a run folder.

    Raises:
        DataError: there is none.
    """
    given = Path(path).expanduser().absolute()
    if (given / f"{STATE}.pt").is_file():
        return given
    folders = checkpoints(given)
    if not folders:
        raise DataError(f"{path} holds no checkpoint: give a run folder, or a folder checkpoints/epoch_... of one")
    return folders[-1]


def check(checkpoint: Path) -> None:
    """Compare all files of a checkpoint with their checksums, so that a damaged one is known before it is used.

    Raises:
        DataError: a file is missing, damaged, or of another checkpoint; one line with its name and the cure.
    """
    sums = _sums_of(checkpoint)
    there = {file.name for file in checkpoint.glob("*.pt")}
    if missing := sorted({f"{STATE}.pt", *sums} - there):
        raise DataError(f"{checkpoint} has no file {missing[0]}: {_cure(checkpoint)}")
    if foreign := sorted(there.difference(sums)):
        raise DataError(f"{checkpoint / foreign[0]} is not a file of this checkpoint: {_cure(checkpoint)}")
    for name in sorted(sums):
        _read_file(checkpoint / name, compare, sums)


def read(checkpoint: Path, name: str) -> dict[str, Any]:
    """Read ``<name>.pt``, to the host.

    Raises:
        DataError: the file is missing, damaged, or of a later version.
    """
    file = checkpoint / f"{name}.pt"
    content = _read_file(file, load, _sums_of(checkpoint))
    if not isinstance(content, dict) or type(content.get("format")) is not int:
        raise damaged(file, f"it holds {type(content).__name__}, and no format")
    if content["format"] != FORMAT:
        raise DataError(f"{file} has format {content['format']}, and this version reads {FORMAT}: update fullgnn")
    return content


def read_rows(checkpoint: Path, name: str) -> Iterator[dict[str, Any]]:
    """The parts of the rows that belong to ``name``, one after the other: by name, a tensor whose rows are those of the
    original ids ``node_id`` (num_rows,) int64.

    Raises:
        DataError: as ``read``; also where a part holds something else.
    """
    for file in sorted(checkpoint.glob(f"{name}_rows_*.pt")):
        content = read(checkpoint, file.stem)
        rows = {key: value for key, value in content.items() if key != "format"}
        if not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in rows.items()):
            raise damaged(file, "it holds more than tensors")
        ids = rows.get("node_id")
        if ids is None or ids.dtype != torch.int64 or ids.ndim != 1:
            raise damaged(file, "it has no ids of nodes")
        if any(value.ndim == 0 or len(value) != len(ids) for value in rows.values()):
            raise damaged(file, "its tensors have unequal numbers of rows")
        yield content


def damaged(file: Path, why: str) -> DataError:
    """The error of a ``file`` of a checkpoint that cannot be used, with the cure."""
    return DataError(f"{file} cannot be read ({why}): {_cure(file.parent)}")


def _read_file(file: Path, reader: Callable[[Path, int], T], sums: _Sums) -> T:
    """``reader(file, checksum)``, where its errors name the file and the cure."""
    try:
        if file.name not in sums:
            raise damaged(file, f"{FILES} does not name it")
        size, checksum = sums[file.name]
        if (num_bytes := file.stat().st_size) != size:
            raise damaged(file, f"{num_bytes} bytes instead of {size}")
        return reader(file, checksum)
    except FileNotFoundError as error:
        raise DataError(f"{file.parent} has no file {file.name}: {_cure(file.parent)}") from error
    except OSError as error:
        raise damaged(file, error.strerror or quoted(error)) from error
    except DataError as error:
        raise error if str(error).startswith(str(file)) else damaged(file, str(error)) from error


def sum_of(path: Path) -> tuple[int, int]:
    """Size and checksum of a file.

    Raises:
        OSError: the file cannot be read, or is damaged.
    """
    try:
        return path.stat().st_size, directory_crc(path)
    except DataError as error:
        raise OSError(errno.EIO, f"{path.name} is damaged: {error}") from error


def _sums_of(checkpoint: Path) -> _Sums:
    """What ``files.json`` says of the files.

    Raises:
        DataError: it is missing or damaged.
    """
    path = checkpoint / FILES
    if not path.exists():
        raise DataError(f"{checkpoint} has no file {FILES}: {_cure(checkpoint)}")
    try:
        about = parse_json(read_text(path, _MAX_SUMS), path)
        sums = {name: (size, crc) for name, (size, crc) in about["files"].items()}
    except DataError as error:
        raise damaged(path, str(error).removeprefix(f"{path} ")) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(path, "it has no sizes and checksums") from error
    if about.get("format") != FORMAT or not all(type(number) is int for pair in sums.values() for number in pair):
        raise damaged(path, "it has no sizes and checksums of this version")
    return sums


def _cure(checkpoint: Path) -> str:
    """What to do about a damaged checkpoint."""
    if not CHECKPOINT.fullmatch(checkpoint.name):
        return "choose another checkpoint"
    earlier = [other for other in checkpoints(checkpoint.parent.parent) if place_of(other) < place_of(checkpoint)]
    return "choose an earlier checkpoint of the run" + (f", such as {earlier[-1]}" if earlier else "")


def flush_file(folder: Path) -> None:
    """Flush the entries of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
