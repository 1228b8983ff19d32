"""A graph in an .npz file: read in the layout that its arrays have by their names, written in that of gnn-benchmark."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.datasets import heterophilous, npz
from fullgnn.graph.datasets.named_arrays import NamedArrays
from fullgnn.graph.graph import Graph
from fullgnn.graph.masks import MASKS
from fullgnn.graph.node_names import names_to_arrays
from fullgnn.graph.remarks import to_arrays
from fullgnn.graph.sparse_features import features_to_arrays


def load_npz(path: str | PathLike[str]) -> Graph:
    """The graph in the file ``path``; see ``Graph.load``.

    Raises:
        DataError: the file is missing or damaged, or holds no graph.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise DataError(f"no file {file.resolve()}: give an existing .npz file")
    arrays = NamedArrays(file, npz.WRITE_AGAIN)
    if "node_features" in arrays and "edges" in arrays:
        return heterophilous.load(file.stem, "", str(file), None, None)
    return npz.load(
        name=None,
        root="",
        path=str(file),
        normalize_features=False,
        train_fraction=None,
        val_fraction=None,
        seed=0,
    )


def save_npz(graph: Graph, path: Path) -> None:
    """Write ``graph`` to ``path``; see ``Graph.save``.

    Raises:
        DataError: the file cannot be written.
    """
    try:
        _write(graph, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror or error}): choose another file") from error


def _write(graph: Graph, path: Path) -> None:
    adj = graph.adjacency(np.float32 if graph.weight is None else graph.weight.dtype).T.tocsr()
    path.parent.mkdir(parents=True, exist_ok=True)
    given = {"num_users": graph.num_users, "val_links": graph.val_links, "test_links": graph.test_links}
    more: dict[str, Any] = {key: np.array(value) for key, value in given.items() if value is not None}
    more |= features_to_arrays(graph.features, "attr_matrix" if isinstance(graph.features, np.ndarray) else "attr")
    more |= names_to_arrays(graph.node_names) | to_arrays(graph.remarks)
    if graph.class_names is not None:
        more["class_names"] = np.array(graph.class_names)
    with path.open("wb") as file:  # a file object: np.savez would append .npz to a bare name
        np.savez(
            file,
            adj_data=adj.data,
            adj_indices=adj.indices,
            adj_indptr=adj.indptr,
            adj_shape=np.array(adj.shape),
            labels=graph.labels,
            num_classes=np.array(graph.num_classes),
            name=np.array(graph.name),
            **{name: getattr(graph, name) for name in MASKS},
            **more,
        )
