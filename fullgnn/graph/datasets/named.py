"""Nodes and classes that a file knows by texts: their numbers, and the names that a ``Graph`` keeps."""

from __future__ import annotations

from typing import Any

import numpy as np

from fullgnn.graph.datasets.words import texts_of
from fullgnn.graph.node_names import NodeNames, as_node_names


def node_names_of(texts: Any) -> NodeNames | None:
    """The names of nodes: int64 if each text is an integer as it is usually written, None if they are 0, 1, 2, ....

    Args:
        texts: (num_nodes,) pyarrow large_string.
    """
    numbers = as_integers(texts)
    return texts_of(texts) if numbers is None else as_node_names(numbers)


def as_integers(texts: Any) -> np.ndarray | None:
    """(n,) int64, if each text is an integer as it is usually written, without signs or zeros before it; else None.

    Args:
        texts: pyarrow large_string.
    """
    import pyarrow

    try:
        numbers = texts.cast(pyarrow.int64())
    except pyarrow.ArrowInvalid:
        return None
    return numbers.to_numpy() if numbers.cast(pyarrow.large_string()).equals(texts) else None


def classes_of(texts: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each node, (num_nodes,) int64, and the names of the classes: sorted, integers by their size.

    Args:
        texts: (num_nodes,) pyarrow large_string, the class of each node by its name; null: unknown, class -1.
    """
    import pyarrow.compute

    distinct = texts.drop_null().unique()
    numbers = as_integers(distinct)
    names = distinct.take(pyarrow.compute.sort_indices(distinct if numbers is None else pyarrow.array(numbers)))
    classes = pyarrow.compute.index_in(texts, value_set=names, skip_nulls=True).fill_null(-1)
    return classes.to_numpy().astype(np.int64), tuple(names.to_pylist())


def class_fields(texts: Any) -> dict[str, Any]:
    """The classes of ``classes_of`` and, unless they are 0, 1, 2, ..., their names, as arguments of a ``Graph``."""
    labels, names = classes_of(texts)
    numbered = names == tuple(map(str, range(len(names))))
    return {"labels": labels} | ({} if numbered else {"class_names": names})


def places_of(texts: Any, among: Any) -> np.ndarray:
    """(n,) int32, the place of each text ``among`` others, which differ; -1: it is none of them.

    Args:
        texts, among: pyarrow large_string.
    """
    import pyarrow.compute

    return pyarrow.compute.index_in(texts, value_set=among).fill_null(-1).to_numpy()


def first_repeated(texts: Any) -> int | None:
    """The place of the first text that stands at an earlier place, too; None if all texts differ.

    Args:
        texts: pyarrow large_string.
    """
    codes = texts.dictionary_encode().indices.to_numpy()
    odd = np.flatnonzero(codes != np.arange(len(codes)))  # codes count up as new texts appear
    return int(odd[0]) if len(odd) else None


def joined(pieces: list[Any]) -> Any:
    """One pyarrow array of large_string, from its start, of several."""
    import pyarrow

    return pyarrow.concat_arrays(pieces) if len(pieces) != 1 else pieces[0]
