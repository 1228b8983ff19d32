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

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array, vstack

from fullgnn.errors import DataError, quoted
from fullgnn.graph.checks import check_num_nodes, naming, reading, to_float32
from fullgnn.graph.csr import checked_csr, distinct, without_duplicates
from fullgnn.graph.datasets import pickled_arrays
from fullgnn.graph.datasets.checksums import SHA256
from fullgnn.graph.datasets.download import DOWNLOAD_AGAIN, fetch
from fullgnn.graph.datasets.inert_pickle import read_pickle
from fullgnn.graph.datasets.pickled_arrays import array_of, kind_of, name_of, shape_of, text_of
from fullgnn.graph.datasets.words import read_text
from fullgnn.graph.graph import Graph
from fullgnn.graph.node_data import normalize_rows
from fullgnn.graph.sparse_features import check_sparse_features
from fullgnn.telemetry.machine import check_fits

T = TypeVar("T")

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

    Arcs are stored as published (set ``symmetrize`` for the usual undirected graph). Features are sparse float32, as
    in the files; with ``normalize_features`` each row is divided by its sum.
    """
    names = [file.name for file in files(name, root)]
    y_path, tx_path, ty_path, allx_path, ally_path, graph_path, index_path = fetch(root, names, URL, SHA256)
    y, ty, ally = (_read(path, _array) for path in (y_path, ty_path, ally_path))
    tx, allx = (_read(path, _csr) for path in (tx_path, allx_path))
    test_index = _read_test_index(index_path)
    rows_agree = allx.shape[0] == len(ally) == test_index.min() and tx.shape[0] == len(ty) == len(test_index)
    columns_agree = tx.shape[1] == allx.shape[1] and y.shape[1:] == ty.shape[1:] == ally.shape[1:] != ()
    cure = "delete them and run again to download them afresh" if name in NAMES else "write them again"
    if not (rows_agree and columns_agree and ally.size and len(y) <= len(ally)):
        raise DataError(f"ind.{name}.* in {root} disagree in size: {cure}")
    for path, labels in ((ally_path, ally), (ty_path, ty)):
        if not np.isin(labels, (0, 1)).all() or (np.count_nonzero(labels, axis=1) > 1).any():
            raise DataError(f"{path} must have a row of 0 and at most one 1 for each node: {_cure(path.name)}")

    num_nodes, num_features = int(test_index.max()) + 1, allx.shape[1]
    check_num_nodes(num_nodes, str(index_path))
    check_fits(
        num_nodes * (ally.shape[1] * ally.itemsize + 64) + 24 * (allx.nnz + tx.nnz),
        f"ind.{name}.* in {root}: {num_nodes} nodes with {num_features} features, by its test.index,",
        cure,
    )
    one_hot = np.zeros((num_nodes, ally.shape[1]), dtype=ally.dtype)
    one_hot[: len(ally)], one_hot[test_index] = ally, ty
    features = check_sparse_features(_stacked(allx, tx, test_index), num_nodes)

    node = np.arange(num_nodes)
    return Graph.from_edge_index(
        _read(graph_path, partial(_arcs, num_bytes=graph_path.stat().st_size)),
        features=normalize_rows(features) if normalize_features else features,
        labels=np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1),
        train_mask=node < len(y),
        val_mask=(node >= len(y)) & (node < min(len(y) + NUM_VAL, len(ally))),
        test_mask=np.isin(node, test_index),
        num_classes=ally.shape[1],
        name=name,
    )


def _stacked(first: csr_array, others: csr_array, rows: np.ndarray) -> csr_array:
    """(max(rows) + 1, F) float32: the rows of ``first``, then those of ``others`` as the numbers ``rows``; a row that
    is not there is empty. Entries of one place are added in their own dtype, as in an array."""
    nothing = csr_array((1, first.shape[1]), dtype=np.float32)
    given = vstack([*(to_float32(without_duplicates(some)) for some in (first, others)), nothing], format="csr")
    place = np.full(rows.max() + 1, given.shape[0] - 1)
    place[: first.shape[0]] = np.arange(first.shape[0])
    place[rows] = first.shape[0] + np.arange(len(rows))
    return given[place]


_NAMES = (
    *pickled_arrays.NAMES,
    ("scipy.sparse.csr", "csr_matrix"),
    ("collections", "defaultdict"),
    ("__builtin__", "list"),
)
"""The names in the published files."""
_RENAMED = pickled_arrays.RENAMED | {"scipy.sparse._csr": "scipy.sparse.csr"}


def _read(path: Path, made: Callable[[Any], T]) -> T:
    """What is ``made`` of the value of a pickle file, which is inert."""
    cure = _cure(path.name)
    with naming(path), reading(path, cure, ArithmeticError, OSError, LookupError, ValueError):
        check_fits(16 * path.stat().st_size, str(path), cure)
        return made(read_pickle(path.read_bytes(), _NAMES, _RENAMED))


def _array(value: Any) -> np.ndarray:
    """The one array, of numbers or booleans."""
    array = array_of(value)
    if not array.ndim:
        raise ValueError("it holds one number where an array belongs")
    return array


def _csr(value: Any) -> csr_array:
    """The one CSR matrix."""
    if name_of(value) != "csr_matrix" or name_of(value.state) != "dict":
        raise ValueError(f"it holds {kind_of(value)} where a csr_matrix belongs")
    items = value.state.items
    fields = {text_of(key): item for key, item in zip(items[::2], items[1::2], strict=True)}
    if missing := {"_shape", "data", "indices", "indptr"} - fields.keys():
        raise ValueError(f"its csr_matrix has no {min(missing)}")
    data, indices, indptr = (array_of(fields[name]) for name in ("data", "indices", "indptr"))
    return checked_csr(data, indices, indptr, shape_of(fields["_shape"]))


def _arcs(value: Any, num_bytes: int) -> np.ndarray:
    """(2, E) arcs in the order of the file, sources above targets.

    Args:
        num_bytes: of the file. There are more links if one list is taken many times.
    """
    if name_of(value) not in ("dict", "defaultdict"):
        raise ValueError(f"it holds {kind_of(value)} where a dict belongs")
    keys, lists = value.items[::2], value.items[1::2]
    if len(keys) != len(lists) or any(type(neighbors) is not list for neighbors in lists):
        raise ValueError("its values are no lists")
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    if counts.sum() > num_bytes:
        raise ValueError(f"it has {counts.sum()} links in {num_bytes} bytes, one list many times")
    sources, targets = _integers(keys), _integers(list(chain.from_iterable(lists)))
    if len(distinct(sources - sources.min(initial=0))) < len(sources):
        raise ValueError("it lists the links of a node twice")
    return np.stack([np.repeat(sources, counts), targets])


def _read_test_index(path: Path) -> np.ndarray:
    """(num_test,) int64, distinct."""
    with reading(path, _cure(path.name), ValueError):
        index = np.array(list(_words_as_integers(read_text(path).tobytes())), np.int64)
    if len(index) == 0 or index.min() < 0 or len(distinct(index)) < len(index):
        raise DataError(f"{path} must list distinct node ids, one a line: {_cure(path.name)}")
    return index


def _words_as_integers(text: bytes) -> Iterator[int]:
    """The integers of a text, apart by blanks and line ends."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in re.findall(rb"[^\t ]+", line):
            is_integer = re.fullmatch(rb"[-+]?[0-9]+", word)
            value = int(word) if is_integer and len(word) < 4000 else 2**63
            if not -(2**63) <= value < 2**63:
                why = "is beyond int64" if is_integer else "is no integer"
                raise ValueError(f"line {number}: {quoted(word[:1000].decode('latin1'))!r} {why}")
            yield value


def _integers(values: list[Any]) -> np.ndarray:
    """(n,) int64, of integers."""
    if set(map(type, values)) - {int}:
        raise ValueError("its lists hold other things than integers")
    return np.array(values, np.int64)


def _cure(file: str) -> str:
    """What to do with ``ind.<name>.<part>`` if it cannot be used: only public files can be downloaded again."""
    return DOWNLOAD_AGAIN if file.split(".")[1] in NAMES else "write it again"
