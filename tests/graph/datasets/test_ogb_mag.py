"""ogbn-mag, in files written here as OGB has them; the readers of ``ogb`` and of PyTorch Geometric are the judges."""

import gzip
import shutil
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fullgnn.errors import DataError
from fullgnn.graph import Graph, dataset_files, load_dataset
from fullgnn.graph.remarks import sentences
from tests.graph.datasets.ogb import csv_gz, ogb_dataset, write_names
from tests.graph.datasets.published import assert_is_pyg, pyg_datasets

SIZES = {"author": 14, "field_of_study": 6, "institution": 3, "paper": 20}
NUM_EDGES = {
    ("author", "affiliated_with", "institution"): 9,
    ("author", "writes", "paper"): 33,
    ("paper", "cites", "paper"): 50,
    ("paper", "has_topic", "field_of_study"): 21,
}
SPLIT = {"train": [3, 0, 1, 2, 8], "valid": [5, 4], "test": [19, 17, 18]}


def text_gz(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode()))


def write_header(file, row):
    text_gz(file, f"{','.join(row)}\n{','.join(map(str, row.values()))}\n")


def write_mag(folder):
    """The files of the folder ``mag`` in the archive."""
    rng = np.random.default_rng(0)
    raw, split = folder / "raw", folder / "split" / "time"
    write_header(raw / "num-node-dict.csv.gz", SIZES)
    for name in ("feat", "label"):
        write_header(raw / f"nodetype-has-{name}.csv.gz", {kind: kind == "paper" for kind in SIZES})
    write_header(split / "nodetype-has-split.csv.gz", {kind: kind == "paper" for kind in SIZES})
    text_gz(raw / "triplet-type-list.csv.gz", "".join(f"{','.join(relation)}\n" for relation in NUM_EDGES))
    for number, (relation, count) in enumerate(NUM_EDGES.items()):
        inside = raw / "relations" / "___".join(relation)
        ends = [rng.integers(0, SIZES[kind], count) for kind in (relation[0], relation[2])]
        csv_gz(inside / "edge.csv.gz", np.stack(ends, axis=1))
        csv_gz(inside / "edge_reltype.csv.gz", np.full((count, 1), number))
        csv_gz(inside / "num-edge-list.csv.gz", [[count]])
    csv_gz(raw / "node-feat" / "paper" / "node-feat.csv.gz", rng.integers(-8, 8, (SIZES["paper"], 4)) / 8)
    csv_gz(raw / "node-feat" / "paper" / "node_year.csv.gz", rng.integers(2010, 2020, (SIZES["paper"], 1)))
    csv_gz(raw / "node-label" / "paper" / "node-label.csv.gz", np.arange(SIZES["paper"])[:, None] % 6)
    for part, nodes in SPLIT.items():
        csv_gz(split / "paper" / f"{part}.csv.gz", np.reshape(nodes, (-1, 1)))
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_mag(tmp_path / "ogbn_mag")


@pytest.fixture
def load(compose_dataset, tmp_path):
    return lambda **overrides: load_dataset(compose_dataset("ogbn-mag", root=str(tmp_path), **overrides))


def papers_of_ogb(folder):
    """What ``ogb`` reads of the papers and their citations, in the form of PyTorch Geometric, and as ``from_ogb``."""
    (folder / "RELEASE_v2.txt").touch()
    dataset = ogb_dataset(folder, "ogbn-mag")
    graph, labels = dataset[0]
    given = Graph.from_ogb(dataset)
    assert graph["num_nodes_dict"] == SIZES and graph["edge_index_dict"].keys() == NUM_EDGES.keys()
    masks = {}
    for mask, part in (("train_mask", "train"), ("val_mask", "valid"), ("test_mask", "test")):
        chosen = np.zeros(SIZES["paper"], bool)
        chosen[dataset.get_idx_split()[part]["paper"]] = True
        masks[mask] = torch.from_numpy(chosen)
    return SimpleNamespace(
        edge_index=torch.from_numpy(graph["edge_index_dict"]["paper", "cites", "paper"]),
        x=torch.from_numpy(graph["node_feat_dict"]["paper"]),
        y=torch.tensor(labels["paper"][:, 0]),
        **masks,
    ), given


def test_papers_equal_ogb(folder, load):
    graph, (theirs, given) = load(), papers_of_ogb(folder)
    assert_is_pyg(graph, theirs)
    assert_is_pyg(given, theirs)
    assert given.remarks.items() >= {"other_relations": 63, "other_kinds": 23}.items()
    assert graph.num_classes == 6 and graph.name == "ogbn-mag"


def test_papers_equal_pyg(folder, load, tmp_path):
    raw = tmp_path / "pyg" / "mag" / "raw"
    shutil.copytree(folder / "raw", raw)
    shutil.copytree(folder / "split", raw / "split")  # PyTorch Geometric moves it there
    theirs = pyg_datasets().OGB_MAG(tmp_path / "pyg")[0]
    papers = theirs["paper"]
    papers.edge_index = theirs["paper", "cites", "paper"].edge_index
    assert_is_pyg(load(), papers)


def test_what_is_left_out_is_said(folder, load):
    remarks = load().remarks
    assert remarks["other_relations"] == 9 + 33 + 21 and remarks["other_kinds"] == 14 + 6 + 3
    (said,) = (sentence for sentence in sentences(remarks) if "relations" in sentence)
    assert said.startswith("63 edges of other relations, and 23 nodes of other kinds, are not read")


def test_files_and_names(folder, compose_dataset, tmp_path, load):
    names = [10**9 + node for node in range(SIZES["paper"])]
    write_names(folder, "paper_entidx2name.csv.gz", "ent idx,ent name", enumerate(names))
    write_names(folder, "author_entidx2name.csv.gz", "ent idx,ent name", enumerate("abc"))
    write_names(folder, "labelidx2venuename.csv.gz", "label idx,venue name", enumerate("uvwxyz"))
    graph = load(names=True)
    assert graph.node_names.tolist() == names and graph.class_names == tuple("uvwxyz")
    files = dataset_files(compose_dataset("ogbn-mag", root=str(tmp_path), names=True))
    inside = {file.relative_to(folder).as_posix() for file in files}
    assert len(inside) == len(files) == 15 and {file.is_file() for file in files} == {True}
    assert "raw/relations/author___writes___paper/edge.csv.gz" not in inside
    assert {"raw/relations/paper___cites___paper/edge.csv.gz", "split/time/paper/valid.csv.gz"} <= inside
    (folder / "mapping" / "paper_entidx2name.csv.gz").unlink()
    with pytest.raises(DataError, match="mapping has 0 files paper_entidx2name.csv.gz, .* set dataset.names=false"):
        load(names=True)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("triplet-type-list", "paper,cites\n", "has the row 'paper,cites', and takes source, relation and target"),
        ("triplet-type-list", "paper,../x,paper\n", "has the row 'paper,../x,paper', and takes"),
        ("triplet-type-list", "author,writes,paper\n", "0 relations lead from paper to paper, and a Graph is read of"),
        ("triplet-type-list", "paper,a,paper\npaper,b,paper\n", "2 relations lead from paper to paper"),
        ("triplet-type-list", "paper,quotes,paper\n", "no file .*paper___quotes___paper/num-edge-list.csv.gz"),
        ("triplet-type-list", "x" * (1 << 21), "cannot be read .*more than 1048576 bytes of text"),
        ("num-node-dict", "paper\n-1\n", "num-node-dict.csv.gz has the row '-1', and takes numbers of nodes"),
        ("num-node-dict", "author\n5\n", "nodetype-has-label.csv.gz: the kinds with labels are paper, and"),
        ("num-node-dict", "paper,author\n20\n", "num-node-dict.csv.gz has 2 rows, and takes a header of kinds and"),
        ("num-node-dict", "paper\n999999999999\n", "raw has 999999999999 nodes"),
        ("num-node-dict", "paper\n19\n", "edge.csv.gz: an arc has the node 19, and there are the nodes 0 to 18"),
        ("nodetype-has-label", "paper,author\nTrue,1\n", "has the row 'True,1', and takes True or False"),
        ("nodetype-has-label", "paper,author\nTrue,True\n", "the kinds with labels are paper, author, and a Graph"),
        ("nodetype-has-label", "paper\nFalse\n", "the kinds with labels are none"),
    ],
)
def test_wrong_contents(file, text, message, folder, load):
    text_gz(folder / "raw" / f"{file}.csv.gz", text)
    with pytest.raises(DataError, match=message) as error:
        load()
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"paper,cites,paper\n", gzip.compress(b"\xff,a,b"), zlib.compress(b"a,b,c")],
    ids=["empty", "not packed", "not UTF-8", "not gzip"],
)
def test_files_that_are_not_packed_texts(content, folder, load):
    (folder / "raw" / "triplet-type-list.csv.gz").write_bytes(content)
    with pytest.raises(DataError, match="triplet-type-list.csv.gz") as error:
        load()
    assert "\n" not in str(error.value)


def test_missing_files(folder, load):
    (folder / "split" / "time" / "paper" / "valid.csv.gz").unlink()
    with pytest.raises(DataError, match="no file .*split/time/paper/valid.csv.gz: there are the splits time; "):
        load()
    (folder / "raw" / "num-node-dict.csv.gz").unlink()
    with pytest.raises(DataError, match="no file .*raw/num-node-dict.csv.gz"):
        load()


# split_dict.pt, which ``ogb`` reads in the place of the three files.


FORMS = {
    "arrays": lambda nodes: {"paper": np.array(nodes)},
    "tensors": lambda nodes: {"paper": torch.tensor(nodes)},
    "int32": lambda nodes: {"paper": np.array(nodes, np.int32)},
    "with another kind": lambda nodes: {"author": np.array([1, 0]), "paper": np.array(nodes)},
}
OTHER = {"train": SPLIT["test"], "valid": SPLIT["train"], "test": SPLIT["valid"]}


def assert_has_split(graph, split):
    for mask, part in (("train_mask", "train"), ("val_mask", "valid"), ("test_mask", "test")):
        np.testing.assert_array_equal(np.flatnonzero(getattr(graph, mask)), np.sort(split[part]))


@pytest.mark.parametrize(("form", "protocol"), [*((form, 2) for form in FORMS), ("arrays", 4)])
def test_split_dict_of_several_kinds(form, protocol, folder, load, compose_dataset, tmp_path):
    file = folder / "split" / "time" / "split_dict.pt"
    torch.save({part: FORMS[form](nodes) for part, nodes in OTHER.items()}, file, pickle_protocol=protocol)
    theirs = torch.load(file, weights_only=False)  # a file of this test
    assert_has_split(load(), {part: np.asarray(theirs[part]["paper"]) for part in OTHER})
    files = dataset_files(compose_dataset("ogbn-mag", root=str(tmp_path)))
    assert files[-1] == file and not [path for path in files if path.name == "train.csv.gz"]


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({}, "has no array 'train/paper'"),
        ({part: np.array(nodes) for part, nodes in SPLIT.items()}, "has no array 'train/paper'"),
        (dict(train={"paper": np.array([20])}), "train has the node 20, and there are the nodes 0 to 19"),
        (dict(train={"paper": np.array([0.5])}), "the nodes of train are no list of integers"),
        (dict(train={"paper": np.array([[1]])}), "the nodes of train are no list of integers"),
        (dict(train={"paper": 3}), "the nodes of train are no list of integers"),
        (dict(train={"paper": np.array([17])}), "test has the node 17, which another part has too"),
        ([np.array([1])], "cannot be read .*it holds list where a dict belongs"),
    ],
)
def test_wrong_split_dicts(split, message, folder, load):
    if isinstance(split, dict) and isinstance(split.get("train"), dict):
        split = {part: {"paper": np.array(nodes)} for part, nodes in SPLIT.items()} | split
    torch.save(split, folder / "split" / "time" / "split_dict.pt")
    with pytest.raises(DataError, match=message) as error:
        load()
    assert "\n" not in str(error.value) and "split_dict.pt" in str(error.value)
