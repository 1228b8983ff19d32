"""The files of a node property prediction dataset of OGB (Hu et al., 2020), as its package ``ogb`` leaves them on disk.

The folder ``ogbn_arxiv`` of ``ogbn-arxiv`` holds ``raw`` and ``split``, in one of two layouts. Files of text have no
header, numbers between commas, and are packed by gzip:

- text: ``raw/num-node-list.csv.gz`` and ``raw/num-edge-list.csv.gz``, one number each; ``raw/edge.csv.gz``, a source
  and a target a line; ``raw/node-label.csv.gz``; and, of some datasets, ``raw/node-feat.csv.gz``,
  ``raw/edge-feat.csv.gz``, and ``raw/node_species.csv.gz``, which is called ``species.csv.gz`` in the archive;
- binary: ``raw/data.npz`` with ``num_nodes_list``, ``num_edges_list``, ``edge_index`` (2, E), and ``node_feat`` or
  ``edge_feat`` or both; ``raw/node-label.npz`` with ``node_label``.

A label that is empty or NaN is not known. ``split/NAME/train.csv.gz``, ``valid.csv.gz`` and ``test.csv.gz`` have a node
a line. ``ogb_names.py`` reads ``mapping``; other files, such as ``raw/node_year.csv.gz``, are not read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.csv_numbers import num_columns, read_numbers
from fullgnn.graph.datasets.named_arrays import NamedArrays
from fullgnn.graph.parts import MASKS, masks_of_ids

UNPACK_AGAIN = "let the package ogb load it again, or unpack it again from snap.stanford.edu/ogb/data/nodeproppred"
SPECIES = ("node_species.csv.gz", "species.csv.gz")


class Raw(Protocol):
    """The graph in the folder ``raw``, whose arrays are read when they are asked for."""

    file: Path  # with the edges
    num_nodes: int
    num_edges: int

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """The sources and the targets, (num_edges,) integers each."""

    def labels(self) -> np.ndarray:
        """(num_nodes, c) numbers, NaN where a label is not known."""

    def features(self) -> np.ndarray | None:
        """(num_nodes, F); None if there are none."""

    def num_edge_features(self) -> int:
        """The numbers that each edge has; 0: none."""

    def edge_features(self) -> np.ndarray:
        """(num_edges, num_edge_features)."""


def folder_of(name: str, root: str) -> Path:
    """The folder in which the package ``ogb`` puts a dataset."""
    return Path(root).expanduser() / name.replace("-", "_")


def files_of(name: str, root: str, split_name: str | None) -> list[Path]:
    """The files that are read: first those of ``raw``, then the three of the split.

    Raises:
        ConfigError: there are several splits, and ``split_name`` chooses none.
        DataError: a file is missing.
    """
    folder = folder_of(name, root)
    raw = folder / "raw"
    if (raw / "data.npz").is_file():
        found = [raw / "data.npz", raw / "node-label.npz"]
    else:
        found = [raw / f"{one}.csv.gz" for one in ("num-node-list", "num-edge-list", "edge", "node-label")]
        more = (raw / one for one in ("node-feat.csv.gz", "edge-feat.csv.gz", *SPECIES))
        found += [file for file in more if file.is_file()]
    for file in found:
        if not file.is_file():
            raise DataError(
                f"no file {file.resolve()}: set dataset.root to the folder in which the package ogb has put"
                f" {folder.name}, the root of its NodePropPredDataset(name={name!r}, root=...)"
            )
    return found + [_split_folder(folder, split_name) / f"{part}.csv.gz" for part in MASKS]


def _split_folder(folder: Path, split_name: str | None) -> Path:
    split = folder / "split"
    names = sorted(one.name for one in split.iterdir() if one.is_dir()) if split.is_dir() else []
    if split_name is None and len(names) > 1:
        raise ConfigError(f"{split} has several splits: set dataset.split_name to one of {', '.join(names)}")
    found = split / (split_name or (names[0] if names else ""))
    for part in MASKS:
        if not (found / f"{part}.csv.gz").is_file():
            others = f" (there are the splits {', '.join(names)})" if names else ""
            raise DataError(f"no file {(found / f'{part}.csv.gz').resolve()}{others}: {UNPACK_AGAIN}")
    return found


def raw_of(files: list[Path]) -> Raw:
    """The graph in the ``files`` of ``files_of``."""
    raw = files[0].parent
    return _BinaryRaw(raw) if files[0].name == "data.npz" else _TextRaw(raw)


def masks_of(files: list[Path], num_nodes: int) -> dict[str, np.ndarray]:
    """The masks of the split in the ``files`` of ``files_of``."""
    parts: dict[str, tuple[object, Any]] = {}
    for part, file in zip(MASKS, files[-len(MASKS) :], strict=True):
        parts[part] = file, read_numbers(file, np.int64, (None, 1), UNPACK_AGAIN)[:, 0]
    return masks_of_ids(parts, num_nodes, UNPACK_AGAIN)


def species_of(files: list[Path], num_nodes: int | None) -> np.ndarray:
    """(num_nodes,) int64, the species of each node, in the ``files`` of ``files_of``; None: of any number of nodes.

    Raises:
        DataError: there is no file of species.
    """
    found = [file for file in files if file.name in SPECIES]
    if not found:
        raise DataError(f"no file {files[0].parent / SPECIES[0]}: the nodes of this dataset have no species")
    return read_numbers(found[0], np.int64, (num_nodes, 1), UNPACK_AGAIN)[:, 0]


@dataclass
class _TextRaw:
    """The layout of text."""

    folder: Path

    def __post_init__(self) -> None:
        self.file = self.folder / "edge.csv.gz"
        self.num_nodes = self._count("num-node-list.csv.gz")
        self.num_edges = self._count("num-edge-list.csv.gz")
        check_num_nodes(self.num_nodes, str(self.folder))

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        found = read_numbers(self.file, np.int64, (self.num_edges, 2), UNPACK_AGAIN)
        return found[:, 0], found[:, 1]

    def labels(self) -> np.ndarray:
        return read_numbers(self.folder / "node-label.csv.gz", np.float64, (self.num_nodes, None), UNPACK_AGAIN)

    def features(self) -> np.ndarray | None:
        file = self.folder / "node-feat.csv.gz"
        if not file.is_file():
            return None
        return read_numbers(file, np.float64, (self.num_nodes, None), UNPACK_AGAIN, np.float32)

    def num_edge_features(self) -> int:
        file = self.folder / "edge-feat.csv.gz"
        return num_columns(file, UNPACK_AGAIN) if file.is_file() else 0

    def edge_features(self) -> np.ndarray:
        file = self.folder / "edge-feat.csv.gz"
        return read_numbers(file, np.float64, (self.num_edges, None), UNPACK_AGAIN, np.float32)

    def _count(self, name: str) -> int:
        counts = read_numbers(self.folder / name, np.int64, (None, 1), UNPACK_AGAIN)
        return _one_count(counts, self.folder / name)


class _ArraysOfOGB(NamedArrays):
    needs = "OGB's binary layout has num_nodes_list, num_edges_list and edge_index, and in the other file node_label"


@dataclass
class _BinaryRaw:
    """The layout of npz. What the archive holds as it is, not packed, is mapped and not read into memory."""

    folder: Path

    def __post_init__(self) -> None:
        self.file = self.folder / "data.npz"
        self._arrays = _ArraysOfOGB(self.file, UNPACK_AGAIN)
        self.num_nodes, self.num_edges = (
            _one_count(self._arrays.integers(name), self.file) for name in ("num_nodes_list", "num_edges_list")
        )
        check_num_nodes(self.num_nodes, str(self.file))

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        found = self._arrays.mapped("edge_index")
        if found.shape != (2, self.num_edges):
            raise DataError(
                f"{self.file}: array 'edge_index' has shape {found.shape}, and takes (2, {self.num_edges}):"
                f" {UNPACK_AGAIN}"
            )
        return found[0], found[1]

    def labels(self) -> np.ndarray:
        file = self.folder / "node-label.npz"
        found = _ArraysOfOGB(file, UNPACK_AGAIN).mapped("node_label")
        if found.ndim != 2 or len(found) != self.num_nodes or found.dtype.kind not in "biuf":
            raise DataError(
                f"{file}: array 'node_label' has shape {found.shape} and dtype {found.dtype}, and takes numbers, a row"
                f" for each of {self.num_nodes} nodes: {UNPACK_AGAIN}"
            )
        return found

    def features(self) -> np.ndarray | None:
        return self._arrays.mapped("node_feat") if "node_feat" in self._arrays else None

    def num_edge_features(self) -> int:
        return int(self.edge_features().shape[1]) if "edge_feat" in self._arrays else 0

    def edge_features(self) -> np.ndarray:
        found = self._arrays.mapped("edge_feat")
        if found.ndim != 2 or len(found) != self.num_edges or found.dtype.kind not in "biuf":
            raise DataError(
                f"{self.file}: array 'edge_feat' has shape {found.shape} and dtype {found.dtype}, and takes numbers, a"
                f" row for each of {self.num_edges} edges: {UNPACK_AGAIN}"
            )
        return found


def _one_count(counts: np.ndarray, file: Path) -> int:
    """The one number of a list of sizes, of which a dataset of several graphs has several."""
    if counts.size != 1:
        raise DataError(f"{file} lists {counts.size} graphs, and a dataset of one graph is read")
    count = int(counts.ravel()[0])
    if count < 0:
        raise DataError(f"{file} has the size {count}: {UNPACK_AGAIN}")
    return count
