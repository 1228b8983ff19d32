"""How long the codec takes to compress features, in how much memory: a file that is larger than that memory.

The features are Gaussian and lie in a file, which a process of its own maps. It learns the codebook, encodes some
megabytes at a time and writes the codes to another file, as ``loader.map_features`` does. The system refuses it more
memory than ``limit_megabytes``.
"""

import logging
from pathlib import Path

import numpy as np
import torch

from fullgnn.bench.papers.graphs import full_size
from fullgnn.bench.papers.result import Cell, Result
from fullgnn.bench.papers.sparsification.config import Config
from fullgnn.bench.papers.sparsification.fresh import call_fresh
from fullgnn.codecs import EncodedRows, Features
from fullgnn.codecs.topk import TopK
from fullgnn.storage.arrays import map_npy, write_npy
from fullgnn.storage.folder import temporary_folder
from fullgnn.telemetry.timing import wall_ms

log = logging.getLogger(__name__)

_ROWS = 1 << 14
"""Rows of features that are made at a time."""


class Gaussian:
    """Rows of standard normal features, which are made when they are asked for."""

    dtype = np.dtype(np.float32)

    def __init__(self, num_rows: int, num_columns: int, seed: int):
        self.shape, self._random = (num_rows, num_columns), np.random.default_rng(seed)
        self._known = self._random.standard_normal((_ROWS, num_columns), np.float32)

    def __getitem__(self, rows: slice) -> np.ndarray:
        """See ``storage.arrays.SomeRows``. Blocks of rows are shuffled copies of one block, which is faster to make."""
        count = len(range(*rows.indices(self.shape[0])))
        return self._known[self._random.integers(len(self._known), size=count)]


def run(cfg: Config) -> Result:
    """Compress a file of the features of each graph."""
    columns = ("file", "time", "rate", "peak memory", "compressed", "full size")
    result, threads = Result(("graph", "codec"), columns, notes=cfg.notes), cfg.threads or 1
    for name in cfg.chosen:
        full, kind, title = full_size(name), cfg.kinds[name], cfg.graphs[name].title
        with temporary_folder() as folder:
            source, target = folder / "features.npy", folder / "codes.npy"
            num_rows = max(1, round(cfg.file_megabytes * 1e6 / (4 * full.num_features)))
            write_npy(source, Gaussian(num_rows, full.num_features, cfg.seed))
            limit = round(cfg.limit_megabytes * 1e6)
            found = call_fresh(compressed, source, target, kind.k, threads=threads, limit_bytes=limit)
            size, codes = 4 * num_rows * full.num_features, map_npy(target, read_only=True).nbytes
        seconds, whole = found.value, 4 * full.num_nodes * full.num_features
        estimate = whole * seconds / size
        cells = {
            "file": Cell(size / 1e9, unit="GB"),
            "time": Cell(seconds, unit="s"),
            "rate": Cell(size / seconds / 1e9, unit="GB/s"),
            "peak memory": Cell(found.peak_bytes / 1e9, unit="GB"),
            "compressed": Cell(codes / 1e9, unit="GB"),
            "full size": Cell(estimate, unit="s", origin="simulated"),
        }
        result.add((title, f"k={kind.k}"), cells, cfg.paper, graph=name)
        result.details[title] = {"libraries_bytes": found.before_bytes, "full_bytes": whole}
        log.info("%s: %.1f s", title, seconds)
    return result


def compressed(source: Path, target: Path, k: int) -> float:
    """Write the codes of the features in the file ``source`` to ``target``; returns the seconds that it took.

    The loops are compiled before.
    """
    TopK(k).learn(Features(np.zeros((2, 8), np.float32), "float32"))
    features = Features(map_npy(source, read_only=True), "float32")

    def encode() -> None:
        rows = EncodedRows.of(TopK(k), features)
        assert rows is not None
        write_npy(target, rows)

    return wall_ms(encode, torch.device("cpu")) / 1e3
