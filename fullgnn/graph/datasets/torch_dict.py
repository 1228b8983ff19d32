"""Files of ``torch.save`` with a dictionary of numbers and arrays, in which nothing is run.

Tensors are read by ``storage/torch_file.py``. That does not know arrays of NumPy, which lie in the pickle of the file
itself: such a pickle is read by ``inert_pickle.py``.
"""

import zipfile
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
from fullgnn.storage.memory import check_fits

_NAMES = (*pickled_arrays.NAMES, *pickled_arrays.NAMES_OF_BYTES, ("numpy.core.multiarray", "scalar"))


def read_torch_dict(path: Path, cure: str) -> dict[str, int | np.ndarray]:
    """The integers and the arrays of the dictionary in a file, by name. Tensors become arrays; other values are left
    out.

    Args:
        cure: ends the error of a file that cannot be read.

    Raises:
        DataError: the file is damaged or too large, or holds something else.
    """
    check_fits(16 * path.stat().st_size, str(path), cure)
    try:
        content = _content(path)
    except MemoryError:
        raise
    except Exception as error:  # zipfile raises many kinds for a damaged archive
        raise DataError(f"{path} cannot be read ({quoted(first_line(error))}): {cure}") from error
    arrays = {name: value.numpy() if isinstance(value, Tensor) else value for name, value in content.items()}
    return {name: value for name, value in arrays.items() if type(value) in (int, np.ndarray)}


def _content(path: Path) -> dict[str, Any]:
    """The values of the dictionary by name, with tensors or with arrays."""
    try:
        content = torch_file.load(path)
    except DataError:
        return _with_arrays(path)
    if not isinstance(content, dict):
        raise ValueError("it holds no dictionary")
    return {text_of(name): value for name, value in content.items()}


def _with_arrays(path: Path) -> dict[str, Any]:
    value = read_pickle(_pickle(path), _NAMES, pickled_arrays.RENAMED)
    if name_of(value) != "dict":
        raise ValueError(f"it holds {kind_of(value)} where a dict belongs")
    names, values = value.items[::2], value.items[1::2]
    read = {"_reconstruct": array_of, "scalar": integer_of}
    found = (read[name_of(one)](one) if name_of(one) in read else one for one in values)
    return {text_of(name): one for name, one in zip(names, found, strict=True)}


def _pickle(path: Path) -> bytes:
    """The pickle in an archive of ``torch.save``, compared with its checksum."""
    with zipfile.ZipFile(path) as archive:
        members = [one for one in archive.infolist() if one.filename.partition("/")[2] == "data.pkl"]
        if len(members) != 1 or members[0].compress_type != zipfile.ZIP_STORED:
            raise ValueError("it is no archive of torch.save")
        if members[0].file_size > path.stat().st_size:
            raise ValueError("its pickle does not lie in the file")
        return archive.read(members[0])
