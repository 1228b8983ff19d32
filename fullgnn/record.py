"""What a run leaves behind: ``config.yaml``, ``epochs.jsonl`` and ``record.json`` in its folder."""

import json
import math
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from fullgnn.errors import ConfigError


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
    dry_run_rank: int | None  # the only one that ran, and what was per rank is its own; None: all ran
    replication: int
    reorder: str  # as used: METIS falls back to RCM where it fails
    reorder_scope: str
    reorder_num_blocks: int
    partition: str
    kernel: str  # the one that multiplied
    stage_order: str
    exchange: str  # as asked for
    split_rows: bool
    work: dict[str, Any]  # WorkConfig as it was applied
    device: str
    backend: str
    dtype: str
    threads: int
    cuda_graph: str  # "replayed": epochs after the first few were; or "no: " and why not
    epochs: int  # that ran
    epoch_time_ms: dict[str, float]  # median, p20, p80
    spmm_time_ms: float  # median epoch
    comm_time_ms: float  # median epoch: waiting for data, not what is hidden behind a product
    comm_hidden: float | None  # share of the rows' time on their way that other work hid; None: no messages
    dense_time_ms: float  # median epoch: the rest of forward and backward
    other_time_ms: float  # median epoch: update and bookkeeping
    comm_bytes_per_epoch: dict[str, float]  # by collective, mean over the ranks
    comm_bytes_per_epoch_max: dict[str, float]  # by collective, of the rank that receives most
    spmm_columns_per_epoch: int  # summed over the products of one training step, without evaluation
    spmm_rows_per_epoch: int  # rows of A, or of its part, in these products
    nnz_imbalance: float  # max / mean over the ranks of the non-zeros that they multiply
    stage_imbalance: float  # the same where every stage waits for its most loaded rank
    edge_cut: float  # share of the non-zeros that join two block rows
    needed_row_ratio: float | None  # rows that the block rows read of each other / all; None with one block row
    tile_density: dict[
        str, float
    ]  # share of nnz by the density, in per cent, of its 32 x 32 tile of the ordered matrix
    peak_memory_bytes: int  # largest process
    peak_memory_bytes_per_rank: list[int]
    peak_tensor_bytes: int  # largest rank
    partition_time_s: float
    reorder_time_s: float
    prepare_time_s: float
    setup_time_s: float  # all before the first epoch, on the slowest rank; the three above are part of it
    setup_bytes: dict[str, float]  # by collective, mean over the ranks: what A @ H0 moved
    setup_spmm_columns: int  # of A @ H0
    final_loss: float | None  # training loss of the last epoch, before its update; None if it is not finite
    best_epoch: int
    train_accuracy: float | None  # at the best-validation epoch
    val_accuracy: float | None
    test_accuracy: float | None
    final_test_accuracy: float | None
    seed: int
    versions: dict[str, str | None]
    hardware: dict[str, Any]
    git_commit: str | None


class RunFolder:
    """The folder of one run, written by rank 0 alone.

    ``epochs.jsonl`` grows line by line, so that an interrupted run keeps its curve; ``record.json`` appears whole, at
    the end. Files of an earlier run in the same folder are removed when the new one starts.

    Args:
        config: text of ``config.yaml``.

    Raises:
        ConfigError: the folder cannot be made or written.
    """

    def __init__(self, path: str, config: str):
        self.path = Path(path).absolute()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for stale in ("record.json", "record.json.tmp", "predictions.npz", "predictions.tmp.npz"):
                (self.path / stale).unlink(missing_ok=True)
            (self.path / "config.yaml").write_text(config)
            self._epochs: TextIO = open(self.path / "epochs.jsonl", "w")
        except OSError as error:
            raise ConfigError(f"run_dir={path} cannot be written ({error.strerror}): choose another folder") from error

    def add_epoch(self, line: dict[str, Any]) -> None:
        self._epochs.write(strict_json(line) + "\n")
        self._epochs.flush()

    def write_predictions(self, logits: np.ndarray) -> None:
        """``predictions.npz``: ``prediction`` (num_nodes,), ``logits`` (num_nodes, num_classes); row i is node i."""
        temporary = self.path / "predictions.tmp.npz"
        np.savez(temporary, prediction=logits.argmax(axis=1), logits=logits)
        os.replace(temporary, self.path / "predictions.npz")

    def write_record(self, record: RunRecord) -> None:
        temporary = self.path / "record.json.tmp"
        temporary.write_text(strict_json(asdict(record), indent=2) + "\n")
        os.replace(temporary, self.path / "record.json")
        self._epochs.close()


def strict_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: a number that is not finite, as the loss of a diverged run, becomes null."""

    def finite(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: finite(child) for key, child in node.items()}
        if isinstance(node, (list, tuple)):
            return [finite(child) for child in node]
        return None if isinstance(node, float) and not math.isfinite(node) else node

    return json.dumps(finite(value), indent=indent, allow_nan=False)


def read_record(path: Path) -> RunRecord:
    """The record of a finished run in folder ``path``."""
    return RunRecord(**json.loads((path / "record.json").read_text()))


def versions(*others: str) -> dict[str, str | None]:
    """Of Python, CUDA and the packages that a run uses, and of ``others``; None where one is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for package in ("fullgnn", "torch", "numpy", "scipy", "pymetis", "networkx", "hydra-core", "numba", *others):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def hardware(device: torch.device) -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {"cpu": cpu, "num_cores": len(os.sched_getaffinity(0)), "gpu": gpu}


def git_commit() -> str | None:
    """Commit of the checkout that this package runs from, with ``-dirty`` for local changes; None when installed."""
    folder = Path(__file__).resolve().parent.parent
    if not (folder / ".git").exists():
        return None
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
