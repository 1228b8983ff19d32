"""Helpers that test_ogb.py shares with other test modules."""

import gzip
import warnings

import numpy as np
import pytest

NUM_NODES, NUM_EDGES = 25, 60
RNG = np.random.default_rng(0)
EDGES = np.concatenate([RNG.integers(0, NUM_NODES, (NUM_EDGES - 4, 2)), [[0, 1], [0, 1], [1, 0], [5, 5]]])
FEATURES = RNG.integers(-8, 8, (NUM_NODES, 3)) / 4
EDGE_FEATURES = RNG.integers(1, 9, (NUM_EDGES, 8)) / 8
CLASSES = RNG.integers(0, 4, (NUM_NODES, 1))
SEVERAL = RNG.integers(0, 2, (NUM_NODES, 5))
SPECIES = np.array([[3702], [9606], [511145], [3702], [9606]] * 5)
SPLIT_NAMES = {"ogbn-products": "sales_ranking", "ogbn-proteins": "species"}  # of the others: time
SPLIT = {"train": np.arange(10), "valid": np.arange(18, 13, -1), "test": np.arange(19, 25)}


def csv_gz(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = np.asarray(rows).tolist()
    text = "".join(",".join("" if value != value else repr(value) for value in row) + "\n" for row in rows)
    file.write_bytes(gzip.compress(text.encode()))


def write_split(folder, name="time", split=SPLIT):
    for part, nodes in split.items():
        csv_gz(folder / "split" / name / f"{part}.csv.gz", np.reshape(nodes, (-1, 1)))


@pytest.fixture
def write_text(tmp_path):
    """Writes the folder of a dataset in the layout of text; None leaves a file out."""

    def build(name="ogbn-arxiv", **changes):
        folder = tmp_path / name.replace("-", "_")
        files = {
            "num-node-list": [[NUM_NODES]],
            "num-edge-list": [[NUM_EDGES]],
            "edge": EDGES,
            "node-feat": FEATURES,
            "node-label": CLASSES,
            "node_year": 2000 + CLASSES,
        }
        for file, rows in (files | changes).items():
            if rows is not None:
                csv_gz(folder / "raw" / f"{file}.csv.gz", rows)
        write_split(folder, SPLIT_NAMES.get(name, "time"))
        return folder

    return build


@pytest.fixture
def write_proteins(write_text):
    more = {"node-label": SEVERAL, "node-feat": None, "edge-feat": EDGE_FEATURES, "species": SPECIES}
    return lambda **changes: write_text("ogbn-proteins", **(more | changes))


@pytest.fixture
def write_binary(tmp_path):
    """Writes the folder of a dataset in the binary layout."""

    def build(name="ogbn-papers100M", save=np.savez, labels=None, **changes):
        folder = tmp_path / name.replace("-", "_")
        (folder / "raw").mkdir(parents=True, exist_ok=True)
        arrays = dict(
            edge_index=EDGES.T,
            num_nodes_list=np.array([NUM_NODES]),
            num_edges_list=np.array([NUM_EDGES]),
            node_feat=FEATURES.astype(np.float32),
            node_year=2000 + CLASSES,
        )
        save(folder / "raw" / "data.npz", **(arrays | changes))
        known = np.where(np.arange(NUM_NODES)[:, None] % 4 < 3, CLASSES, np.nan).astype(np.float32)
        save(folder / "raw" / "node-label.npz", node_label=known if labels is None else labels)
        write_split(folder)
        return folder

    return build


def ogb_dataset(folder, choice):
    """What the package ``ogb`` reads: its dataset of this name, from this folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodeproppred = pytest.importorskip("ogb.nodeproppred")
    (folder / "processed").mkdir(exist_ok=True)
    (folder / "RELEASE_v1.txt").touch()
    return nodeproppred.NodePropPredDataset(choice, root=str(folder.parent))


def write_names(folder, file, header, names):
    lines = [f"{number},{name}" for number, name in names]
    (folder / "mapping").mkdir(exist_ok=True)
    (folder / "mapping" / file).write_bytes(gzip.compress("\n".join([header, *lines]).encode() + b"\n"))
