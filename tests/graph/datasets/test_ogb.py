"""Folders of OGB, written here in its two layouts; the package ``ogb`` itself is the judge."""

import numpy as np
import pytest
import torch

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph, check_dataset, dataset_files, load_dataset
from tests.graph.datasets.ogb import (
    CLASSES,
    EDGE_FEATURES,
    EDGES,
    FEATURES,
    NUM_NODES,
    SEVERAL,
    SPECIES,
    SPLIT,
    ogb_dataset,
    write_names,
    write_split,
)


@pytest.fixture
def load(compose_dataset, tmp_path):
    return lambda choice, **overrides: load_dataset(compose_dataset(choice, root=str(tmp_path), **overrides))


def assert_is_ogb(graph, dataset):
    theirs, labels = dataset[0]
    target, source = graph.adjacency(bool).nonzero()
    arcs = np.unique(theirs["edge_index"], axis=1)
    np.testing.assert_array_equal(np.stack([source, target])[:, np.lexsort((target, source))], arcs)
    if theirs["node_feat"] is not None:
        np.testing.assert_array_equal(graph.features, theirs["node_feat"])
    known = ~np.isnan(labels)
    stored = graph.labels.reshape(labels.shape)
    np.testing.assert_array_equal(stored[known], labels[known])
    assert (stored[~known] == -1).all()
    for part, name in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
        mask = np.zeros(graph.num_nodes, bool)
        mask[dataset.get_idx_split()[part]] = True
        np.testing.assert_array_equal(getattr(graph, name), mask & known.any(axis=1))


@pytest.mark.parametrize("choice", ["ogbn-arxiv", "ogbn-products"])
def test_text_equals_ogb(choice, write_text, load):
    folder = write_text(choice)
    graph = load(choice)
    assert_is_ogb(graph, ogb_dataset(folder, choice))
    assert graph.is_symmetric == (choice == "ogbn-products") and graph.name == choice and graph.weight is None
    assert graph.remarks.keys() == {"merged_arcs"}


def test_proteins_equal_ogb(write_proteins, load):
    folder = write_proteins()
    graph = load("ogbn-proteins")  # before ogb renames the file of species
    dataset = ogb_dataset(folder, "ogbn-proteins")
    assert_is_ogb(graph, dataset)
    assert graph.labels.dtype == np.int8 and graph.labels.shape == (NUM_NODES, 5) and graph.num_features == 0
    assert graph.remarks["unread_edge_features"] == 8
    for read in (graph, load("ogbn-proteins")):  # under the other name of that file
        np.testing.assert_array_equal(read.labels, SEVERAL)
    of_species = load("ogbn-proteins", node_features="species").features
    np.testing.assert_array_equal(of_species, np.ravel(dataset[0][0]["node_species"])[:, None] == [3702, 9606, 511145])


def test_edge_features_are_weights_or_means_on_demand(write_proteins, load):
    folder = write_proteins()
    theirs = ogb_dataset(folder, "ogbn-proteins")[0][0]
    source, target = theirs["edge_index"]
    once = np.r_[
        True, (source[1:] != target[1:]) | (np.arange(1, len(source)) % 2 == 0)
    ]  # a self-loop of ogb's is twice
    weight, total = np.zeros((2, NUM_NODES, NUM_NODES)), np.zeros((NUM_NODES, 8))
    np.add.at(weight[0], (target[once], source[once]), theirs["edge_feat"][once, 3])
    np.add.at(weight[1], (target[once], source[once]), 1)
    np.add.at(total, target[once], theirs["edge_feat"][once])
    graph = load("ogbn-proteins", edge_weight=3)
    np.testing.assert_array_equal(graph.adjacency().toarray(), weight[0])
    assert "unread_edge_features" not in graph.remarks
    graph = load("ogbn-proteins", node_features="edge_mean")
    mean = total / np.maximum(weight[1].sum(axis=1), 1)[:, None]
    np.testing.assert_allclose(graph.features, mean, rtol=1e-6)
    assert "unread_edge_features" not in graph.remarks


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_papers_equal_ogb(save, dtype, write_binary, load):
    folder = write_binary(save=save, node_feat=FEATURES.astype(dtype))
    graph = load("ogbn-papers100M")
    assert_is_ogb(graph, ogb_dataset(folder, "ogbn-papers100M"))
    mapped = save is np.savez
    assert graph.features.dtype == (dtype if mapped else np.float32) and graph.num_classes == CLASSES.max() + 1
    assert graph.remarks["unlabelled_split_nodes"] == sum((nodes % 4 == 3).sum() for nodes in SPLIT.values())
    base = graph.features
    while isinstance(base, np.ndarray):
        base = base.base
    assert (type(base).__name__ == "mmap") == mapped
    np.testing.assert_array_equal(graph.permute(np.arange(NUM_NODES)[::-1]).features, FEATURES[::-1])


def test_edge_features_of_the_binary_layout(write_binary, load):
    write_binary(edge_feat=EDGE_FEATURES, node_feat=FEATURES.astype(np.float64))
    assert load("ogbn-papers100M").remarks["unread_edge_features"] == 8
    graph = load("ogbn-papers100M", edge_weight=2)
    expected = Graph.from_edge_index(EDGES.T, num_nodes=NUM_NODES, edge_weight=EDGE_FEATURES[:, 2])
    np.testing.assert_array_equal(graph.adjacency().toarray(), expected.adjacency().toarray())


def test_labels_that_are_empty_are_not_known(write_text, load):
    labels = SEVERAL.astype(float)
    labels[2, 3] = labels[4] = np.nan
    folder = write_text(**{"node-label": labels})
    graph = load("ogbn-arxiv")
    np.testing.assert_array_equal(graph.labels, np.where(np.isnan(labels), -1, labels))
    assert_is_ogb(graph, ogb_dataset(folder, "ogbn-arxiv"))
    assert graph.remarks["unlabelled_split_nodes"] == 1


def test_one_of_several_splits_is_chosen_by_name(write_text, load, compose_dataset, tmp_path):
    folder = write_text()
    other = {"train": SPLIT["test"], "valid": [], "test": SPLIT["train"]}
    write_split(folder, "random", other)
    with pytest.raises(ConfigError, match="split has several splits: set dataset.split_name to one of random, time"):
        load("ogbn-arxiv")
    np.testing.assert_array_equal(np.flatnonzero(load("ogbn-arxiv", split_name="time").train_mask), SPLIT["train"])
    graph = load("ogbn-arxiv", split_name="random")
    np.testing.assert_array_equal(np.flatnonzero(graph.train_mask), SPLIT["test"])
    assert not graph.val_mask.any()
    names = {
        file.relative_to(folder).as_posix()
        for file in dataset_files(compose_dataset("ogbn-arxiv", root=str(tmp_path), split_name="random"))
    }
    assert {"raw/edge.csv.gz", "raw/node-feat.csv.gz", "split/random/valid.csv.gz"} <= names
    with pytest.raises(DataError, match="no file .*: there are the splits random, time; "):
        load("ogbn-arxiv", split_name="year")


def test_split_dict_takes_the_place_of_the_three_files(write_text, load):
    folder = write_text()
    other = {"train": SPLIT["test"], "valid": SPLIT["train"], "test": SPLIT["valid"].copy()}
    file = folder / "split" / "time" / "split_dict.pt"
    torch.save({part: torch.from_numpy(nodes) for part, nodes in other.items()}, file)
    graph = load("ogbn-arxiv")
    assert_is_ogb(graph, ogb_dataset(folder, "ogbn-arxiv"))
    torch.save(other | {"years": {"train": 2017}}, file)  # arrays of NumPy, which ``ogb`` itself writes
    theirs, again = torch.load(file, weights_only=False), load("ogbn-arxiv")  # a file of this test
    for part, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
        np.testing.assert_array_equal(np.flatnonzero(getattr(again, mask)), np.sort(theirs[part]))
        np.testing.assert_array_equal(getattr(again, mask), getattr(graph, mask))


@pytest.mark.parametrize(
    ("choice", "overrides", "message"),
    [
        ("ogb", {}, "set dataset.add_inverse_edge=true .ogbn-products, ogbn-proteins. or false"),
        ("ogbn-arxiv", dict(edge_weight=-1), "dataset.edge_weight=-1: choose a column"),
        ("ogbn-arxiv", dict(node_features="year"), "dataset.node_features=year is not known"),
    ],
)
def test_wrong_keys_are_refused_before_the_graph_is_read(
    choice, overrides, message, write_text, compose_dataset, tmp_path
):
    write_text()
    node = compose_dataset(choice, root=str(tmp_path), **overrides)
    for function in (check_dataset, load_dataset):
        with pytest.raises(ConfigError, match=message):
            function(node)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (dict(edge_weight=0), "dataset.edge_weight=0: the edges in .* have 0 numbers each"),
        (dict(node_features="species"), "dataset.node_features=species would do nothing: .* has features"),
    ],
)
def test_keys_that_do_not_suit_the_folder(overrides, message, write_text, load):
    write_text()
    with pytest.raises(ConfigError, match=message):
        load("ogbn-arxiv", **overrides)


def test_features_cannot_be_made_of_nothing(write_text, load):
    write_text(**{"node-feat": None})
    assert load("ogbn-arxiv").num_features == 0
    with pytest.raises(ConfigError, match="dataset.node_features=edge_mean: the edges in .* have no features"):
        load("ogbn-arxiv", node_features="edge_mean")
    with pytest.raises(DataError, match="no file .*node_species.csv.gz: the nodes of this dataset have no species"):
        load("ogbn-arxiv", node_features="species")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge": EDGES[:-1]}, "edge.csv.gz has 59 rows, and 60 belong there"),
        ({"num-edge-list": [[59]]}, "edge.csv.gz has more than 59 rows"),
        ({"num-edge-list": [[10**14]]}, "edge.csv.gz: .* rows needs .* bytes of memory"),
        ({"num-node-list": [[24]]}, "edge.csv.gz: an arc has the node 24, and there are the nodes 0 to 23"),
        ({"num-node-list": [[24], [1]]}, "num-node-list.csv.gz lists 2 graphs"),
        ({"num-node-list": [[10**12]]}, "raw has 1000000000000 nodes"),
        ({"edge": np.c_[EDGES, EDGES]}, "edge.csv.gz cannot be read .*Row #1: Expected 2 columns, got 4"),
        ({"edge": EDGES + 0.5}, "edge.csv.gz cannot be read .*Row #1: .*invalid value"),
        ({"node-feat": FEATURES[:-1]}, "node-feat.csv.gz has 24 rows, and 25 belong there"),
        ({"node-feat": np.where(FEATURES > 0, np.nan, 1)}, "raw: features hold NaN or Inf"),
        ({"node-label": CLASSES - 2.5}, "raw: label 0 of node 0 is .*, and classes 0, 1, ... or NaN belong there"),
        ({"node-label": 2 * SEVERAL}, "raw: label . of node . is 2, and 0, 1 or NaN belong there"),
    ],
)
def test_wrong_contents_of_text(changes, message, write_text, load):
    folder = write_text(**changes)
    with pytest.raises(DataError, match=message) as error:
        load("ogbn-arxiv")
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(edge_index=EDGES), r"array 'edge_index' has shape \(60, 2\), and takes \(2, 60\)"),
        (dict(edge_index=EDGES.T.astype(float)), "data.npz: the sources of the arcs are no list of integers"),
        (dict(num_nodes_list=np.array([20, 5])), "data.npz lists 2 graphs"),
        (dict(num_nodes_list=np.array([-1])), "data.npz has the size -1"),
        (dict(node_feat=FEATURES[:-1]), "features has shape"),
        (dict(labels=CLASSES[:-1]), r"node-label.npz: array 'node_label' has shape \(24, 1\)"),
        (dict(labels=np.full((NUM_NODES, 1), 1e30)), "label 0 of node 0 is 1e.30, and classes"),
        (dict(edge_feat=EDGE_FEATURES[:-1]), r"array 'edge_feat' has shape \(59, 8\)"),
    ],
)
def test_wrong_contents_of_the_binary_layout(changes, message, write_binary, load):
    folder = write_binary(**changes)
    with pytest.raises(DataError, match=message) as error:
        load("ogbn-papers100M")
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (dict(SPLIT, test=[25]), "test.csv.gz: test has the node 25, and there are the nodes 0 to 24"),
        (dict(SPLIT, test=[3]), "test.csv.gz: test has the node 3, which another part has too"),
        (dict(SPLIT, test=[3.5]), "test.csv.gz cannot be read"),
    ],
)
def test_a_wrong_split(split, message, write_text, load):
    write_split(write_text(), split=split)
    with pytest.raises(DataError, match=message):
        load("ogbn-arxiv")


def test_missing_files(write_text, load, tmp_path):
    with pytest.raises(
        DataError, match="no file .*ogbn_arxiv.*: set dataset.root to the folder in which .* ogb has put"
    ):
        load("ogbn-arxiv")
    folder = write_text()
    (folder / "split" / "time" / "valid.csv.gz").unlink()
    with pytest.raises(DataError, match="no file .*split/time/valid.csv.gz"):
        load("ogbn-arxiv")


@pytest.mark.parametrize("texts", [False, True])
def test_names_are_read_on_demand(texts, write_text, load, compose_dataset, tmp_path):
    folder = write_text()
    expected = [f"B00{node}" if texts else 10**12 - node for node in range(NUM_NODES)]
    write_names(folder, "nodeidx2paperid.csv.gz", "node idx,paper id", reversed(list(enumerate(expected))))
    write_names(folder, "labelidx2arxivcategeory.csv.gz", "label idx,arxiv category", enumerate(["a", "b", "c d", "é"]))
    graph = load("ogbn-arxiv", names=True)
    assert graph.node_names.tolist() == expected and graph.class_names == ("a", "b", "c d", "é")
    assert load("ogbn-arxiv").node_names is None
    files = dataset_files(compose_dataset("ogbn-arxiv", root=str(tmp_path), names=True))
    assert [file.name for file in files[-2:]] == ["nodeidx2paperid.csv.gz", "labelidx2arxivcategeory.csv.gz"]
    write_names(folder, "labelidx2arxivcategeory.csv.gz", "label idx,arxiv category", enumerate("abc"))
    assert load("ogbn-arxiv", names=True).class_names is None


def test_a_class_may_have_an_empty_name(write_text, load):
    """As class 24 of ogbn-products."""
    folder = write_text("ogbn-products")
    write_names(folder, "nodeidx2asin.csv.gz", "node idx,asin", [(node, f"{node:010}") for node in range(NUM_NODES)])
    write_names(
        folder, "labelidx2productcategory.csv.gz", "label idx,product category", enumerate(["a", "", "NA", "d"])
    )
    graph = load("ogbn-products", names=True)
    assert graph.class_names == ("a", "", "NA", "d") and graph.node_names.tolist()[3] == "0000000003"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([(node, "x") for node in range(24)], "nodeidx2paperid.csv.gz must have the ids 0 to 24 once each"),
        ([(0, "x")] * 25, "nodeidx2paperid.csv.gz must have the ids 0 to 24 once each"),
        ([("a", "x")] * 25, "nodeidx2paperid.csv.gz cannot be read .its first two columns are no ids and names"),
        ([(0, "x,y")] * 25, "nodeidx2paperid.csv.gz cannot be read .*Expected 2 columns, got 3"),
        (None, "mapping has 0 files nodeidx2.*: set dataset.names=false"),
    ],
)
def test_wrong_names(names, message, write_text, load):
    folder = write_text()
    if names is not None:
        write_names(folder, "nodeidx2paperid.csv.gz", "node idx,paper id", names)
    with pytest.raises(DataError, match=message) as error:
        load("ogbn-arxiv", names=True)
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


def test_proteins_are_split_by_whole_species(write_proteins, load):
    write_proteins()
    graph = load("ogbn-proteins", split="group", groups="species", train_fraction=0.4, val_fraction=0.4)
    parts = [set(SPECIES[mask, 0]) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 3
    with pytest.raises(ConfigError, match="dataset.groups=year is not known: choose species, or a .npy file"):
        load("ogbn-proteins", split="group", groups="year")
