"""The predictions of a run, in ``predictions.npz`` and as a table for other programs, with the names of nodes and
classes: a Parquet or a CSV file.

node           the name of the node, or its number where the nodes have no names; the rows are in original order
prediction     the name or the number of the predicted class, missing where an output is NaN; in a regression, the
               predicted value
probability    of the predicted class, by the softmax of the outputs; only with one class a node
prediction_*   in place of the two, where a node has several labels or values: a column for each, by name or number
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fullgnn.config.schema import TABLES
from fullgnn.distributed import from_rank0
from fullgnn.engine.fit import FitResult
from fullgnn.engine.kept_names import KeptNames
from fullgnn.engine.passes import predict
from fullgnn.engine.row_files import write_rows
from fullgnn.engine.run import Run
from fullgnn.engine.run_folder import write_to
from fullgnn.graph.node_names import Texts
from fullgnn.storage.folder import replacing, writing_to
from fullgnn.storage.record import RunFolder

ROWS_AT_ONCE = 1 << 17
AUTO, PARQUET, CSV, NEVER = TABLES
STEM = "predictions"


def write_predictions(run: Run, result: FitResult, folder: RunFolder | None) -> None:
    """Write what the model of the best epoch predicts for all nodes, whose rows arrive part by part.

    Every rank calls it.

    Args:
        folder: on rank 0.
    """
    if result.best is None:
        return
    run.model.load_state_dict(result.best.model)
    output = predict(run)
    rows = {"prediction": run.task.prediction(output), "logits": output}
    with ExitStack() as stack:

        def make_place() -> Path:
            assert folder is not None  # on rank 0
            with writing_to("run_dir", folder.path):
                return Path(stack.enter_context(TemporaryDirectory(dir=folder.path, prefix=".predictions-")))

        place = from_rank0(make_place) or Path()
        write_rows(run.scheme, place, rows, run.facts.num_nodes)
        files = {name: place / f"{name}.npy" for name in rows}
        write_to(folder, lambda folder: folder.write_predictions(files))
        table = named_table(run, run.cfg.train.prediction_table)
        if table is not None:
            write_to(folder, lambda folder: write_named(folder.path / table, run, [*files.values()]))


def named_table(run: Run, choice: str, class_names: tuple[str, ...] | None = None) -> str | None:
    """The name of the file with the named predictions of ``run``; None: there is none. Equal on every rank.

    Args:
        choice: ``train.prediction_table``, one of ``TABLES``.
        class_names: those that the model was trained with; None: those of the graph.
    """
    nodes = run.facts.nodes
    has_names = bool(nodes.node_names) or (class_names or nodes.labels.class_names) is not None
    if choice == NEVER or (choice == AUTO and not has_names):
        return None
    return f"{STEM}.{CSV if choice == CSV else PARQUET}"


def write_named(path: Path, run: Run, files: Sequence[Path], class_names: tuple[str, ...] | None = None) -> None:
    """Write the table of the predictions in the ``.npy`` files of predictions and outputs, on rank 0.

    Args:
        class_names: those that the model was trained with; None: those of the graph.

    Raises:
        ConfigError: it cannot be written.
    """
    names = class_names or run.facts.nodes.labels.class_names
    prediction, outputs = (np.load(file, mmap_mode="r", allow_pickle=False) for file in files)
    write_table(path, run.names, names, prediction, outputs)


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

    for first in range(0, max(1, len(prediction)), ROWS_AT_ONCE):
        stop = min(first + ROWS_AT_ONCE, len(prediction))
        columns = {"node": _named(names, first, stop)}
        predicted = np.array(prediction[first:stop])
        if predicted.ndim == 1 and predicted.dtype.kind == "i":
            columns["prediction"] = _classes(predicted, class_names)
            columns["probability"] = _probability(np.array(outputs[first:stop]), predicted)
        elif predicted.ndim == 1 or predicted.shape[1] == 1:
            columns["prediction"] = pyarrow.array(predicted.reshape(-1))
        else:
            labels = class_names or range(predicted.shape[1])
            columns |= {f"prediction_{label}": pyarrow.array(predicted[:, place]) for place, label in enumerate(labels)}
        yield pyarrow.table(list(columns.values()), names=list(columns))


def _named(names: KeptNames | None, first: int, stop: int) -> Any:
    """The names of some nodes as an Arrow array."""
    import pyarrow

    nodes = np.arange(first, stop) if names is None else names.some(first, stop)
    if not isinstance(nodes, Texts):
        return pyarrow.array(nodes)
    buffers = pyarrow.py_buffer(nodes.ends), pyarrow.py_buffer(nodes.utf8)
    return pyarrow.LargeStringArray.from_buffers(len(nodes), *buffers).cast(pyarrow.string())


def _classes(predicted: np.ndarray, class_names: tuple[str, ...] | None) -> Any:
    """The predicted classes as an Arrow array, missing where there is none."""
    import pyarrow

    numbers = pyarrow.array(predicted, mask=predicted < 0)
    return numbers if class_names is None else pyarrow.array(class_names, pyarrow.string()).take(numbers)


def _probability(outputs: np.ndarray, predicted: np.ndarray) -> Any:
    """(n,) float64, the softmax of the outputs at the predicted class; missing where there is none."""
    import pyarrow

    with np.errstate(invalid="ignore", over="ignore"):
        shares = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
        probability = 1 / shares.sum(axis=1)  # the largest output is the predicted class, whose share is 1
    return pyarrow.array(probability, mask=(predicted < 0) | np.isnan(probability))
