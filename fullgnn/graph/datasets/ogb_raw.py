"""The graph in the folder ``raw`` of a dataset of OGB, in the layout of text or in the binary one.

``ogb_files.py`` has both layouts. Arrays are read when they are asked for. A ``Raw`` has nodes of one kind. Of a
dataset whose nodes are of several kinds, such as ogbn-mag, it has the kind with labels: these are the papers there, and
the arcs are their citations. The folder ``raw`` has the layout of text then, spread over folders; names of kinds and
relations have no comma:

- ``triplet-type-list.csv.gz``: a relation a line, source, relation and target, such as ``paper,cites,paper``;
- ``num-node-dict.csv.gz`` and ``nodetype-has-label.csv.gz``: a header with the kinds, and below it, for each of them,
  the number of its nodes, and ``True`` or ``False``;
- ``relations/SOURCE___RELATION___TARGET``: ``edge.csv.gz``, ids from 0 within a kind, and ``num-edge-list.csv.gz``;
- ``node-label/KIND/node-label.csv.gz`` and, of some kinds, ``node-feat/KIND/node-feat.csv.gz``.

The other files, such as ``edge_reltype.csv.gz`` and ``node_year.csv.gz``, are not read.
"""

import gzip
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fullgnn.errors import DataError, quoted, reason_of
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.csv_numbers import num_columns, read_numbers
from fullgnn.graph.datasets.named_arrays import NamedArrays

UNPACK_AGAIN = "let the package ogb load it again, or unpack it again from snap.stanford.edu/ogb/data/nodeproppred"
FILES_OF_KINDS = ("triplet-type-list.csv.gz", "num-node-dict.csv.gz", "nodetype-has-label.csv.gz")

_MAX_SIZE = 1 << 48  # sums of such sizes are below 2^63
_MAX_BYTES = 1 << 20  # of the text in one of FILES_OF_KINDS; ogbn-mag has 160
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)  # it names a folder
_SIZE = re.compile(r"[0-9]{1,18}", re.ASCII)
_BOOL = re.compile("True|False")


@dataclass
class TextRaw:
    """The layout of text, whose files of edges, labels and features may be in folders of their own."""

    folder: Path
    num_nodes: int
    edge_folder: Path
    label_folder: Path
    feature_folder: Path
    remarks: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of_one_kind(cls, folder: Path) -> "TextRaw":
        """The graph of a folder whose nodes are of one kind."""
        return cls(folder, read_count(folder / "num-node-list.csv.gz"), folder, folder, folder)

    def __post_init__(self) -> None:
        self.file = self.edge_folder / "edge.csv.gz"
        self.num_edges = read_count(self.edge_folder / "num-edge-list.csv.gz")
        check_num_nodes(self.num_nodes, str(self.folder))

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """The sources and the targets, (num_edges,) integers each."""
        pairs = read_numbers(self.file, np.int64, (self.num_edges, 2), UNPACK_AGAIN)
        return pairs[:, 0], pairs[:, 1]

    def labels(self) -> np.ndarray:
        """(num_nodes, c) numbers, NaN where a label is not known."""
        return read_numbers(self.label_folder / "node-label.csv.gz", np.float64, (self.num_nodes, None), UNPACK_AGAIN)

    def features(self) -> np.ndarray | None:
        """(num_nodes, F); None if there are none."""
        file = self.feature_folder / "node-feat.csv.gz"
        if not file.is_file():
            return None
        return read_numbers(file, np.float64, (self.num_nodes, None), UNPACK_AGAIN, np.float32)

    def num_edge_features(self) -> int:
        """The numbers that each edge has; 0: none."""
        file = self.edge_folder / "edge-feat.csv.gz"
        return num_columns(file, UNPACK_AGAIN) if file.is_file() else 0

    def edge_features(self) -> np.ndarray:
        """(num_edges, num_edge_features)."""
        file = self.edge_folder / "edge-feat.csv.gz"
        return read_numbers(file, np.float64, (self.num_edges, None), UNPACK_AGAIN, np.float32)


class _ArraysOfOGB(NamedArrays):
    needs = "OGB's binary layout has num_nodes_list, num_edges_list and edge_index, and in the other file node_label"


@dataclass
class BinaryRaw:
    """The layout of npz; its methods are those of ``TextRaw``. What the archive holds as it is, not packed, is mapped
    and not read into memory."""

    folder: Path
    remarks: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.file = self.folder / "data.npz"
        self._arrays = _ArraysOfOGB(self.file, UNPACK_AGAIN)
        self.num_nodes, self.num_edges = (
            _one_count(self._arrays.integers(name), self.file) for name in ("num_nodes_list", "num_edges_list")
        )
        check_num_nodes(self.num_nodes, str(self.file))

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        array = self._arrays.mapped("edge_index")
        if array.shape != (2, self.num_edges):
            raise DataError(
                f"{self.file}: array 'edge_index' has shape {array.shape}, and takes (2, {self.num_edges}):"
                f" {UNPACK_AGAIN}"
            )
        return array[0], array[1]

    def labels(self) -> np.ndarray:
        arrays = _ArraysOfOGB(self.folder / "node-label.npz", UNPACK_AGAIN)
        return _rows(arrays, "node_label", self.num_nodes, "nodes")

    def features(self) -> np.ndarray | None:
        return self._arrays.mapped("node_feat") if "node_feat" in self._arrays else None

    def num_edge_features(self) -> int:
        return int(self.edge_features().shape[1]) if "edge_feat" in self._arrays else 0

    def edge_features(self) -> np.ndarray:
        return _rows(self._arrays, "edge_feat", self.num_edges, "edges")


def _rows(arrays: NamedArrays, name: str, count: int, what: str) -> np.ndarray:
    """The array ``name``, which has a row for each of ``count`` nodes or edges."""
    array = arrays.mapped(name)
    if array.ndim != 2 or len(array) != count or array.dtype.kind not in "biuf":
        raise DataError(
            f"{arrays.file}: array {name!r} has shape {array.shape} and dtype {array.dtype}, and takes numbers, a row"
            f" for each of {count} {what}: {UNPACK_AGAIN}"
        )
    return array


Raw = TextRaw | BinaryRaw
"""A graph of OGB, whose nodes are of one kind."""


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


class Kinds:
    """What the small files of a folder ``raw`` say of its kinds of nodes and of its relations.

    Raises:
        DataError: a file is missing or damaged; or several kinds have labels; or not just one relation joins nodes of
            the kind that has them.
    """

    def __init__(self, raw: Path) -> None:
        list_file, size_file, label_file = (raw / name for name in FILES_OF_KINDS)
        relations = _cells(list_file)
        for relation in relations:
            if len(relation) != 3 or not all(map(_NAME.fullmatch, relation)):
                raise _wrong(list_file, relation, "source, relation and target")
        sizes, labelled = _by_kind(size_file, _SIZE, "numbers of nodes"), _by_kind(label_file, _BOOL, "True or False")
        with_labels = [kind for kind, has in labelled.items() if has == "True"]
        if len(with_labels) != 1 or with_labels[0] not in sizes:
            raise DataError(
                f"{label_file}: the kinds with labels are {', '.join(with_labels) or 'none'}, and a Graph has nodes of"
                f" one kind, which must be in {size_file.name}: {UNPACK_AGAIN}"
            )
        (kind,) = with_labels
        within = [relation for relation in relations if (relation[0], relation[2]) == (kind, kind)]
        if len(within) != 1:
            raise DataError(
                f"{list_file}: {len(within)} relations lead from {kind} to {kind}, and a Graph is read of one:"
                f" {UNPACK_AGAIN}"
            )
        self.kind, self._raw = kind, raw
        self._sizes = {name: int(size) for name, size in sizes.items()}
        self._relation = self._folder(within[0])
        self._others = [self._folder(relation) for relation in relations if relation != within[0]]

    def files(self) -> list[Path]:
        """All files that ``graph`` reads; the first one is of a folder in this layout alone."""
        sizes = [relation / "num-edge-list.csv.gz" for relation in (self._relation, *self._others)]
        label = self._raw / "node-label" / self.kind / "node-label.csv.gz"
        needed = [*(self._raw / name for name in FILES_OF_KINDS), *sizes, self._relation / "edge.csv.gz", label]
        feature = self._raw / "node-feat" / self.kind / "node-feat.csv.gz"
        return needed + [file for file in (feature, self._relation / "edge-feat.csv.gz") if file.is_file()]

    def graph(self) -> TextRaw:
        """The graph of the nodes that have labels."""
        num_nodes = self._sizes[self.kind]
        label, feature = (self._raw / folder / self.kind for folder in ("node-label", "node-feat"))
        remarks = {
            "other_relations": sum(read_count(other / "num-edge-list.csv.gz") for other in self._others),
            "other_kinds": sum(self._sizes.values()) - num_nodes,
        }
        return TextRaw(self._raw, num_nodes, self._relation, label, feature, remarks)

    def _folder(self, relation: list[str]) -> Path:
        return self._raw / "relations" / "___".join(relation)


def _by_kind(file: Path, cell: re.Pattern[str], what: str) -> dict[str, str]:
    """The one cell of each kind, in a file with a header of kinds."""
    rows = _cells(file)
    if len(rows) != 2 or len(rows[0]) != len(rows[1]) or len(set(rows[0])) < len(rows[0]):
        raise DataError(f"{file} has {len(rows)} rows, and takes a header of kinds and a row below it: {UNPACK_AGAIN}")
    for row, pattern, wanted in zip(rows, (_NAME, cell), ("kinds of nodes", what)):
        if not all(map(pattern.fullmatch, row)):
            raise _wrong(file, row, wanted)
    return dict(zip(*rows, strict=True))


def _wrong(file: Path, row: list[str], what: str) -> DataError:
    return DataError(f"{file} has the row {quoted(','.join(row))!r}, and takes {what}: {UNPACK_AGAIN}")


def _cells(file: Path) -> list[list[str]]:
    """The cells of a small packed text, row by row; empty lines do not count.

    Raises:
        DataError: the file is missing, damaged or large.
    """
    try:
        with gzip.open(file, "rb") as stream:
            text = stream.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES} bytes of text")
        return [line.split(",") for line in text.decode().splitlines() if line.strip()]
    except FileNotFoundError as error:
        raise DataError(f"no file {file.resolve()}: {UNPACK_AGAIN}") from error
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise DataError(f"{file} cannot be read ({quoted(reason_of(error))}): {UNPACK_AGAIN}") from error
