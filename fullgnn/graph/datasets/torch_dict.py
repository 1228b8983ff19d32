"""Files of ``torch.save`` with a dictionary of numbers and arrays, in which nothing is run.

Tensors are read by ``storage/torch_file.py``. That does not know arrays of NumPy, which lie in the pickle of the file
itself: such a pickle is read by ``inert_pickle.py``.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fullgnn.errors import DataError
from fullgnn.graph.checks import reading
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
    with reading(path, cure, Exception):  # zipfile raises many kinds for a damaged archive
        values = {name: value.numpy() if isinstance(value, Tensor) else value for name, value in _items(_content(path))}
    return {name: value for name, value in values.items() if type(value) in (int, np.ndarray)}


def _content(path: Path) -> dict[Any, Any]:
    """The dictionary, with tensors or with arrays."""
    try:
        content = torch_file.load(path)
    except DataError:
        value = read_pickle(_pickle(path), _NAMES, pickled_arrays.RENAMED)
        if name_of(value) != "dict":
            raise ValueError(f"it holds {kind_of(value)} where a dict belongs") from None
        return _plain(value)
    if not isinstance(content, dict):
        raise ValueError("it holds no dictionary")
    return content


def _plain(value: Any) -> Any:
    """The dictionary, the array or the integer that a pickle was to make; another value is returned as it is."""
    if name_of(value) == "dict":
        pairs = zip(value.items[::2], value.items[1::2], strict=True)
        return {text_of(name): _plain(below) for name, below in pairs}
    made = {"_reconstruct": array_of, "scalar": integer_of}.get(name_of(value))
    return value if made is None else made(value)


def _items(outer: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """The items of a dictionary, and of the dictionaries that are its values."""
    for name, value in outer.items():
        if isinstance(value, dict):
            yield from ((f"{text_of(name)}/{text_of(key)}", below) for key, below in value.items())
        else:
            yield text_of(name), value


def _pickle(path: Path) -> bytes:
    """The pickle in an archive of ``torch.save``, compared with its checksum."""
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if member.filename.partition("/")[2] == "data.pkl"]
        if len(members) != 1 or members[0].compress_type != zipfile.ZIP_STORED:
            raise ValueError("it is no archive of torch.save")
        if members[0].file_size > path.stat().st_size:
            raise ValueError("its pickle does not lie in the file")
        return archive.read(members[0])
