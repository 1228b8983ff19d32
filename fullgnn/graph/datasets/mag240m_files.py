"""The files of MAG240M in the layout of OGB-LSC (Hu et al., 2021), opened and compared with each other.

The folder ``mag240m_kddcup2021`` holds:

- ``meta.pt``: a dictionary with the numbers of nodes, ``paper``, ``author`` and ``institution``, and ``num_classes``;
- ``split_dict.pt``: a dictionary of the ids of papers, ``train``, ``valid`` and ``test``, or ``test-dev`` and others;
- ``processed/paper/node_feat.npy``: (num_papers, 768) float16;
- ``processed/paper/node_label.npy``: (num_papers,) float32, NaN where a label is not known;
- ``processed/SOURCE___RELATION___TARGET/edge_index.npy``: (2, E) int64, sources above targets, ids of their kinds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.checks import id_beyond
from fullgnn.graph.datasets.given_files import mapped
from fullgnn.graph.datasets.torch_dict import read_torch_dict
from fullgnn.graph.masks import MASK_OF_PART, without_unlabelled

URL = "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/mag240m_kddcup2021.zip"
UNPACK_AGAIN = "unpack it again from mag240m_kddcup2021.zip"
KINDS = ("paper", "author", "institution")
RELATIONS = ("paper___cites___paper", "author___writes___paper", "author___affiliated_with___institution")
NUM_CLASSES = 153

EDGES_AT_ONCE = 1 << 22
"""Edges that are read from a file at once."""


@dataclass(frozen=True, eq=False)
class Relation:
    """The edges from nodes of one kind to nodes of another one, or of the same."""

    file: Path
    edges: np.ndarray  # (2, E), mapped: ids from 0 within their kinds
    kinds: tuple[int, int]  # places in KINDS
    counts: tuple[int, int]  # nodes of these kinds

    def blocks(self) -> Iterator[np.ndarray]:
        """Some edges after the others, (2, m) int64, C-contiguous.

        Raises:
            DataError: an id is out of range.
        """
        for first in range(0, self.edges.shape[1], EDGES_AT_ONCE):
            block = np.ascontiguousarray(self.edges[:, first : first + EDGES_AT_ONCE], np.int64)
            for ids, kind, count in zip(block, self.kinds, self.counts):
                if (bad := id_beyond(ids, count)) is not None:
                    raise DataError(
                        f"{self.file} has the {KINDS[kind]} {bad}, and meta.pt has the {KINDS[kind]}s 0 to"
                        f" {count - 1}: {UNPACK_AGAIN}"
                    )
            yield block


class MagFolder:
    """The files of MAG240M, opened and compared with each other: the small ones are read, the large ones are mapped.

    Args:
        files: meta, split, features and labels of the papers, and the edges of the three relations.
        max_papers: of the graph; None: all.

    Raises:
        ConfigError: ``max_papers`` is wrong.
        DataError: a file is damaged, or has the shape of another one.
    """

    def __init__(self, files: list[Path], max_papers: int | None) -> None:
        if max_papers is not None and max_papers < 1:
            raise ConfigError(f"dataset.max_papers={max_papers}: choose 1 or more, or null for all papers")
        self.meta_file, self.split_file, self.feature_file, self.label_file, *edge_files = files
        meta = read_torch_dict(self.meta_file, UNPACK_AGAIN)
        self.counts = [_count(self.meta_file, meta, kind) for kind in KINDS]
        """Nodes of each kind."""
        num_papers = self.counts[0]
        self.features = _mapped(self.feature_file, "e", (num_papers, None))
        self.labels = _mapped(self.label_file, "fd", (num_papers,))
        self.relations = []
        for file, name in zip(edge_files, RELATIONS):
            source, _, target = name.split("___")
            kinds = KINDS.index(source), KINDS.index(target)
            edges = _mapped(file, "lbhiqBHILQ", (2, None))
            self.relations.append(Relation(file, edges, kinds, (self.counts[kinds[0]], self.counts[kinds[1]])))
        num_classes = meta.get("num_classes", NUM_CLASSES)
        self.num_classes = num_classes if isinstance(num_classes, int) and num_classes > 0 else NUM_CLASSES
        self.num_papers = min(num_papers, max_papers or num_papers)
        """Papers of the graph."""
        self.split = _split(self.split_file, num_papers)

    def chosen(self) -> list[np.ndarray]:
        """By kind, (count,) bool, which nodes are in the graph: of a part of the papers, what belongs to these."""
        if self.num_papers == self.counts[0]:
            return [np.ones(count, bool) for count in self.counts]
        papers, authors, institutions = (np.zeros(count, bool) for count in self.counts)
        papers[: self.num_papers] = True
        _, writes, affiliated_with = self.relations
        for author, paper in writes.blocks():
            authors[author[papers[paper]]] = True
        for author, institution in affiliated_with.blocks():
            institutions[institution[authors[author]]] = True
        return [papers, authors, institutions]

    def labels_and_masks(self, num_nodes: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, int]]:
        """(num_nodes,) int64 labels, -1 where there is none; the masks of a ``Graph``; and the remark on nodes of the
        split that have no label, and are in no mask.

        Raises:
            DataError: a label is no class, or two parts of the split overlap.
        """
        values = np.array(self.labels[: self.num_papers])
        known = ~np.isnan(values)
        is_class = (values >= 0) & (values < self.num_classes) & (values == np.floor(values))
        if (wrong := np.flatnonzero(known & ~is_class)).size:
            raise DataError(
                f"{self.label_file} has the label {values[wrong[0]]:g} of paper {wrong[0]}, and classes are 0 to"
                f" {self.num_classes - 1}, or NaN: {UNPACK_AGAIN}"
            )
        labels = np.full(num_nodes, -1, np.int64)
        labels[: self.num_papers][known] = values[known]
        masks, taken = {}, np.zeros(num_nodes, bool)
        for part, ids in self.split.items():
            mask = np.zeros(num_nodes, bool)
            mask[ids[ids < self.num_papers]] = True
            if (taken & mask).any():
                raise DataError(
                    f"{self.split_file} has the paper {(taken & mask).argmax()} in two parts of the split:"
                    f" {UNPACK_AGAIN}"
                )
            taken |= mask
            masks[MASK_OF_PART[part]] = mask
        return labels, *without_unlabelled(masks, labels)


def _count(file: Path, meta: dict[str, Any], kind: str) -> int:
    count = meta.get(kind)
    if not isinstance(count, int) or count < (kind == "paper"):
        raise DataError(f"{file} has no number of {kind}s: {UNPACK_AGAIN}")
    return count


def _split(file: Path, num_papers: int) -> dict[str, np.ndarray]:
    """Ids of papers of each part, int64. Those of ``test`` may be in several arrays, such as ``test-dev``."""
    given = read_torch_dict(file, UNPACK_AGAIN)
    split = {}
    for part in MASK_OF_PART:
        some = [value for name, value in given.items() if name.partition("-")[0] == part]
        if not some and part != "test":
            raise DataError(f"{file} has no array {part!r}: {UNPACK_AGAIN}")
        for ids in some:
            if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu":
                raise DataError(f"{file}: {part} is no list of integers: {UNPACK_AGAIN}")
            if (bad := id_beyond(ids, num_papers)) is not None:
                raise DataError(
                    f"{file}: {part} has the paper {bad}, and meta.pt has the papers 0 to {num_papers - 1}:"
                    f" {UNPACK_AGAIN}"
                )
        split[part] = np.concatenate([np.empty(0, np.int64), *(np.asarray(ids, np.int64) for ids in some)])
    return split


def _mapped(file: Path, kinds: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """The array in ``file``, mapped and read-only.

    Args:
        kinds: characters of the dtypes that it may have, the published one first.
        shape: its shape; None: any length.

    Raises:
        DataError: it has another dtype or shape, or cannot be read.
    """
    array = mapped(file, UNPACK_AGAIN)
    if array.dtype.char not in kinds or not array.dtype.isnative:
        raise DataError(f"{file} has the dtype {array.dtype}, and takes {np.dtype(kinds[0])}: {UNPACK_AGAIN}")
    if array.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, array.shape)):
        wanted = "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
        raise DataError(f"{file} has the shape {array.shape}, and takes {wanted} by meta.pt: {UNPACK_AGAIN}")
    return array
