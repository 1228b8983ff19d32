"""Predictions as a table for other programs, with the names of nodes and classes: a Parquet or a CSV file.

node           the name of the node, or its number where the nodes have no names; the rows are in original order
prediction     the name or the number of the predicted class, missing where an output is NaN; in a regression, the
               predicted value
probability    of the predicted class, by the softmax of the outputs; only with one class a node
prediction_*   in place of the two, where a node has several labels or values: a column for each, by name or number
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.config.schema import TABLES
from fullgnn.engine.kept_names import KeptNames
from fullgnn.graph.node_names import Texts
from fullgnn.storage.temporary import replacing, writing_to

_ROWS_AT_ONCE = 1 << 17
AUTO, PARQUET, CSV, NEVER = TABLES
STEM = "predictions"


def table_name(choice: str, has_names: bool) -> str | None:
    """The name of the file of a table; None: there is none.

    Args:
        choice: one of ``TABLES``.
        has_names: whether the nodes or the classes have names.
    """
    if choice == NEVER or (choice == AUTO and not has_names):
        return None
    return f"{STEM}.{CSV if choice == CSV else PARQUET}"


def write_table(
    path: Path,
    names: KeptNames | None,
    class_names: tuple[str, ...] | None,
    prediction: np.ndarray,
    outputs: np.ndarray,
) -> None:
    """Write the table of all nodes to ``path``, whose suffix says its format, some rows at a time.

    Args:
        names: of the nodes; None: their numbers.
        class_names: of the classes or labels; None: their numbers.
        prediction: (num_nodes,) or (num_nodes, c), see ``Task.prediction``.
        outputs: (num_nodes, num_outputs).

    Raises:
        ConfigError: the file cannot be written.
    """
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    if class_names is not None and prediction.ndim == 2 and prediction.shape[1] != len(class_names):
        class_names = None  # vectors of a task that finds links
    tables = _tables(names, class_names, prediction, outputs)
    first = next(tables)
    with writing_to("out", path.parent), replacing(path) as temporary:
        open_writer: Any = pyarrow.csv.CSVWriter if path.suffix == f".{CSV}" else pyarrow.parquet.ParquetWriter
        with open_writer(temporary, first.schema) as writer:
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)


def _tables(
    names: KeptNames | None, class_names: tuple[str, ...] | None, prediction: np.ndarray, outputs: np.ndarray
) -> Iterator[Any]:
    """The rows as Arrow tables of some rows each; one at least."""
    import pyarrow

    for first in range(0, max(1, len(prediction)), _ROWS_AT_ONCE):
        stop = min(first + _ROWS_AT_ONCE, len(prediction))
        columns = {"node": _named(names, first, stop)}
        found = np.array(prediction[first:stop])
        if found.ndim == 1 and found.dtype.kind == "i":
            columns["prediction"] = _classes(found, class_names)
            columns["probability"] = _probability(np.array(outputs[first:stop]), found)
        elif found.ndim == 1 or found.shape[1] == 1:
            columns["prediction"] = pyarrow.array(found.reshape(-1))
        else:
            labels = class_names or range(found.shape[1])
            columns |= {f"prediction_{one}": pyarrow.array(found[:, place]) for place, one in enumerate(labels)}
        yield pyarrow.table(list(columns.values()), names=list(columns))


def _named(names: KeptNames | None, first: int, stop: int) -> Any:
    """The names of some nodes as an Arrow array."""
    import pyarrow

    found = np.arange(first, stop) if names is None else names.some(first, stop)
    if not isinstance(found, Texts):
        return pyarrow.array(found)
    buffers = pyarrow.py_buffer(found.ends), pyarrow.py_buffer(found.utf8)
    return pyarrow.LargeStringArray.from_buffers(len(found), *buffers).cast(pyarrow.string())


def _classes(found: np.ndarray, class_names: tuple[str, ...] | None) -> Any:
    """The predicted classes as an Arrow array, missing where there is none."""
    import pyarrow

    numbers = pyarrow.array(found, mask=found < 0)
    return numbers if class_names is None else pyarrow.array(class_names, pyarrow.string()).take(numbers)


def _probability(outputs: np.ndarray, found: np.ndarray) -> Any:
    """(n,) float64, the softmax of the outputs at the predicted class; missing where there is none."""
    import pyarrow

    with np.errstate(invalid="ignore", over="ignore"):
        shares = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
        probability = 1 / shares.sum(axis=1)  # the largest output is the predicted class, whose share is 1
    return pyarrow.array(probability, mask=(found < 0) | np.isnan(probability))
