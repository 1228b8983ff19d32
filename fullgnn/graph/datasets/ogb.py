"""Node property prediction datasets of OGB (Hu et al., 2020), from the folder that the package ``ogb`` leaves on disk.

The package itself is not needed. ``ogb_files.py`` has the layout of the folder. An edge u, v of it is an arc u -> v, by
which v reads from u, as in PyTorch Geometric.

Whether the folder has each edge in one direction only is not in the folder, but in a table of the package (its
``add_inverse_edge``): of ogbn-products and ogbn-proteins, which are undirected, it has one direction, and their YAMLs
say so; ogbn-arxiv, ogbn-mag and ogbn-papers100M are directed.
"""

from pathlib import Path

import numpy as np
from scipy.sparse import coo_array

from fullgnn.errors import ConfigError, quoted
from fullgnn.graph.checks import naming
from fullgnn.graph.csr import reads_of_arcs
from fullgnn.graph.datasets.ogb_files import OgbFolder, class_names_of, read_names
from fullgnn.graph.datasets.ogb_raw import UNPACK_AGAIN, Raw
from fullgnn.graph.graph import Graph
from fullgnn.graph.masks import without_unlabelled
from fullgnn.graph.ogb import known_labels
from fullgnn.telemetry.machine import check_fits

MADE_FEATURES = ("species", "edge_mean")


def files(name: str, root: str, split_name: str | None, names: bool) -> list[Path]:
    """The files of ``load``.

    Raises:
        ConfigError: there are several splits, and ``split_name`` chooses none.
        DataError: a file is missing.
    """
    folder = OgbFolder.open(name, root, split_name)
    return [*folder.raw, *folder.split, *(folder.names() if names else [])]


def node_groups(name: str, root: str, split_name: str | None, groups: str) -> np.ndarray:
    """(num_nodes,) int64, the column ``species`` of the nodes of ogbn-proteins.

    Raises:
        ConfigError: ``groups`` is another column.
        DataError: there is no file of species.
    """
    if groups != "species":
        raise ConfigError(f"dataset.groups={quoted(groups)} is not known: choose species, or a .npy file")
    return OgbFolder.open(name, root, split_name).species(None)


def check(add_inverse_edge: bool | None, edge_weight: int | None, node_features: str | None) -> None:
    """Refuse keys that are wrong whatever the folder has; see ``load``."""
    if add_inverse_edge is None:
        raise ConfigError(
            "the folders of OGB do not say whether the inverse of each edge is to be added: set"
            " dataset.add_inverse_edge=true (ogbn-products, ogbn-proteins) or false (ogbn-arxiv, ogbn-mag,"
            " ogbn-papers100M), or take dataset=ogbn-products and the like, which have it"
        )
    if edge_weight is not None and edge_weight < 0:
        raise ConfigError(f"dataset.edge_weight={edge_weight}: choose a column from 0 on, or null")
    if node_features not in (None, *MADE_FEATURES):
        raise ConfigError(
            f"dataset.node_features={node_features} is not known: choose {' or '.join(MADE_FEATURES)}, or null for the"
            " features in the folder"
        )


def load(
    name: str,
    root: str,
    split_name: str | None,
    add_inverse_edge: bool | None,
    edge_weight: int | None,
    node_features: str | None,
    names: bool,
) -> Graph:
    """The graph in the folder ``root/ogbn_arxiv`` of the dataset ``ogbn-arxiv``.

    A label that is not known is -1; nodes of the split without a label are in no mask, and a remark has their number.
    Of nodes of several kinds, as in ogbn-mag, those of the kind with labels are read, with the arcs between them, and a
    remark has the numbers of the others.

    Args:
        split_name: folder in ``split``; None: the one that is there.
        add_inverse_edge: whether to store each edge, but for self-loops, in both directions.
        edge_weight: column of the edge features that has the weights; None: every edge counts 1, and a remark says how
            many columns are not read.
        node_features: of a graph without features, what stands for them: ``species``, a column of 0 and 1 for each
            species, or ``edge_mean``, the mean of the edge features over the arcs by which a node reads, as in OGB's
            examples for ogbn-proteins. None: the features in the folder, which may have none.
        names: whether to read the names of the nodes, and of the classes if they are there, from ``mapping``.

    Raises:
        ConfigError: a key is wrong, or does not suit the folder.
        DataError: a file is missing, damaged or too large; the message names it.
    """
    check(add_inverse_edge, edge_weight, node_features)
    folder = OgbFolder.open(name, root, split_name)
    raw = folder.graph()
    num_columns = raw.num_edge_features()
    if edge_weight is not None and edge_weight >= num_columns:
        raise ConfigError(
            f"dataset.edge_weight={edge_weight}: the edges in {raw.folder} have {num_columns} numbers each"
        )
    reads = _reads(raw, edge_weight, bool(add_inverse_edge))
    labels = known_labels(raw.labels(), raw.folder, UNPACK_AGAIN)
    masks, of_split = without_unlabelled(folder.masks(raw.num_nodes), labels)
    mapping = folder.names() if names else []
    are_read = edge_weight is not None or node_features == "edge_mean"
    with naming(raw.folder):
        return Graph.from_scipy(
            reads,
            features=_features(raw, folder, node_features, bool(add_inverse_edge)),
            labels=labels,
            name=name,
            node_names=read_names(mapping[0], raw.num_nodes, UNPACK_AGAIN) if mapping else None,
            class_names=_class_names(mapping[1:], labels),
            remarks={**raw.remarks, **of_split, "unread_edge_features": 0 if are_read else num_columns},
            **masks,  # type: ignore[arg-type]
        )


def _class_names(paths: list[Path], labels: np.ndarray) -> list[str] | None:
    """The names of the classes, or of the labels of a node, if there is a file of them."""
    num_classes = labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1
    return class_names_of(paths[0], num_classes, UNPACK_AGAIN) if paths else None


def _reads(raw: Raw, edge_weight: int | None, both_directions: bool) -> coo_array:
    """The adjacency; entry [v, u] says that v reads from u."""
    weight = None if edge_weight is None else np.ascontiguousarray(raw.edge_features()[:, edge_weight])
    reads = reads_of_arcs(*raw.edges(), raw.num_nodes, raw.file, UNPACK_AGAIN, weight)
    if not both_directions:
        return reads
    (target, source), entries = reads.coords, reads.data
    again = target != source
    ends = np.concatenate([target, source[again]]), np.concatenate([source, target[again]])
    return coo_array((np.concatenate([entries, entries[again]]), ends), shape=reads.shape)


def _features(raw: Raw, folder: OgbFolder, made: str | None, both_directions: bool) -> np.ndarray | None:
    """The features in the folder, or those that are ``made``; see ``load``."""
    features = raw.features()
    if made is None:
        return features
    if features is not None:
        raise ConfigError(f"dataset.node_features={made} would do nothing: {raw.folder} has features, so leave it out")
    if made == "species":
        species, column = np.unique(folder.species(raw.num_nodes), return_inverse=True)
        check_fits(
            4 * raw.num_nodes * len(species), f"{raw.folder}: a column for each of {len(species)} species", UNPACK_AGAIN
        )
        features = np.zeros((raw.num_nodes, len(species)), np.float32)
        features[np.arange(raw.num_nodes), column] = 1
        return features
    if not raw.num_edge_features():
        raise ConfigError(f"dataset.node_features=edge_mean: the edges in {raw.folder} have no features")
    return _edge_mean(raw, both_directions)


def _edge_mean(raw: Raw, both_directions: bool) -> np.ndarray:
    """(num_nodes, F) float32, the mean of the edge features over the arcs by which a node reads; 0 without any."""
    (source, target), of_edges = raw.edges(), raw.edge_features()
    again = source != target if both_directions else np.zeros(len(source), bool)
    reader = np.concatenate([target, source[again]])
    num_read = np.maximum(np.bincount(reader, minlength=raw.num_nodes), 1)
    mean = np.empty((raw.num_nodes, of_edges.shape[1]), np.float32)
    for number, column in enumerate(of_edges.T):
        mean[:, number] = np.bincount(reader, np.append(column, column[again]), raw.num_nodes) / num_read
    return mean
