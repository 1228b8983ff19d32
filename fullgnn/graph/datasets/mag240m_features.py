"""The features of all nodes of MAG240M in one file, which is mapped: papers, authors, institutions, in this order.

    papers        as they are
    authors       the mean of the features of their papers
    institutions  the mean of the features of their authors

A node without such a neighbour has zeros. The file is written once, some megabytes at a time, and may be larger than
the memory. Papers are read in their order while they are copied; the rows that authors average are read wherever they
lie. Beside the .npy stands a .json that says of which files it was made.
"""

import json
import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import DataError, quoted, reason_of
from fullgnn.storage.arrays import DamagedArray, map_npy
from fullgnn.storage.folder import replacing, write_text, writing_to
from fullgnn.storage.text import parse_json, read_text

log = logging.getLogger(__name__)

FORMAT = 1
"""Version of the file: increase it when other rows are written for the same graph."""

BLOCK_BYTES = 1 << 26
"""Rows are computed and written in blocks of about so many bytes."""

PROGRESS_S = 30.0
"""Seconds between two lines of progress."""


def mapped_features(
    file: Path,
    sources: list[Path],
    papers: np.ndarray,
    num_authors: int,
    indptr: np.ndarray,
    indices: np.ndarray,
    cure: str,
) -> np.ndarray:
    """The features in ``file``, which is written first if it is missing, damaged, or made of other files.

    Args:
        sources: the files that determine them; the first has the papers.
        papers: (num_papers, F) float16.
        indptr, indices: of the symmetric graph; papers come first, then authors, then institutions.
        cure: ends the error of papers that are not finite.

    Raises:
        ConfigError: the file cannot be written.
        DataError: the disk is too small, or papers have NaN or infinity.

    Returns:
        (num_nodes, F) float16, C-contiguous, mapped and read-only.
    """
    shape = len(indptr) - 1, papers.shape[1]
    made_of = {"format": FORMAT, "shape": list(shape), "files": [_about(source) for source in sources]}
    if _is_made_of(file, made_of):
        return map_npy(file, read_only=True)
    with writing_to("dataset.cache_dir", file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        _check_disk(file.parent, 2 * shape[0] * shape[1])
        log.info("the features of all nodes are written to %s: %.3g GB", file, 2e-9 * shape[0] * shape[1])
        with replacing(file) as temporary:
            _write(temporary, sources[0], papers, num_authors, indptr, indices, cure)
            written = temporary.stat().st_mtime_ns
        write_text(_about_file(file), json.dumps(made_of | {"written": written}) + "\n")
    return map_npy(file, read_only=True)


def _about(source: Path) -> list[Any]:
    """What identifies the content of a file, as ``dataset_identity`` does, wherever its folder is."""
    stat = source.stat()
    return [f"{source.parent.name}/{source.name}", stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _about_file(file: Path) -> Path:
    return file.with_suffix(".json")


def _is_made_of(file: Path, made_of: dict[str, Any]) -> bool:
    """Whether ``file`` is whole, and made of what ``made_of`` says. A line says what is wrong."""
    if not file.is_file():
        return False
    try:
        kept = parse_json(read_text(_about_file(file)), _about_file(file))
        if kept != made_of | {"written": file.stat().st_mtime_ns}:
            log.info("%s was made of other files, or has changed: it is written anew", file)
            return False
        array = map_npy(file, read_only=True)
        if array.dtype == np.float16 and list(array.shape) == made_of["shape"] and array.flags.c_contiguous:
            return True
        reason = f"it has the shape {array.shape} and the dtype {array.dtype}"
    except (DamagedArray, DataError, OSError) as error:
        reason = reason_of(error)
    log.warning("%s cannot be used (%s): it is written anew", file, quoted(reason))
    return False


def _check_disk(folder: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise DataError(
            f"the features of all nodes need {num_bytes} bytes on the disk of {folder}, and {free} are free: set"
            " dataset.cache_dir to a folder on a larger disk, or dataset.max_papers to fewer papers"
        )


def _write(
    file: Path,
    source: Path,
    papers: np.ndarray,
    num_authors: int,
    indptr: np.ndarray,
    indices: np.ndarray,
    cure: str,
) -> None:
    from fullgnn.graph.datasets._means_cpu import neighbor_means  # imported here, since it imports numba

    num_nodes, num_papers, width = len(indptr) - 1, *papers.shape
    dtype, last_author = np.dtype(np.float16), num_papers + num_authors
    said = time.perf_counter()
    with file.open("wb", buffering=0) as stream:
        about: Any = {"descr": dtype.str, "fortran_order": False, "shape": (num_nodes, width)}
        np.lib.format.write_array_header_1_0(stream, about)
        start = stream.tell()

        def append(rows: slice, block: np.ndarray) -> None:
            nonlocal said
            rest = block.reshape(-1).view(np.uint8).data
            while len(rest):
                rest = rest[stream.write(rest) :]
            if time.perf_counter() - said >= PROGRESS_S:
                said = time.perf_counter()
                log.info("%s: %d of %d rows are written", file, rows.stop, num_nodes)

        def append_means(nodes: slice, first: int) -> None:
            """Append the means of rows that are in the file already, from node ``first`` on."""
            if nodes.start < nodes.stop:
                written = np.memmap(file, dtype, "r", start, (nodes.start, width)).view(np.ndarray)[first:]
                for rows in _blocks(nodes, width):
                    append(rows, neighbor_means(indptr, indices, rows, written, first))

        for rows in _blocks(slice(0, num_papers), width):
            append(rows, _finite(papers[rows], rows.start, source, cure))
        append_means(slice(num_papers, last_author), 0)
        append_means(slice(last_author, num_nodes), num_papers)


def _finite(block: np.ndarray, first: int, source: Path, cure: str) -> np.ndarray:
    """``block``, C-contiguous, the rows of the file ``source`` from row ``first`` on.

    Raises:
        DataError: they have NaN or infinity.
    """
    finite = np.isfinite(block)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise DataError(f"{source} has {block[row, column]} in row {first + row}, column {column}: {cure}")
    return np.ascontiguousarray(block)


def _blocks(rows: slice, width: int) -> Iterator[slice]:
    step = max(1, BLOCK_BYTES // max(1, 2 * width))
    return (slice(first, min(first + step, rows.stop)) for first in range(rows.start, rows.stop, step))
