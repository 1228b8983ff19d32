"""Files of ``torch.save`` with a dictionary of numbers and arrays, in which nothing is run.

Tensors are read by ``storage/torch_file.py``. That does not know arrays of NumPy, which lie in the pickle of the file
itself: such a pickle is read by ``inert_pickle.py``.
"""

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fullgnn.errors import DataError, quoted
from fullgnn.graph.checks import first_line
from fullgnn.graph.datasets import pickled_arrays
from fullgnn.graph.datasets.inert_pickle import read_pickle
from fullgnn.graph.datasets.pickled_arrays import array_of, integer_of, kind_of, name_of, text_of
from fullgnn.storage import torch_file
from fullgnn.telemetry.machine import check_fits

_NAMES = (*pickled_arrays.NAMES, *pickled_arrays.NAMES_OF_BYTES, ("numpy.core.multiarray", "scalar"))


def read_torch_dict(path: Path, cure: str) -> dict[str, int | np.ndarray]:
    """The integers and the arrays of the dictionary in a file, by name. Tensors become arrays; other values are left
    out, except that a dictionary within the dictionary is read, too: its values have names such as ``train/paper``.

    Args:
        cure: ends the error of a file that cannot be read.

    Raises:
        DataError: the file is damaged or too large, or holds something else.
    """
    check_fits(16 * path.stat().st_size, str(path), cure)
    try:
        values = {name: value.numpy() if isinstance(value, Tensor) else value for name, value in _content(path)}
    except MemoryError:
        raise
    except Exception as error:  # zipfile raises many kinds for a damaged archive
        raise DataError(f"{path} cannot be read ({quoted(first_line(error))}): {cure}") from error
    return {name: value for name, value in values.items() if type(value) in (int, np.ndarray)}


def _content(path: Path) -> Iterator[tuple[str, Any]]:
    """The names and values of the dictionary, with tensors or with arrays."""
    try:
        content = torch_file.load(path)
    except DataError:
        value = read_pickle(_pickle(path), _NAMES, pickled_arrays.RENAMED)
        if name_of(value) != "dict":
            raise ValueError(f"it holds {kind_of(value)} where a dict belongs") from None
        return _with_inner(value, _items_of_made)
    if not isinstance(content, dict):
        raise ValueError("it holds no dictionary")
    return _with_inner(content, _items_of_dict)


def _with_inner(outer: Any, items_of: Callable[[Any], Iterator[tuple[str, Any]] | None]) -> Iterator[tuple[str, Any]]:
    """The items of a dictionary, and of the dictionaries that are its values.

    Args:
        items_of: the items of a dictionary; None: it is another value.
    """
    for name, value in items_of(outer) or ():
        inner = items_of(value)
        if inner is None:
            yield name, value
        else:
            yield from ((f"{name}/{key}", below) for key, below in inner)


def _items_of_dict(value: Any) -> Iterator[tuple[str, Any]] | None:
    return ((text_of(name), below) for name, below in value.items()) if isinstance(value, dict) else None


def _items_of_made(value: Any) -> Iterator[tuple[str, Any]] | None:
    """The items of a dictionary in a pickle, with arrays and numbers of NumPy."""
    if name_of(value) != "dict":
        return None
    read = {"_reconstruct": array_of, "scalar": integer_of}
    pairs = zip(value.items[::2], value.items[1::2], strict=True)
    return ((text_of(name), read.get(name_of(below), lambda other: other)(below)) for name, below in pairs)


def _pickle(path: Path) -> bytes:
    """The pickle in an archive of ``torch.save``, compared with its checksum."""
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if member.filename.partition("/")[2] == "data.pkl"]
        if len(members) != 1 or members[0].compress_type != zipfile.ZIP_STORED:
            raise ValueError("it is no archive of torch.save")
        if members[0].file_size > path.stat().st_size:
            raise ValueError("its pickle does not lie in the file")
        return archive.read(members[0])
