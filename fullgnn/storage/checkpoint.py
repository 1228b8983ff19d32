"""The files of a checkpoint: a folder ``checkpoints/epoch_<number>`` in the run folder, which rank 0 alone writes. One
that sampled training writes within the next epoch is called ``epoch_<number>_batch_<number>``.

    state.pt                what every rank has: epoch, model, optimizer, schedule, and the configuration
    best.pt                 the model at the best epoch so far
    state_rows_<k>.pt       parameters that have a row for each node: original ids and rows of a part of the nodes
    best_rows_<k>.pt        the same of the best epoch

The folder is written under a temporary name, flushed to the disk, and then renamed: it is there complete, or not at
all. All files are torch's own format and hold only what ``torch.load(..., weights_only=True)`` reads.
"""

import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fullgnn.errors import DataError, message_of
from fullgnn.storage.folder import CHECKPOINTS

FORMAT = 1
"""Version of the files' contents."""

STATE, BEST = "state", "best"
_NAME = re.compile(r"epoch_(\d{6,})(?:_batch_(\d{6,}))?")


class CheckpointWriter:
    """A checkpoint that is being written to ``folder`` and will be at ``target``; see ``writing``."""

    def __init__(self, folder: Path, target: Path):
        self.folder, self.target = folder, target
        self._num_parts = dict.fromkeys((STATE, BEST), 0)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write ``<name>.pt``.

        Raises:
            OSError: the file cannot be written.
        """
        try:
            with open(self.folder / f"{name}.pt", "wb") as file:
                torch.save({"format": FORMAT, **content}, file)
                file.flush()
                os.fsync(file.fileno())
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
        for file in sorted(other.glob(f"{name}*.pt")):
            try:
                os.link(file, self.folder / file.name)
            except OSError:
                shutil.copyfile(file, self.folder / file.name)


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
        yield CheckpointWriter(temporary, target)
        _flush(temporary)
        if target.exists():
            shutil.rmtree(target)
        os.rename(temporary, target)
        _flush(parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def checkpoints(run_dir: Path) -> list[Path]:
    """The complete checkpoints in a run folder, the latest last."""
    folder = run_dir / CHECKPOINTS
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in found if _NAME.fullmatch(path.name)), key=place_of)


def place_of(checkpoint: Path) -> tuple[int, int]:
    """The epoch in the name of a checkpoint, and the number of batches of the next one."""
    match = _NAME.fullmatch(checkpoint.name)
    assert match is not None
    return int(match[1]), int(match[2] or 0)


def keep_last(run_dir: Path, count: int) -> None:
    """Remove all but the last ``count`` checkpoints."""
    for old in checkpoints(run_dir)[:-count]:
        shutil.rmtree(old)


def remove_after(run_dir: Path, epoch: int, num_batches: int = 0) -> None:
    """Remove the checkpoints after ``epoch`` and some batches of the next, which a run that goes on from an earlier one
    trains anew."""
    for later in checkpoints(run_dir):
        if place_of(later) > (epoch, num_batches):
            shutil.rmtree(later)


def find(path: str | Path) -> Path:
    """The checkpoint that ``path`` names: itself, or the latest one of a run folder.

    Raises:
        DataError: there is none.
    """
    given = Path(path).expanduser().absolute()
    if (given / f"{STATE}.pt").is_file():
        return given
    found = checkpoints(given)
    if not found:
        raise DataError(f"{path} holds no checkpoint: give a run folder, or a folder checkpoints/epoch_... of one")
    return found[-1]


def read(checkpoint: Path, name: str) -> dict[str, Any]:
    """Read ``<name>.pt``, to the host.

    Raises:
        DataError: the file is missing, damaged, or of a later version.
    """
    file = checkpoint / f"{name}.pt"
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"{checkpoint} has no file {file.name}: choose another checkpoint") from error
    except Exception as error:  # torch raises many kinds of errors for a damaged file
        raise DataError(
            f"{file} cannot be read ({message_of(error)[:100]}): choose an earlier checkpoint of the run"
        ) from error
    if content.get("format") != FORMAT:
        raise DataError(f"{file} has format {content.get('format')}, and this version reads {FORMAT}: update fullgnn")
    return content


def read_rows(checkpoint: Path, name: str) -> Iterator[dict[str, Any]]:
    """The parts of the rows that belong to ``name``, one after the other."""
    for file in sorted(checkpoint.glob(f"{name}_rows_*.pt")):
        yield read(checkpoint, file.stem)


def _flush(folder: Path) -> None:
    """Flush the entries of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
