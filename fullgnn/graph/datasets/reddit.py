"""Reddit of Hamilton et al., "Inductive representation learning on large graphs" (2017), as DGL publishes it.

A folder has two files, unpacked from ``reddit.zip``, which PyTorch Geometric reads as well:

- ``reddit_data.npz``: ``feature`` (num_nodes, F), ``label`` (num_nodes,), and ``node_types`` (num_nodes,), 1 for
  training, 2 for validation and 3 for testing;
- ``reddit_graph.npz``: ``row``, ``col``, ``data``, ``shape`` and ``format`` of a COO matrix as scipy saves it. An entry
  [u, v] is an arc u -> v, as in PyTorch Geometric. Both directions of an edge are there. As by DGL and by PyTorch
  Geometric, ``data`` is not read: every arc counts 1.

Published are 232,965 nodes of 602 features and 41 classes, and 114,615,892 arcs. Features become float32.
"""

from pathlib import Path

from fullgnn.errors import DataError
from fullgnn.graph.checks import check_num_nodes, naming, to_float32
from fullgnn.graph.csr import reads_of_arcs
from fullgnn.graph.datasets.given_files import in_folder
from fullgnn.graph.datasets.named_arrays import NamedArrays
from fullgnn.graph.graph import Graph
from fullgnn.graph.labels import check_labels
from fullgnn.graph.masks import MASKS, without_unlabelled

URL = "https://data.dgl.ai/dataset/reddit.zip"
UNPACK_AGAIN = f"unpack it again from {URL}"
NAMES = ("reddit_data.npz", "reddit_graph.npz")


class _RedditArrays(NamedArrays):
    needs = "the layout of DGL's Reddit has feature, label and node_types, and row, col, shape and format"


def files(path: str) -> list[Path]:
    """The two files of ``load``: data and graph.

    Raises:
        DataError: a file is missing.
    """
    return in_folder(path, NAMES, f"set dataset.path to the folder of {' and '.join(NAMES)}, unpacked from {URL}")


def load(name: str, path: str) -> Graph:
    """The graph in the folder ``path``. Nodes of the split without a label are in no mask; a remark has their number.

    Raises:
        DataError: a file is missing or damaged; the message names it.
    """
    data_file, graph_file = files(path)
    data, adj = _RedditArrays(data_file, UNPACK_AGAIN), _RedditArrays(graph_file, UNPACK_AGAIN)
    num_nodes, columns = adj.shape("", "COO")
    check_num_nodes(num_nodes, str(graph_file))
    if adj["format"].tolist() not in ("coo", b"coo") or num_nodes != columns:
        raise DataError(f"{graph_file} holds no square COO matrix: {UNPACK_AGAIN}")
    reads = reads_of_arcs(adj.integers("row"), adj.integers("col"), num_nodes, graph_file, UNPACK_AGAIN)
    types = data.integers("node_types")
    if types.shape != (num_nodes,):
        raise DataError(
            f"{data_file}: array 'node_types' has shape {types.shape}, and {graph_file.name} has {num_nodes} nodes:"
            f" {UNPACK_AGAIN}"
        )
    features = data["feature"]
    if features.dtype.kind in "biuf":
        features = to_float32(features)
    with naming(data_file):
        labels, num_classes = check_labels(data["label"], num_nodes, 0)
        of_types = {mask: types == kind for kind, mask in enumerate(MASKS, 1)}
        masks, remarks = without_unlabelled(of_types, labels)
        return Graph.from_scipy(
            reads,
            features=features,
            labels=labels,
            num_classes=num_classes,
            name=name,
            remarks=remarks,
            **masks,  # type: ignore[arg-type]
        )
