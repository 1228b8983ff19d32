"""Any graph in the npz layout of gnn-benchmark, which ``Graph.save`` writes too and ``Graph.load`` reads.

Layout: Shchur et al., "Pitfalls of graph neural network evaluation" (2018).
``adj_{data,indices,indptr,shape}`` is a CSR matrix whose entry [u, v] is an arc u -> v, so a ``Graph`` stores
its transpose; ``attr_*`` is a CSR matrix of features (or ``attr_matrix`` a dense one); ``labels`` has a class per
node, or one of the other forms that ``Graph.labels`` takes. Features and labels may be absent. ``Graph.save`` adds
``train_mask``, ``val_mask``, ``test_mask``, ``num_classes`` and ``name``, of a graph with links to find ``num_users``,
``val_links`` and ``test_links``, and ``remark_NAME`` for each remark, a count. Object arrays, and with them pickles,
are never read.
"""

import logging
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.arrays import graph_to_arrays
from fullgnn.graph.checks import check_shape, naming
from fullgnn.graph.datasets import contents_of, heterophilous, is_drawn, number_of_split
from fullgnn.graph.datasets.checksums import SHA256
from fullgnn.graph.datasets.download import DOWNLOAD_AGAIN, fetch
from fullgnn.graph.datasets.given_files import npz_file
from fullgnn.graph.datasets.named_arrays import NamedArrays
from fullgnn.graph.graph import Graph
from fullgnn.graph.labels import check_labels, is_labelled
from fullgnn.graph.masks import MASKS, column_of_masks
from fullgnn.graph.node_data import normalize_rows
from fullgnn.graph.node_names import NodeNames, check_node_names, names_from_arrays
from fullgnn.graph.remarks import from_arrays
from fullgnn.graph.sparse_features import NodeFeatures, check_node_features, features_to_arrays
from fullgnn.graph.splits import SplitKeys, draw

SPLIT_KEYS = ("train_fraction", "val_fraction", "seed")
SHARES = (0.6, 0.2)
"""Fractions of the labelled nodes that are for training and for validation, where a file has no masks."""

log = logging.getLogger(__name__)

WRITE_AGAIN = "write it again, for example with Graph.save"
"""What a user does with a file of their own that cannot be read."""

URL = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
NAMES = (
    "amazon_electronics_computers",
    "amazon_electronics_photo",
    "citeseer",
    "cora",
    "cora_full",
    "ms_academic_cs",
    "ms_academic_phy",
    "pubmed",
)


def load(
    name: str | None,
    root: str,
    path: str | None,
    normalize_features: bool,
    train_fraction: float | None,
    val_fraction: float | None,
    seed: int,
    contents: str | None = None,
    split: int | str | None = None,
) -> Graph:
    """The graph in the file ``path``, or without ``path`` in ``root/<name>.npz``, downloaded when absent.

    Masks in the file define the split, or masks (num_nodes, s) several, of which ``split`` is the number of one.
    Without masks, the labelled nodes, if there are any, are split at random by ``train_fraction`` (None: 0.6),
    ``val_fraction`` (None: 0.2) and ``seed``; the rest is for testing. A remark says so. Masks without a single node
    are split like this only where a fraction is given. The masks of a file of ``train_graph`` (``contents``) were drawn
    by the same keys, if they were, or are the column that ``split`` chose. If ``split`` is the name of a method,
    nothing is split here, see ``load_dataset``.

    Raises:
        ConfigError: one of the three is given, and there is nothing to split, or a split already.
        DataError: the file is missing or damaged, holds no graph, or has no split of this number.
    """
    (file,) = files(name, root, path)
    public = path is None and name in NAMES
    if public:
        fetch(root, [file.name], URL, SHA256)
    arrays = _GraphArrays(file, DOWNLOAD_AGAIN if public else WRITE_AGAIN)
    adj = arrays.sparse("adj_").T
    given = arrays.optional("labels")
    num_classes = arrays.integer("num_classes") if "num_classes" in arrays else 0
    links: dict[str, Any] = {key: arrays.integers(key) for key in ("val_links", "test_links") if key in arrays}
    if "num_users" in arrays:
        links["num_users"] = arrays.integer("num_users")
    with naming(file, TypeError, ValueError):
        features = arrays.features(adj.shape[0])
        labels, num_classes = check_labels(given, adj.shape[0], num_classes)
        if normalize_features and features is not None:
            features = normalize_rows(check_node_features(features, adj.shape[0]))
        masks: dict[str, Any] = {key: arrays[key] for key in MASKS if key in arrays}
        noted = from_arrays(arrays) | arrays.unread_class_names(num_classes)
        of_train_graph = contents_of(contents, path) is not None
        if is_drawn(split):  # ``load_dataset`` makes another split
            masks = {key: mask for key, mask in masks.items() if mask.ndim == 1}
        elif masks or split is not None:
            number = number_of_split(split)
            if of_train_graph and all(mask.ndim == 1 for mask in masks.values()):
                number = None  # the file has the column that was chosen
            masks = column_of_masks(masks, number, len(labels), "dataset.split=0")
        if not of_train_graph and not is_drawn(split):
            _check_split(arrays, _given(train_fraction, val_fraction, seed))
        asks = (train_fraction, val_fraction) != (None, None)
        if masks and asks and not of_train_graph and not is_drawn(split):
            if _is_split(arrays):  # the fractions are the usual ones
                log.info("%s has masks: dataset.train_fraction and dataset.val_fraction do nothing", file)
            else:
                masks = {}
        if not masks and given is not None and is_labelled(labels).any() and not is_drawn(split):
            masks, told = draw("random", labels, SplitKeys(train_fraction, val_fraction), seed)
            noted |= told
        return Graph.from_scipy(
            adj,
            features=features,
            labels=None if given is None else labels,
            num_classes=num_classes,
            name=name or (arrays.text("name") if "name" in arrays else file.stem),
            remarks=noted,
            node_names=arrays.node_names(adj.shape[0]),
            class_names=arrays.class_names(num_classes),
            **masks,
            **links,
        )


def files(name: str | None, root: str, path: str | None) -> list[Path]:
    """The one file of ``load``; a public one may be absent.

    Raises:
        ConfigError: neither ``path`` nor ``name`` is given.
        DataError: a file that is not public is missing.
    """
    if path is None and name is None:
        raise ConfigError("dataset=npz needs a file: set dataset.path=FILE.npz, or dataset.name to a public dataset")
    return [npz_file(path, root, name or "", NAMES, name or "")]


def check(
    name: str | None,
    root: str,
    path: str | None,
    train_fraction: float | None,
    val_fraction: float | None,
    seed: int,
    contents: str | None = None,
    split: int | str | None = None,
) -> None:
    """Refuse the keys of a split of which ``load`` could do nothing; see ``load``."""
    (file,) = files(name, root, path)
    if is_drawn(split):
        return
    number_of_split(split)
    given = _given(train_fraction, val_fraction, seed)
    if given and contents_of(contents, path) is None and file.is_file():
        _check_split(_GraphArrays(file, WRITE_AGAIN), given)


def lacks(
    name: str | None,
    root: str,
    path: str | None,
    train_fraction: float | None,
    val_fraction: float | None,
    split: int | str | None = None,
) -> list[str]:
    """Which of ``labels`` and ``train_mask`` the graph lacks, by the names in the file and by its masks."""
    (file,) = files(name, root, path)
    if not file.is_file():
        return []
    arrays = _GraphArrays(file, WRITE_AGAIN)
    if "labels" not in arrays:
        return ["labels", *([] if _has_nodes(arrays, "train_mask", split) else ["train_mask"])]
    asks_for_split = (train_fraction, val_fraction) != (None, None) and not _is_split(arrays)
    has_masks = any(mask in arrays for mask in MASKS)
    return [] if not has_masks or asks_for_split or _has_nodes(arrays, "train_mask", split) else ["train_mask"]


def _given(train_fraction: float | None, val_fraction: float | None, seed: int) -> str:
    """The keys of a split that are given; empty: they are the usual ones."""
    if (train_fraction, val_fraction, seed) == (*SHARES, 0):
        return ""
    values = dict(zip(SPLIT_KEYS, (train_fraction, val_fraction, seed or None)))
    return " and ".join(f"dataset.{key}={value}" for key, value in values.items() if value is not None)


def _check_split(arrays: "_GraphArrays", given: str) -> None:
    """Refuse the ``given`` keys of a split if there is nothing to split, or a split already."""
    if given and ((is_split := _is_split(arrays)) or "labels" not in arrays):
        why = "has masks, which are its split" if is_split else "has no labels, whose nodes could be split"
        raise ConfigError(f"{given} would do nothing, since {arrays.file} {why}: leave it out")


def _is_split(arrays: "_GraphArrays") -> bool:
    """Whether a mask of the file has a node."""
    return any(_has_nodes(arrays, mask) for mask in MASKS)


def _has_nodes(arrays: "_GraphArrays", name: str, split: int | str | None = None) -> bool:
    """Whether a mask is in the file and not empty; one of a wrong type counts, which ``load`` refuses.

    Args:
        split: the column of masks that counts, if it is one.
    """
    if name not in arrays:
        return False
    mask = arrays[name]
    if mask.ndim == 2 and isinstance(split, int) and 0 <= split < mask.shape[1]:
        mask = mask[:, split]
    are_ids = mask.ndim == 1 and mask.size and mask.dtype.kind in "iu" and len(mask) != arrays.shape("adj_")[0]
    return mask.dtype.kind not in "biuf" or bool(are_ids) or bool(mask.any())


def load_npz(path: str | PathLike[str]) -> Graph:
    """The graph in the file ``path``; see ``Graph.load``.

    Raises:
        DataError: the file is missing or damaged, or holds no graph.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise DataError(f"no file {file.resolve()}: give an existing .npz file")
    arrays = NamedArrays(file, WRITE_AGAIN)
    if "node_features" in arrays and "edges" in arrays:
        return heterophilous.load(file.stem, "", str(file), None, None)
    return load(None, "", str(file), normalize_features=False, train_fraction=None, val_fraction=None, seed=0)


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
    otherwise = ("indptr", "indices", "weight", "features")
    stored = graph_to_arrays(graph)
    arrays: dict[str, Any] = {name: stored[name] for name in stored if not name.startswith(otherwise)}
    arrays |= features_to_arrays(graph.features, "attr_matrix" if isinstance(graph.features, np.ndarray) else "attr")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:  # a file object: np.savez would append .npz to a bare name
        np.savez(
            file,
            adj_data=adj.data,
            adj_indices=adj.indices,
            adj_indptr=adj.indptr,
            adj_shape=np.array(adj.shape),
            name=np.array(graph.name),
            **arrays,
        )


class _GraphArrays(NamedArrays):
    """The named arrays of a file in the layout of gnn-benchmark."""

    needs = "the gnn-benchmark layout needs adj_data, adj_indices, adj_indptr and adj_shape"

    def node_names(self, num_nodes: int) -> NodeNames | None:
        """The names of the nodes, if the file has an integer or a text for each of them."""
        if "node_names" in self and self.kind("node_names", num_nodes) not in ("i", "u", "U"):
            return None
        return check_node_names(names_from_arrays(self), num_nodes)

    def class_names(self, num_classes: int) -> np.ndarray | None:
        """The names of the classes, if the file has a text for each of them."""
        return self["class_names"] if self.kind("class_names", num_classes) == "U" else None

    def unread_class_names(self, num_classes: int) -> dict[str, int]:
        """The remark that the names of the classes are Python objects, which are never read; empty if they are not."""
        return {"unread_class_names": num_classes} if self.kind("class_names", num_classes) == "O" else {}

    def features(self, num_nodes: int) -> NodeFeatures | None:
        """The features, sparse or dense, of ``num_nodes`` nodes; None if the file has none."""
        if "attr_data" not in self:
            return self.optional("attr_matrix")
        check_shape(self.shape("attr_"), num_nodes)
        return self.sparse("attr_")
