"""The files of a run: ``config.yaml``, ``structure.npz``, ``epochs.jsonl`` and ``record.json`` in its folder."""

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache
from io import RawIOBase
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from fullgnn.errors import ConfigError, DataError, message_of, one_line_errors
from fullgnn.storage.folder import check_folder, remove_results, remove_run, replacing, write_text, writing_to
from fullgnn.storage.text import finite, fits, parse_json, read_text
from fullgnn.telemetry.meter import EpochRecord

MAX_EPOCH = 2**53
"""A line of ``epochs.jsonl`` with a number as large is damaged."""
LARGEST = 2**63
"""No number of a record is as large."""
OTHER_VERSION = "it is damaged, or another version of fullgnn has written it"


@dataclass(frozen=True)
class RunRecord:
    """One finished run. Times are of a training step, without evaluation and without the first epoch (warm-up).

    Times are those of the busiest rank, whose products take longest; a size is the largest rank's; bytes are what one
    rank receives in one epoch, the mean over the ranks.
    """

    dataset: str
    num_nodes: int
    num_edges: int  # stored non-zeros before self-loops are added
    nnz: int  # after normalisation
    num_features: int
    num_classes: int
    symmetric: bool
    model: str
    num_parameters: int
    scheme: str
    world_size: int
    dry_run_rank: int | None  # the only rank that ran, which per-rank fields describe; None: all ranks ran
    replication: int
    reorder: str  # as used: METIS falls back to RCM if it fails
    reorder_scope: str
    reorder_num_blocks: int
    partition: str
    kernel: str  # the kernel that multiplied
    stage_order: str
    exchange: str  # as configured
    split_rows: bool
    optimizations: dict[str, Any]  # OptimizationConfig as applied
    device: str
    backend: str
    dtype: str
    threads: int
    cuda_graph: str  # "replayed" if all but the first few epochs were; else "no: " and the reason
    epochs: int  # number of epochs that ran, with those before a checkpoint
    epoch_time_ms: dict[str, float]  # median, p20, p80
    spmm_time_ms: float  # median epoch
    comm_time_ms: float  # median epoch: exposed communication, that is, waiting for data
    comm_hidden: float | None  # fraction of the transfer time that other work hid; None: nothing but all-reduces
    dense_time_ms: float  # median epoch: the rest of forward and backward
    other_time_ms: float  # median epoch: update and bookkeeping
    comm_bytes_per_epoch: dict[str, float]  # by collective, mean over the ranks
    comm_bytes_per_epoch_max: dict[str, float]  # by collective, of the rank that receives most
    spmm_columns_per_epoch: int  # summed over the products of one training step, without evaluation
    spmm_rows_per_epoch: int  # rows of A, or of its part, in these products
    nnz_imbalance: float  # max / mean over the ranks of the non-zeros that they multiply
    stage_imbalance: float  # the same if every stage waits for its most loaded rank
    edge_cut: float | None  # fraction of the non-zeros that join two block rows
    needed_row_ratio: float | None  # rows that the block rows read of each other / all; None with one block row
    tile_density: dict[str, float] | None  # fraction of nnz, by the density (per cent) of its 32 x 32 tile in the new
    # order; None: not counted, see ``train.statistics``
    peak_memory_bytes: int  # largest process
    peak_memory_bytes_per_rank: list[int]
    peak_tensor_bytes: int  # largest rank
    partition_time_s: float
    reorder_time_s: float
    prepare_time_s: float
    setup_time_s: float  # everything before the first epoch, on the slowest rank; includes the three times above
    setup_bytes: dict[str, float]  # by collective, mean over the ranks: bytes received for A @ H0
    setup_spmm_columns: int  # of A @ H0
    final_loss: float | None  # training loss of the last epoch, before its update
    best_epoch: int
    train_accuracy: float | None  # at the best-validation epoch
    val_accuracy: float | None
    test_accuracy: float | None
    final_test_accuracy: float | None
    seed: int
    versions: dict[str, str | None]
    hardware: dict[str, Any]
    git_commit: str | None
    ranks: list[dict[str, Any]] = field(default_factory=list)  # costs of each rank, in rank order; see docs/record.md
    predicted: dict[str, Any] | None = None  # the planner's prediction; None: there is no plan
    task: str = "node_classification"
    resumed_after: int | None = None  # epoch of the checkpoint that the run went on from; None: it began anew
    sampling: dict[str, Any] | None = None  # of sampled training, see docs/record.md; None: every epoch is full-batch
    load_time_s: float = 0.0  # part of prepare_time_s; 0 if the prepared graph was in the cache
    ended_by: str | None = None  # why the training ended: "epochs", all of train.epochs ran, or "patience"
    prepared: str | None = None  # folder of the prepared graph in the cache; None: it was temporary
    metrics: dict[str, float | None] = field(default_factory=dict)  # of the task, by name, such as "val_micro_f1"
    remarks: dict[str, int] = field(default_factory=dict)  # on the graph, by name with a count; see docs/record.md
    codec: dict[str, Any] | None = None  # how features are kept, which makes the run inexact; None: as they are. Its
    # keys, and ``row_bytes``, those of a node, and ``ratio``, those of float features over them
    confusion: dict[str, list[list[int]]] | None = None  # by split, at the best epoch: nodes of each class (a row) by
    # predicted class; None: not counted, see ``task.metrics``
    confusion_classes: list[str] | None = None  # names of the classes of ``confusion``, in order; None: it is None, or
    # the classes have no names
    run_dir: str | None = None  # absolute path of the run folder, when the run ended


class RunFolder:
    """The folder of one run, written by rank 0 alone.

    ``epochs.jsonl`` grows line by line, so that an interrupted run keeps its curve; ``record.json`` is written
    atomically at the end. On a full disk, what is there stays complete and readable. Files of an earlier run in the
    same folder are neither replaced nor removed unless the caller asks for it; see ``storage/folder.py`` for what these
    files are.

    Args:
        config: text of ``config.yaml``.
        overwrite: remove the files of an earlier run first.
        continue_after: the last epoch that a resumed run keeps of the run in this folder; 0: that run has ended before
            its first checkpoint. Lines of later epochs are cut off ``epochs.jsonl``, results are removed, and events
            and checkpoints stay. None: a new run.
        checkpoint: what the run goes on from; None: the latest state in this folder. If it belongs to another run,
            the epochs of that run are copied.
        graph: the file of the graph of this run, which stays, also where an earlier run has written it.

    Raises:
        ConfigError: the folder holds an earlier run, or cannot be created or written.
    """

    def __init__(
        self,
        path: str,
        config: str,
        overwrite: bool = False,
        continue_after: int | None = None,
        checkpoint: Path | None = None,
        graph: Path | None = None,
    ):
        self.path = Path(path).absolute()
        epochs = self.path / "epochs.jsonl"
        source = self.path if checkpoint is None else checkpoint.parent.parent
        check_folder(path, overwrite, resuming=continue_after is not None and source == self.path)
        with writing_to("run_dir", path):
            self.path.mkdir(parents=True, exist_ok=True)
            if continue_after is not None:
                remove_results(self.path)
                write_text(epochs, lines_until(source / "epochs.jsonl", continue_after))
            elif overwrite:
                remove_run(self.path, keep=graph)
            self._epochs: RawIOBase = open(epochs, "xb" if continue_after is None else "ab", buffering=0)  # noqa: SIM115
            write_text(self.path / "config.yaml", config)

    def add_epoch(self, record: EpochRecord) -> None:
        """Append the line of one epoch, measured on rank 0.

        Raises:
            OSError: it cannot be written, and the file is as it was before.
        """
        line = {
            "epoch": record.epoch,
            "loss": record.loss,
            **(record.metrics or {}),
            "time_ms": record.cost.time_ms,
            "bytes_received": record.cost.bytes_received,
            "replayed": record.replayed,
        }
        rest, size = (strict_json(line) + "\n").encode(), os.fstat(self._epochs.fileno()).st_size
        try:
            while rest:  # a disk that becomes full takes a part
                rest = rest[self._epochs.write(rest) or 0 :]
        except OSError:
            os.ftruncate(self._epochs.fileno(), size)
            raise

    def write_structure(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write ``structure.npz`` with the ``arrays`` of a ``Structure``.

        Raises:
            ConfigError: it cannot be written.
        """
        with self._writing(), replacing(self.path / "structure.npz") as temporary:
            np.savez(temporary, **dict[str, Any](arrays))

    def write_predictions(self, files: Mapping[str, Path]) -> None:
        """Write ``predictions.npz``, in which row i is node i.

        Args:
            files: a .npy for ``prediction``, see ``Task.prediction``, and one for the model's output ``logits``
                (num_nodes, num_outputs). They are copied, not read into memory.

        Raises:
            ConfigError: the file cannot be written.
        """
        with (
            self._writing(),
            replacing(self.path / "predictions.npz") as temporary,
            zipfile.ZipFile(temporary, "w") as archive,
        ):
            for name, file in files.items():
                archive.write(file, f"{name}.npy")

    def write_record(self, record: RunRecord) -> None:
        """Write ``record.json``, when all else is written.

        Raises:
            ConfigError: it cannot be written.
        """
        with self._writing():
            write_text(self.path / "record.json", strict_json(asdict(record), indent=2) + "\n")
            self.close()

    def close(self) -> None:
        """Close ``epochs.jsonl``. May be called repeatedly, and is called also where the run fails."""
        self._epochs.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unwritable(self.path, error) from error


def unwritable(path: Path, error: OSError) -> ConfigError:
    """What a user is told of a run folder that cannot be written while the run is under way."""
    return ConfigError(
        f"run_dir={path} cannot be written ({error.strerror or error}), and what is there is complete: make room, then"
        " resume=auto goes on from the latest checkpoint there"
    )


def strict_json(value: Any, indent: int | None = None) -> str:
    """Encode ``value`` as strict JSON: a number that is not finite, such as a diverged loss, becomes null."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def read_epochs(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """Read the lines of ``epochs.jsonl`` in folder ``path``; there are none if the file does not exist.

    Returns:
        the lines up to the first one that cannot be read, and whether there is such a line: a run that was killed
        leaves half a line at the end.
    """
    epochs: list[dict[str, Any]] = []
    for line in _lines(path / "epochs.jsonl"):
        epoch = _epoch_of(line)
        if epoch is None:
            return epochs, True
        epochs.append(epoch)
    return epochs, False


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []


def lines_until(file: Path, last: int) -> str:
    """The readable lines of ``epochs.jsonl`` up to epoch ``last``, as they are; none if the file does not exist."""
    kept = [line for line in _lines(file) if (epoch := _epoch_of(line)) and int(epoch["epoch"]) <= last]
    return "".join(line + "\n" for line in kept)


def _epoch_of(line: str) -> dict[str, Any] | None:
    """The object in one line of ``epochs.jsonl``; None if the line is damaged."""
    try:
        epoch = parse_json(line, "the line")
        finite(epoch, LARGEST)
    except (DataError, ValueError):
        return None
    number = epoch.get("epoch") if isinstance(epoch, dict) else None
    return epoch if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < MAX_EPOCH else None


@one_line_errors
def read_record(path: Path) -> RunRecord:
    """Read the record of a finished run in folder ``path``. Fields that this version does not know are dropped, and
    those that may be null are null where they are missing.

    Raises:
        DataError: the file cannot be read, is damaged, or lacks a field.
    """
    file, advice = path / "record.json", "train again with overwrite=true, or choose another run_dir"
    values = read_record_fields(file, advice)
    arguments = {}
    for entry in fields(RunRecord):
        if entry.name in values:
            arguments[entry.name] = values[entry.name]
        elif entry.default is MISSING and entry.default_factory is MISSING:
            if not fits(None, _types()[entry.name]):
                raise DataError(f"{file} has no {entry.name}, so {OTHER_VERSION}: {advice}")
            arguments[entry.name] = None
    return RunRecord(**arguments)


def read_record_fields(file: Path, advice: str) -> dict[str, Any]:
    """The fields that a ``record.json``, perhaps of an older or a newer version, has, by their names.

    A field that must not be null, but is, is left out. A number that is not finite becomes null. A field of a newer
    version may have any value. What lies deeper in a field, such as the costs of a rank, is not checked.

    Args:
        advice: what the message tells the reader to do.

    Raises:
        DataError: the file cannot be read, is no JSON object, or a field has a value of another type.
    """
    try:
        values = finite(parse_json(read_text(file), file), LARGEST)
    except (DataError, ValueError) as error:
        why = message_of(error).removeprefix(f"{file} ")
        raise DataError(f"{file} cannot be read: {advice} ({why})") from error
    if not isinstance(values, dict):
        raise DataError(f"{file} is not of a training run: {advice}")
    types = _types()
    for name, value in values.items():
        if value is not None and not fits(value, types.get(name, Any)):
            raise DataError(f"{file}: {name} has a value of another type, so {OTHER_VERSION}: {advice}")
    return {name: value for name, value in values.items() if value is not None or fits(None, types.get(name, Any))}


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(RunRecord)
