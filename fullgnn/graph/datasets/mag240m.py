"""MAG240M of OGB-LSC (Hu et al., 2021) as an undirected graph with nodes of one kind.

Ma et al., "Accelerating graph neural network training with feature data sparsification" (2024), train on the graph in
this form. The nodes are the papers, then the authors, then the institutions; each relation is stored in both
directions, and two nodes are joined once. ``mag240m_files.py`` has the layout of the files.

At full size there are 244,160,499 nodes, and 1,728,364,232 edges that are stored in both directions. Their arrays take
about 20 GB, and about 65 GB while they are made. The features, 375 GB, are a mapped file; see ``mag240m_features.py``.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.datasets.given_files import in_folder
from fullgnn.graph.datasets.mag240m_features import mapped_features
from fullgnn.graph.datasets.mag240m_files import RELATIONS, UNPACK_AGAIN, URL, MagFolder
from fullgnn.graph.graph import Graph
from fullgnn.telemetry.log import announce
from fullgnn.telemetry.machine import check_fits

_BYTES_OF_ARC = 8 + 8 + 1  # its key, in order and out of order or once more, and whether it is new
BYTES_OF_NODE = 8 + 8 + 4 + 2 + 8 + 3  # its row start, an array to find that, whether it is there, label and masks


def files(path: str) -> list[Path]:
    """The files of ``load``: meta, split, features and labels of the papers, and the edges of the three relations.

    Raises:
        DataError: a file is missing.
    """
    names = ["meta.pt", "split_dict.pt", "processed/paper/node_feat.npy", "processed/paper/node_label.npy"]
    names += (f"processed/{relation}/edge_index.npy" for relation in RELATIONS)
    cure = f"set dataset.path to the folder mag240m_kddcup2021 of OGB-LSC, unpacked from {URL}"
    return in_folder(path, names, cure)


def check(path: str, max_papers: int | None) -> None:
    """Refuse a wrong ``max_papers``, and files that disagree in size.

    Raises:
        ConfigError, DataError: as ``load``.
    """
    MagFolder(files(path), max_papers)


def load(path: str, cache_dir: str | None, max_papers: int | None) -> Graph:
    """The graph in the folder ``path``. A node of the split without a label, as OGB hides those of the test nodes, is
    in no mask; a remark has their number.

    Args:
        cache_dir: folder of the file with the features of all nodes; None: ``homogeneous`` in ``path``.
        max_papers: the first so many papers, their authors, and the institutions of these; None: all nodes.

    Raises:
        ConfigError: ``max_papers`` is wrong, or ``cache_dir`` cannot be written.
        DataError: a file is missing, damaged or too large; the message names it.
    """
    folder = MagFolder(files(path), max_papers)
    chosen = folder.chosen()
    sizes = [int(np.count_nonzero(mask)) for mask in chosen]
    num_nodes, num_papers = sum(sizes), sizes[0]
    check_num_nodes(num_nodes, str(folder.meta_file))
    indptr, indices, num_merged = _structure(folder, chosen, num_nodes)
    labels, masks, of_split = folder.labels_and_masks(num_nodes)
    cache = Path(path) / "homogeneous" if cache_dir is None else Path(cache_dir)
    suffix = "" if num_papers == folder.counts[0] else f"_{num_papers}"
    features = mapped_features(
        cache.expanduser() / f"mag240m_features{suffix}.npy",
        [folder.feature_file, *(relation.file for relation in folder.relations), folder.meta_file],
        folder.features[:num_papers],
        sizes[1],
        indptr,
        indices,
        UNPACK_AGAIN,
    )
    return Graph(
        indptr,
        indices,
        features,
        labels,
        num_classes=folder.num_classes,
        name="mag240m",
        remarks={"merged_arcs": num_merged, **of_split},
        **masks,  # type: ignore[arg-type]
    )


def _structure(folder: MagFolder, chosen: list[np.ndarray], num_nodes: int) -> tuple[np.ndarray, np.ndarray, int]:
    """indptr (num_nodes + 1,) int64 and indices (num_arcs,) int32 of the symmetric adjacency, and how many arcs were
    merged with an equal one.

    An arc is the key ``row * num_nodes + column``: sorted keys are in the order of the matrix, and repeated ones lie
    side by side.
    """
    from fullgnn.graph._keys_cpu import csr_of, sort_keys, without_repeats  # imported here, since it imports numba

    everything = np.concatenate(chosen)
    new_id = np.cumsum(everything, dtype=np.int32) - np.int32(1)
    new_id[~everything] = -1
    starts = np.append(0, np.cumsum(folder.counts))
    num_edges = sum(relation.edges.shape[1] for relation in folder.relations)
    if num_nodes < len(everything):
        num_edges = sum(ends.shape[1] for ends in _edges(folder, new_id, starts))
    check_fits(
        2 * num_edges * _BYTES_OF_ARC + num_nodes * BYTES_OF_NODE,
        f"{folder.meta_file.parent}: the graph of {num_nodes} nodes and {num_edges} edges",
        "take a machine with more memory, or set dataset.max_papers to fewer papers",
    )
    announce("mag240m: the edges are sorted", 2 * num_edges, ["sorting"])
    keys, end, num_loops = np.empty(2 * num_edges, np.int64), 0, 0
    for source, target in _edges(folder, new_id, starts):
        for row, column in ((source, target), (target, source)):
            begin, end = end, end + len(row)
            np.multiply(row, num_nodes, out=keys[begin:end])
            keys[begin:end] += column
        num_loops += int(np.count_nonzero(source == target))
    keys = sort_keys(keys)
    keys = without_repeats(keys)
    return *csr_of(keys, num_nodes), 2 * num_edges - num_loops - len(keys)


def _edges(folder: MagFolder, new_id: np.ndarray, starts: np.ndarray) -> Iterator[np.ndarray]:
    """The edges of all relations between nodes of the graph, (2, m) int64, some after the others.

    Args:
        new_id: (number of nodes of all kinds,) int32, the id in the graph of each node in the files, or -1.
        starts: the number in ``new_id`` of the first node of each kind.
    """
    for relation in folder.relations:
        first = starts[list(relation.kinds)][:, None]
        for block in relation.blocks():
            ends = new_id[block + first]
            yield ends[:, (ends >= 0).all(axis=0)].astype(np.int64)
