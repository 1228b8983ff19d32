"""Graphs in the npz layout of Platonov et al., "A critical look at the evaluation of GNNs under heterophily" (2023).

A file has ``node_features`` (num_nodes, F), ``node_labels`` (num_nodes,), ``edges`` (E, 2), and ``train_masks``,
``val_masks`` and ``test_masks`` (s, num_nodes), of s = 10 splits. An undirected graph has each edge once; its
``Graph`` has both directions, as in the publishers' code. A directed one has arcs u -> v, by which v reads from u.
Whether a graph is directed is not in the file: as in the publishers' code, it is if the name of the file has the word
``directed``.
"""

from pathlib import Path

import numpy as np

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.checks import naming
from fullgnn.graph.datasets import is_drawn, number_of_split
from fullgnn.graph.datasets.checksums import SHA256
from fullgnn.graph.datasets.download import DOWNLOAD_AGAIN, fetch
from fullgnn.graph.datasets.given_files import npz_file
from fullgnn.graph.datasets.named_arrays import NamedArrays
from fullgnn.graph.graph import Graph
from fullgnn.graph.masks import MASKS

URL = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
NAMES = (
    *("roman_empire", "amazon_ratings", "minesweeper", "tolokers", "questions"),
    *("chameleon", "chameleon_directed", "chameleon_filtered", "chameleon_filtered_directed"),
    *("squirrel", "squirrel_directed", "squirrel_filtered", "squirrel_filtered_directed"),
)
"""The public files, without their suffix."""
WRITE_AGAIN = "write it again, with numpy.savez"


class _HeterophilousArrays(NamedArrays):
    needs = (
        "the layout of heterophilous-graphs has node_features, node_labels, edges, train_masks, val_masks and"
        " test_masks"
    )


def load(name: str | None, root: str, path: str | None, directed: bool | None, split: int | str | None) -> Graph:
    """The graph in the file ``path``, or without ``path`` in ``root/<name>.npz``, downloaded when absent.

    Args:
        name: of the graph; None: that of the file.
        directed: whether ``edges`` are arcs; False: each is an edge, stored in both directions; None: the name of the
            file says it.
        split: the number of a split; None: split 0, and a remark says so; the name of a method that splits the nodes
            anew: the graph has no masks, which are drawn afterwards.

    Raises:
        ConfigError: there is no split of this number.
        DataError: the file is missing or damaged, or holds no graph.
    """
    (file,) = files(name, root, path)
    if path is None and file.stem in NAMES:
        fetch(root, [file.name], URL, SHA256)
    arrays = _opened(file, path)
    features, edges = arrays["node_features"], arrays.integers("edges")
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise DataError(f"{file}: array 'edges' has shape {edges.shape}, and takes (E, 2): {arrays.cure}")
    masks, num_splits = _masks(arrays, split)
    with naming(file):
        graph = Graph.from_edge_index(
            edges.T,
            features=features,
            labels=arrays["node_labels"],
            name=name or file.stem,
            remarks={"first_of_splits": num_splits if split is None and num_splits > 1 else 0},
            **masks,  # type: ignore[arg-type]
        )
    is_directed = "directed" in file.stem if directed is None else directed
    return graph if is_directed else graph.symmetrized()


def files(name: str | None, root: str, path: str | None) -> list[Path]:
    """The one file of ``load``; a public one may be absent.

    Raises:
        ConfigError: neither ``path`` nor ``name`` is given.
        DataError: a file that is not public is missing.
    """
    if path is None and name is None:
        raise ConfigError(
            "dataset=heterophilous needs a file: set dataset.path=FILE.npz, or dataset.name to a public dataset"
        )
    name = name or ""
    return [npz_file(path, root, name.lower().replace("-", "_"), NAMES, name)]


def check(name: str | None, root: str, path: str | None, split: int | str | None) -> None:
    """Refuse the number of a split that the file does not have; see ``load``."""
    (file,) = files(name, root, path)
    if file.is_file() and not is_drawn(split):
        _masks(_opened(file, path), split)


def _opened(file: Path, path: str | None) -> _HeterophilousArrays:
    return _HeterophilousArrays(file, DOWNLOAD_AGAIN if path is None and file.stem in NAMES else WRITE_AGAIN)


def _masks(arrays: _HeterophilousArrays, split: int | str | None) -> tuple[dict[str, np.ndarray], int]:
    """The masks of one split, and the number of splits.

    Args:
        split: see ``load``.
    """
    if is_drawn(split):
        return {}, 0
    number = number_of_split(split) or 0
    masks: dict[str, np.ndarray] = {}
    num_splits = 0
    for name in MASKS:
        given = arrays[key := f"{name}s"]
        if given.ndim != 2 or not len(given) or num_splits not in (0, len(given)):
            raise DataError(
                f"{arrays.file}: array {key!r} has shape {given.shape}, and takes a row for each split: {arrays.cure}"
            )
        num_splits = len(given)
        if not 0 <= number < num_splits:
            raise ConfigError(f"dataset.split={number}: {arrays.file} has the splits 0 to {num_splits - 1}")
        masks[name] = given[number]
    return masks, num_splits
