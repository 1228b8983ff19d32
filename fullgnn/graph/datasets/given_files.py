"""The files of a dataset that a user has put somewhere."""

from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np

from fullgnn.errors import DataError, quoted, reason_of
from fullgnn.storage.arrays import DamagedArray, map_npy


def existing(files: Iterable[Path], cure: str) -> list[Path]:
    """All ``files``, each of which is there.

    Args:
        cure: ends the error, which begins with the file that is missing.

    Raises:
        DataError: a file is missing.
    """
    paths = list(files)
    for file in paths:
        if not file.is_file():
            raise DataError(f"no file {file.resolve()}: {cure}")
    return paths


def in_folder(path: str, names: Iterable[str], cure: str) -> list[Path]:
    """The files of these ``names`` in the folder ``path``; see ``existing``."""
    folder = Path(path).expanduser()
    return existing((folder / name for name in names), cure)


def existing_file(path: str, key: str, what: str) -> Path:
    """The file at ``path``.

    Args:
        key: the key of the dataset that holds it.
        what: which file belongs there.

    Raises:
        DataError: there is no such file.
    """
    return existing([Path(path).expanduser()], f"set dataset.{key} to {what}")[0]


def mapped(file: Path, cure: str) -> np.ndarray:
    """The array in a .npy ``file``, mapped and read-only.

    Raises:
        DataError: it cannot be read; the message ends with ``cure``.
    """
    try:
        return map_npy(file, read_only=True)
    except (DamagedArray, OSError) as error:
        raise DataError(f"{file} cannot be read ({quoted(reason_of(error))}): {cure}") from error


def npz_file(path: str | None, root: str, stem: str, public: Collection[str], name: str) -> Path:
    """The one npz file of a dataset: ``path``, or without it ``root/STEM.npz``, which may be absent if it is public.

    Args:
        public: the stems of the files that can be downloaded.
        name: of the dataset, for messages.

    Raises:
        DataError: a file that is not public is missing.
    """
    if path is not None:
        return existing_file(path, "path", "an existing .npz file")
    file = Path(root).expanduser() / f"{stem}.npz"
    if stem not in public and not file.is_file():
        raise DataError(
            f"no file {file.resolve()}, and {name!r} is not public: set dataset.path, or dataset.name to one of"
            f" {', '.join(public)}"
        )
    return file
