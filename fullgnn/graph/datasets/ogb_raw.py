"""The graph in the folder ``raw`` of a dataset of OGB, in the layout of text or in the binary one.

``ogb_files.py`` has both layouts. Arrays are read when they are asked for.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.csv_numbers import num_columns, read_numbers
from fullgnn.graph.datasets.named_arrays import NamedArrays

UNPACK_AGAIN = "let the package ogb load it again, or unpack it again from snap.stanford.edu/ogb/data/nodeproppred"


_MAX_SIZE = 1 << 48  # sums of such sizes are below 2^63


class Raw(Protocol):
    """A graph of OGB, whose nodes are of one kind."""

    folder: Path
    file: Path  # with the edges
    num_nodes: int
    num_edges: int
    kind: str  # of the nodes, where the folder has several; empty: it has one
    remarks: dict[str, int]

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


@dataclass
class TextRaw:
    """The layout of text, whose files of edges, labels and features may be in folders of their own."""

    folder: Path
    num_nodes: int
    edge_folder: Path
    label_folder: Path
    feature_folder: Path
    kind: str = ""
    remarks: dict[str, int] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> "TextRaw":
        """The graph of a folder whose nodes are of one kind."""
        return cls(folder, read_count(folder / "num-node-list.csv.gz"), folder, folder, folder)

    def __post_init__(self) -> None:
        self.file = self.edge_folder / "edge.csv.gz"
        self.num_edges = read_count(self.edge_folder / "num-edge-list.csv.gz")
        check_num_nodes(self.num_nodes, str(self.folder))

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        found = read_numbers(self.file, np.int64, (self.num_edges, 2), UNPACK_AGAIN)
        return found[:, 0], found[:, 1]

    def labels(self) -> np.ndarray:
        return read_numbers(self.label_folder / "node-label.csv.gz", np.float64, (self.num_nodes, None), UNPACK_AGAIN)

    def features(self) -> np.ndarray | None:
        file = self.feature_folder / "node-feat.csv.gz"
        if not file.is_file():
            return None
        return read_numbers(file, np.float64, (self.num_nodes, None), UNPACK_AGAIN, np.float32)

    def num_edge_features(self) -> int:
        file = self.edge_folder / "edge-feat.csv.gz"
        return num_columns(file, UNPACK_AGAIN) if file.is_file() else 0

    def edge_features(self) -> np.ndarray:
        file = self.edge_folder / "edge-feat.csv.gz"
        return read_numbers(file, np.float64, (self.num_edges, None), UNPACK_AGAIN, np.float32)


class _ArraysOfOGB(NamedArrays):
    needs = "OGB's binary layout has num_nodes_list, num_edges_list and edge_index, and in the other file node_label"


@dataclass
class BinaryRaw:
    """The layout of npz. What the archive holds as it is, not packed, is mapped and not read into memory."""

    folder: Path
    kind: str = ""
    remarks: dict[str, int] = field(default_factory=dict)

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


def read_count(file: Path) -> int:
    """The one number in a file of sizes."""
    return _one_count(read_numbers(file, np.int64, (None, 1), UNPACK_AGAIN), file)


def _one_count(counts: np.ndarray, file: Path) -> int:
    """The one number of a list of sizes, of which a dataset of several graphs has several."""
    if counts.size != 1:
        raise DataError(f"{file} lists {counts.size} graphs, and a dataset of one graph is read")
    count = int(counts.ravel()[0])
    if not 0 <= count < _MAX_SIZE:
        raise DataError(f"{file} has the size {count}: {UNPACK_AGAIN}")
    return count
