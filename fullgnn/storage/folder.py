"""Write files and folders so that nothing is lost: neither half of a file is left, nor a file of the user replaced.

A file is written under a temporary name, and takes its own when it is complete, in one step, even if the program is
interrupted. A temporary folder goes with the process that made it: at its end, or, if the process was killed, at the
next start. The folder holds a lock of its owner, which the system releases when the owner, and the ranks that it has
forked, have ended, however that happened.

Runs and sweeps write files with fixed names, and only files with these names are ever removed. Whatever else a folder
holds is the user's, whatever it looks like.
"""

import errno
import fcntl
import functools
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fullgnn.errors import ConfigError, DataError
from fullgnn.storage.text import parse_yaml, read_text

PREDICTIONS = ("predictions.npz", "predictions.parquet", "predictions.csv")
"""Names of the files with the predictions of a run."""
FILES = ("config.yaml", "record.json", "epochs.jsonl", "structure.npz", *PREDICTIONS)
"""Names of the files of a run."""
GRAPH = "graph.npz"
"""Name of the graph of a run of ``train_graph``. A file of this name may also be the user's; see ``has_own_graph``."""
CONTENTS = "contents"
"""Key of a dataset whose file ``train_graph`` has written: the SHA-256 of the arrays in it and the path of the file,
with a blank between them, or ``unknown``; see ``graph/datasets``."""
EVENTS = "tensorboard/events.out.tfevents.*"
"""Pattern of the event files of a run."""
CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints of a run; each of them is a folder."""
CHECKPOINT = re.compile(r"epoch_(\d{6,})(?:_batch_(\d{6,}))?")
"""Name of a checkpoint: the epoch, and the number of batches of the next one."""
TABLE_FILE = "sweep.csv"
"""Name of the table of a sweep."""
MEANS_FILES = ("means.csv", "means.md")
"""Names of the tables of a sweep with means over seeds and splits."""

PREFIX = "fullgnn-"
"""How the names of temporary folders begin."""

_LOCK = ".owner"
_UNFINISHED_CHECKPOINT = re.compile(r"\.epoch_\d{6,}(\W.*)?")
_JOB = re.compile(r"0|[1-9][0-9]*")
_MAX_NAMES = 6  # of files in an error message


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, with the same suffix, to be written inside the ``with`` block.

    At its end the temporary file takes the place of ``path`` in one step. If the block raises, the temporary file is
    removed and ``path`` is unchanged. The folder is created if it does not exist.

    Raises:
        OSError: the folder or the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` in one step; see :func:`replacing`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def make_folder(path: str | Path, key: str = "out") -> Path:
    """Create the folder ``path`` before a command does its work, so that a wrong path fails at once.

    Raises:
        ConfigError: the folder cannot be created; the message names ``key``, the configuration key of the path.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{key}={path} cannot be created ({error.strerror}): choose another folder") from error
    return folder


@contextmanager
def writing_to(key: str, folder: object) -> Iterator[None]:
    """Turn an ``OSError`` of the ``with`` block into a user error about the ``folder`` that a ``key`` names.

    Raises:
        ConfigError: the folder, or a file in it, cannot be written.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{key}={folder} cannot be written ({reason}): choose another folder") from error


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make an empty folder on this machine, and remove it at the end of the ``with`` block.

    The first one of a process also removes those that killed processes of the same user have left.
    """
    remove_abandoned()
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
    with open(made / _LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = made.rename(made.with_name(made.name.removeprefix(".")))  # others see it with its lock only
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def remove_abandoned() -> None:
    """Remove the temporary folders whose owners have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with open(folder / _LOCK, "r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if there is an owner
                shutil.rmtree(folder, ignore_errors=True)


def check_folder(path: str | Path, overwrite: bool = False, resuming: bool = False) -> None:
    """Check that a run may write to the folder ``path``: it must not hold what an earlier run has written.

    Args:
        overwrite: the files of an earlier run may be there; ``RunFolder`` removes them.
        resuming: the run continues the one in ``path``, from a checkpoint there, or from the start if the earlier run
            ended before its first checkpoint. A finished run without a checkpoint cannot be continued.

    Raises:
        ConfigError: the folder holds an earlier run, or cannot be read or written.
    """
    folder = Path(path).absolute()
    with _accessing(path, "written"):
        _check_writable(folder)
    if overwrite:
        return
    with _accessing(path, "read"):
        files, own = run_files(folder), _own_checkpoints(folder)
    if resuming and (own or folder / "record.json" not in files):
        return
    if files:
        raise ConfigError(_refusal(path, "run", [file.relative_to(folder).parts[0] for file in files], own))


def run_files(folder: Path) -> list[Path]:
    """The files in ``folder`` that runs have written, and the folders of checkpoints; none if it does not exist."""
    events = sorted(file for file in folder.glob(EVENTS) if file.is_file())
    files = [file for name in FILES if (file := folder / name).is_file()]
    return files + [folder / GRAPH] * has_own_graph(folder) + events + _own_checkpoints(folder)


def has_own_graph(folder: Path) -> bool:
    """Whether ``train_graph`` has written the ``graph.npz`` of a run folder: the ``config.yaml`` beside it says so."""
    if not (folder / GRAPH).is_file() or not (folder / "config.yaml").is_file():
        return False
    try:
        config = parse_yaml(read_text(folder / "config.yaml"), folder)
    except DataError:
        return False
    dataset = config.get("dataset") if isinstance(config, dict) else None
    return isinstance(dataset, dict) and dataset.get(CONTENTS) is not None


def checkpoints(run_dir: Path) -> list[Path]:
    """The complete checkpoints in a run folder, the latest last."""
    folder = run_dir / CHECKPOINTS
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in paths if CHECKPOINT.fullmatch(path.name)), key=place_of)


def place_of(checkpoint: Path) -> tuple[int, int]:
    """The epoch in the name of a checkpoint, and the number of batches of the next one."""
    match = CHECKPOINT.fullmatch(checkpoint.name)
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


def remove_run(folder: Path, keep: Path | None = None) -> None:
    """Remove what runs have written to ``folder``, and the folders for events and checkpoints that become empty.

    Args:
        keep: a file that stays, since the next run has read its graph there.

    Raises:
        OSError: something cannot be removed.
    """
    files = [file for file in run_files(folder) if keep is None or file != keep.absolute()]
    _remove([*files, *_unfinished(folder, (*FILES, GRAPH))], folder)


def remove_results(folder: Path) -> None:
    """Remove what a run writes when it ends, and what an interrupted one was writing: a resumed run writes it anew.

    Raises:
        OSError: something cannot be removed.
    """
    results = (folder / name for name in ("record.json", *PREDICTIONS))
    _remove([*(file for file in results if file.is_file()), *_unfinished(folder, (*FILES, GRAPH))], folder)


def prepare_sweep(path: str | Path, overwrite: bool = False, resuming: bool = False) -> None:
    """Check that a sweep may write to the folder ``path``: it must not hold an earlier sweep.

    Args:
        overwrite: remove the table of the earlier sweep, and the files of all its jobs: a shorter sweep would leave
            some of them beside its own. Folders of jobs that become empty are removed.
        resuming: the sweep goes on with the earlier one, job by job.

    Raises:
        ConfigError: the folder holds an earlier sweep, or cannot be read or written.
    """
    folder = Path(path)
    with _accessing(path, "read"):
        jobs = _job_folders(folder)
        tables = [name for name in (TABLE_FILE, *MEANS_FILES) if (folder / name).is_file()]
        tables = tables if TABLE_FILE in tables else []  # without the table, files of these names are the user's
        used = [] if overwrite else [job.name for job in jobs if run_files(job)]
    if not overwrite and not resuming and (tables or used):
        raise ConfigError(_refusal(path, "sweep", [*tables, *used]))
    with _accessing(path, "written"):
        _check_writable(folder)
        for job in jobs if overwrite else ():
            remove_run(job)
            if not any(job.iterdir()):  # also that of a job that failed before it wrote anything
                job.rmdir()
        if overwrite:
            _remove([*(folder / name for name in tables), *_unfinished(folder, (TABLE_FILE, *MEANS_FILES))], folder)


def jobs_beside(path: str | Path, jobs: Collection[int]) -> list[str]:
    """The folders of jobs in the folder of a sweep which are not among its ``jobs``; an earlier sweep has left them."""
    return [job.name for job in _job_folders(Path(path)) if int(job.name) not in jobs and run_files(job)]


def _check_writable(folder: Path) -> None:
    """Raise an ``OSError`` if ``folder``, which may not exist yet, cannot be written."""
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _refusal(path: str | Path, kind: str, names: Iterable[str], checkpoints: Iterable[Path] = ()) -> str:
    """The error message about a folder that holds ``names`` of an earlier run or sweep."""
    names = list(dict.fromkeys(names))
    listed = ", ".join(names[:_MAX_NAMES] + ["..."] * (len(names) > _MAX_NAMES))
    cures = "choose another run_dir, or overwrite=true to replace it"
    if any(checkpoints) or kind == "sweep":
        cures = "choose another run_dir, overwrite=true to replace it, or resume=auto to continue it"
    return f"run_dir={path} holds an earlier {kind} ({listed}): {cures}"


def _own_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints without links."""
    return _folders(folder / CHECKPOINTS, CHECKPOINT)


def _job_folders(folder: Path) -> list[Path]:
    """The folders of the jobs of a sweep, by their numbers."""
    return sorted(_folders(folder, _JOB), key=lambda job: int(job.name))


def _folders(parent: Path, name: re.Pattern[str]) -> list[Path]:
    """The folders in ``parent`` with such a name. A link is not one: what it leads to belongs elsewhere."""
    there = parent.iterdir() if parent.is_dir() else ()
    return sorted(path for path in there if name.fullmatch(path.name) and path.is_dir() and not path.is_symlink())


def _unfinished(folder: Path, names: Iterable[str]) -> list[Path]:
    """Temporary files, named by ``replacing``, that an interrupted run was writing in place of ``names``."""
    kinds = "|".join(rf"{re.escape(Path(name).stem)}\.[0-9a-f]{{32}}{re.escape(Path(name).suffix)}" for name in names)
    files = folder.iterdir() if folder.is_dir() else ()
    temporary = [file for file in files if re.fullmatch(rf"\.({kinds})", file.name) and file.is_file()]
    return temporary + _folders(folder / CHECKPOINTS, _UNFINISHED_CHECKPOINT)


def _remove(paths: Iterable[Path], folder: Path) -> None:
    """Remove files and whole folders, then the folders below ``folder`` that are empty without them."""
    paths = list(paths)
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for parent in {path.parent for path in paths} - {folder}:
        if not parent.is_symlink() and not any(parent.iterdir()):
            parent.rmdir()


@contextmanager
def _accessing(path: str | Path, how: str) -> Iterator[None]:
    """Turn an ``OSError`` of the block into a user error about the folder ``path``."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"run_dir={path} cannot be {how} ({error.strerror}): choose another folder") from error
