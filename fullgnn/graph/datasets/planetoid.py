"""Cora, CiteSeer and PubMed in the raw Planetoid files, with the public split.

Data: Sen et al. (2008) and Namata et al. (2012), prepared by Yang, Cohen and Salakhutdinov, "Revisiting
semi-supervised learning with graph embeddings" (2016). The files are Python 2 pickles, ``ind.<name>.<part>``:

- ``allx``, ``ally``: features and one-hot labels of nodes 0, 1, ...; the first ``len(y)`` are the training
  nodes;
- ``tx``, ``ty``: features and labels of the test nodes, in the order of the *unsorted* ``test.index``. That index
  skips 15 ids of CiteSeer: nodes with links, but without features, label or a place in the split;
- ``graph``: dict u -> [v, ...] of arcs u -> v, with duplicates and a few self-loops;
- ``x``: a copy of the training rows of ``allx``, which is not read.
"""

import pickle
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fullgnn.errors import DataError
from fullgnn.graph.checks import first_line
from fullgnn.graph.datasets.checksums import SHA256
from fullgnn.graph.datasets.download import DOWNLOAD_AGAIN, fetch
from fullgnn.graph.graph import Graph
from fullgnn.graph.node_data import normalize_rows

URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
NAMES = ("cora", "citeseer", "pubmed")
PARTS = ("y", "tx", "ty", "allx", "ally", "graph", "test.index")
NUM_VAL = 500


def files(name: str, root: str) -> list[Path]:
    """The files of ``load``, one for each of ``PARTS``; those of a published dataset may be absent.

    Raises:
        DataError: a file of another dataset is missing.
    """
    paths = [Path(root).expanduser() / f"ind.{name}.{part}" for part in PARTS]
    if name not in NAMES and not all(path.is_file() for path in paths):
        raise DataError(f"unknown Planetoid dataset {name!r}: set dataset.name to one of {', '.join(NAMES)}")
    return paths


def load(name: str, root: str, normalize_features: bool) -> Graph:
    """The graph of ``ind.<name>.*`` in the folder ``root``, downloaded when absent.

    Arcs are stored as published (set ``symmetrize`` for the usual undirected graph). Features are dense float32;
    with ``normalize_features`` each row is divided by its sum.
    """
    names = [file.name for file in files(name, root)]
    y_path, tx_path, ty_path, allx_path, ally_path, graph_path, index_path = fetch(root, names, URL, SHA256)
    y, ty, ally = (_read(path, np.ndarray) for path in (y_path, ty_path, ally_path))
    tx, allx = (_read(path, csr_array) for path in (tx_path, allx_path))
    test_index = _read_test_index(index_path)
    rows_agree = allx.shape[0] == len(ally) == test_index.min() and tx.shape[0] == len(ty) == len(test_index)
    columns_agree = tx.shape[1] == allx.shape[1] and y.shape[1:] == ty.shape[1:] == ally.shape[1:] != ()
    if not (rows_agree and columns_agree and len(y) <= len(ally)):
        cure = "delete them and run again to download them afresh" if name in NAMES else "write them again"
        raise DataError(f"ind.{name}.* in {root} disagree in size: {cure}")

    num_nodes = int(test_index.max()) + 1
    features = np.zeros((num_nodes, allx.shape[1]), dtype=np.float32)
    one_hot = np.zeros((num_nodes, ally.shape[1]), dtype=ally.dtype)
    features[: len(ally)], features[test_index] = allx.toarray(), tx.toarray()
    one_hot[: len(ally)], one_hot[test_index] = ally, ty

    node = np.arange(num_nodes)
    return Graph.from_edge_index(
        _read_arcs(graph_path),
        features=normalize_rows(features) if normalize_features else features,
        labels=np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1),
        train_mask=node < len(y),
        val_mask=(node >= len(y)) & (node < min(len(y) + NUM_VAL, len(ally))),
        test_mask=np.isin(node, test_index),
        num_classes=ally.shape[1],
        name=name,
        remarks={"merged_arcs": 0} if name in NAMES else None,  # the published files are known to repeat arcs
    )


class _PickledCSR:
    """Inert stand-in for scipy's csr_matrix: it keeps the pickled fields for ``checked`` to validate."""

    def checked(self) -> csr_array:
        state = vars(self)
        matrix = csr_array((state["data"], state["indices"], state["indptr"]), shape=state["_shape"])
        matrix.check_format(full_check=True)
        return matrix


class _Unpickler(pickle.Unpickler):
    """Unpickler that accepts only the six names in the published files, since a pickle can run code."""

    ALLOWED = {
        ("numpy", "dtype"): np.dtype,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("scipy.sparse.csr", "csr_matrix"): _PickledCSR,
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
    }
    RENAMED = {  # the same names as Python 3 and later libraries write them
        "builtins": "__builtin__",
        "numpy._core.multiarray": "numpy.core.multiarray",
        "scipy.sparse._csr": "scipy.sparse.csr",
    }

    def find_class(self, module: str, name: str) -> Any:
        key = (self.RENAMED.get(module, module), name)
        if key not in self.ALLOWED:
            raise DataError(f"refused to load {module}.{name}, which no Planetoid file needs: do not trust this file")
        return self.ALLOWED[key]


def _read(path: Path, kind: type) -> Any:
    """The one object of ``kind`` in a pickle file."""
    try:
        with path.open("rb") as file:
            value = _Unpickler(file, encoding="latin1").load()
        value = value.checked() if isinstance(value, _PickledCSR) else value
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise _unreadable(path, error) from error
    if not isinstance(value, kind):
        raise DataError(f"{path} holds {type(value).__name__} where {kind.__name__} belongs: {_cure(path.name)}")
    return value


def _read_test_index(path: Path) -> np.ndarray:
    try:
        index = np.array(path.read_text().split(), dtype=np.int64)
    except ValueError as error:
        raise _unreadable(path, error) from error
    if len(index) == 0 or index.min() < 0 or len(np.unique(index)) < len(index):
        raise DataError(f"{path} must list distinct node ids, one a line: {_cure(path.name)}")
    return index


def _read_arcs(path: Path) -> np.ndarray:
    """(2, E) arcs in the order of the file, sources above targets."""
    neighbors = _read(path, dict)
    try:
        sources = np.fromiter(neighbors.keys(), dtype=np.int64)
        counts = np.fromiter(map(len, neighbors.values()), dtype=np.int64)
        targets = np.fromiter(chain.from_iterable(neighbors.values()), dtype=np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise _unreadable(path, error) from error
    return np.stack([np.repeat(sources, counts), targets])


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} cannot be read ({first_line(error)}): {_cure(path.name)}")


def _cure(file: str) -> str:
    """What to do with ``ind.<name>.<part>`` if it cannot be used: only public files can be downloaded again."""
    return DOWNLOAD_AGAIN if file.split(".")[1] in NAMES else "write it again"
