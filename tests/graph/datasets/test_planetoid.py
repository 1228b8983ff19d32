"""Planetoid files: written here opcode by opcode as Python 2 did, damaged, malicious, and as published."""

import os
import pickle

import numpy as np
import pytest
import scipy.sparse

from fullgnn.errors import DataError
from fullgnn.graph import load_dataset
from fullgnn.graph.datasets import download, planetoid
from fullgnn.graph.node_data import normalize_rows
from tests.damage import outcomes
from tests.graph.datasets.planetoid import ALLX, GRAPH, TEST_INDEX, TX, py2_array, py2_csr, py2_graph, py2_int


@pytest.fixture
def write(tmp_path):
    def build(**changes):
        one_hot = np.eye(2, dtype=np.int32)
        parts = {
            "x": py2_csr(ALLX[:2]),
            "y": py2_array(one_hot[[0, 1]]),
            "tx": py2_csr(TX),
            "ty": py2_array(one_hot[[1, 0, 1]]),
            "allx": py2_csr(ALLX),
            "ally": py2_array(one_hot[[0, 1, 0, 0]]),
            "graph": py2_graph(GRAPH),
            **changes,
        }
        for part, content in parts.items():
            (tmp_path / f"ind.tiny.{part}").write_bytes(b"\x80\x02" + content + b".")
        (tmp_path / "ind.tiny.test.index").write_text("".join(f"{index}\n" for index in TEST_INDEX))
        return tmp_path

    return build


@pytest.fixture
def load(compose_dataset):
    def build(root, **overrides):
        return load_dataset(compose_dataset("planetoid", root=str(root), **{"name": "tiny", **overrides}))

    return build


def test_raw_files(write, load):
    graph = load(write(), symmetrize=False, normalize_features=False)
    features = np.zeros((8, 3), np.float32)
    features[:4], features[7], features[4], features[5] = ALLX, TX[0], TX[1], TX[2]
    assert scipy.sparse.issparse(graph.features) and graph.features.dtype == np.float32
    np.testing.assert_array_equal(graph.features.toarray(), features)
    assert graph.labels.tolist() == [0, 1, 0, 0, 0, 1, -1, 1]
    assert np.flatnonzero(graph.train_mask).tolist() == [0, 1]
    assert np.flatnonzero(graph.val_mask).tolist() == [2, 3]
    assert np.flatnonzero(graph.test_mask).tolist() == [4, 5, 7]
    expected = np.zeros((8, 8))
    for source, target in [(0, 1), (0, 7), (1, 0), (2, 2), (3, 6), (5, 0), (5, 4), (6, 3)]:
        expected[target, source] = 1
    np.testing.assert_array_equal(graph.adjacency().toarray(), expected)
    assert graph.name == "tiny" and graph.num_classes == 2


def test_symmetrize_and_normalize_features(write, load):
    graph = load(write())
    assert graph.num_edges == 2 * 5 + 1
    np.testing.assert_allclose(graph.features.sum(axis=1), [1, 1, 0, 1, 1, 1, 0, 1])


def csr_with(data, indices, indptr):
    """``ALLX`` with entries in another order, or of one place in two parts."""
    csr = scipy.sparse.csr_matrix(ALLX)
    csr.data, csr.indices, csr.indptr = data, np.int32(indices), np.int32(indptr)
    return py2_csr(csr)


@pytest.mark.parametrize(
    "allx",
    [
        csr_with(np.float32([1, 1, 2, 2, 1, 1]), [2, 0, 1, 2, 0, 1], [0, 2, 3, 3, 6]),  # out of order
        csr_with(np.float64([1, 1, 0, 0.5, 1.5, 1, 2, 1]), [0, 2, 1, 1, 1, 0, 2, 1], [0, 3, 5, 5, 8]),  # twice, and 0
    ],
)
@pytest.mark.parametrize("normalize_features", [False, True])
def test_features_are_those_of_a_dense_matrix(allx, normalize_features, write, load):
    features = np.zeros((8, 3), np.float32)
    features[:4], features[7], features[4], features[5] = ALLX, TX[0], TX[1], TX[2]
    if normalize_features:
        features /= np.maximum(features.sum(axis=1, keepdims=True), 1)
    read = load(write(allx=allx), normalize_features=normalize_features).features
    np.testing.assert_array_equal(read.toarray(), features)
    assert read.nnz == np.count_nonzero(features) and read.has_canonical_format


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("part", ["ally", "graph", "allx"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_malicious_pickle_is_refused_and_not_run(part, protocol, write, load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write()
    (tmp_path / f"ind.tiny.{part}").write_bytes(pickle.dumps(Malicious(), protocol=protocol))
    with pytest.raises(DataError, match=f"ind.tiny.{part}: refused to load (posix|nt).mkdir"):
        load(tmp_path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "name",
    [
        "builtins\neval",
        "__builtin__\ngetattr",
        "numpy\nload",
        "scipy.sparse\nload_npz",
        "collections\nOrderedDict",
    ],
)
def test_every_other_name_is_refused(name, write, load):
    with pytest.raises(DataError, match="refused to load " + name.replace("\n", r"\.")):
        load(write(graph=f"c{name}\n".encode()))


def test_pickled_csr_is_checked(write, load):
    bad = py2_csr(ALLX).replace(py2_array(np.int32([0, 2, 1, 0, 1, 2])), py2_array(np.int32([0, 2, 99, 0, 1, 2])))
    assert bad != py2_csr(ALLX)
    with pytest.raises(DataError, match="ind.tiny.allx cannot be read"):
        load(write(allx=bad))


@pytest.mark.sample(4)
@pytest.mark.parametrize("part", ["y", "tx", "ty", "allx", "ally", "graph"])
@pytest.mark.parametrize("kept", [0.0, 0.1, 0.6, 0.98])
def test_truncated_file(part, kept, write, load):
    root = write()
    path = root / f"ind.tiny.{part}"
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(DataError, match=rf"ind.tiny.{part} cannot be read .*: write it again") as error:
        load(root)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            dict(ally=py2_graph(GRAPH)),
            r"ind.tiny.ally cannot be read \(it holds defaultdict where an ndarray belongs\)",
        ),
        (dict(ally=py2_array(np.eye(2, dtype=np.int32))), "disagree in size"),
        (dict(tx=py2_csr(TX[:, :2])), "disagree in size"),
        (dict(graph=py2_graph({0: [99]})), "node id 99 in edge_index is out of range"),
    ],
)
def test_files_that_do_not_fit_together(changes, message, write, load):
    with pytest.raises(DataError, match=message):
        load(write(**changes))


@pytest.mark.parametrize("text", ["", "4\nfour\n", "4\n4\n5\n", "-1\n4\n5\n"])
def test_damaged_test_index(text, write, load):
    root = write()
    (root / "ind.tiny.test.index").write_text(text)
    with pytest.raises(DataError, match="ind.tiny.test.index .*write it again"):
        load(root)


@pytest.mark.parametrize(
    ("content", "problem"), [(b"cut", "cannot be read"), (pickle.dumps([]), r"cannot be read \(it holds list where")]
)
def test_public_files_are_downloaded_again(content, problem, write, load):
    root = write()
    for path in list(root.iterdir()):
        path.rename(root / path.name.replace("tiny", "cora"))
    (root / "ind.cora.ally").write_bytes(content)
    with pytest.raises(DataError, match=f"ind.cora.ally {problem}.*: delete it and run again to download it afresh"):
        load(root, name="cora")


def test_absent_files(load, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="'tiny': set dataset.name to one of cora, citeseer, pubmed"):
        load(tmp_path)

    def offline(url, timeout):
        raise OSError("unreachable")

    monkeypatch.setattr(download.urllib.request, "urlopen", offline)
    with pytest.raises(DataError, match=r"ind.cora.tx, .*ind.cora.test.index from https://github.com") as error:
        (tmp_path / "ind.cora.y").write_bytes(b"")
        load(tmp_path, name="cora")
    assert "ind.cora.y," not in str(error.value) and str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    ("name", "nodes", "arcs", "entries", "features", "classes", "split", "unlabelled"),
    [
        ("cora", 2708, 10_556, 10_556, 1433, 7, (140, 500, 1000), 0),
        ("citeseer", 3327, 9228, 2 * 4552 + 124, 3703, 6, (120, 500, 1000), 15),
        ("pubmed", 19_717, 88_651, 2 * 44_324 + 3, 500, 3, (60, 500, 1000), 0),
    ],
)
def test_published_files(
    name, nodes, arcs, entries, features, classes, split, unlabelled, shared_data, compose_dataset
):
    node = compose_dataset(name, root=str(shared_data / "planetoid"))
    graph = load_dataset(node)
    assert (graph.num_nodes, graph.num_edges) == (nodes, entries)
    assert (graph.num_features, graph.num_classes) == (features, classes)
    assert tuple(int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)) == split
    assert (graph.labels == -1).sum() == unlabelled
    assert set(np.bincount(graph.labels[graph.train_mask])) == {20}
    as_read = load_dataset({**node, "normalize_features": False}).features.toarray()
    np.testing.assert_array_equal(graph.features.toarray(), normalize_rows(as_read))
    assert load_dataset({**node, "symmetrize": False}).num_edges == arcs
    assert (graph.features.sum(axis=1) < 1.001).all() and not graph.features[graph.labels == -1].nnz


def dtype_state(fields):
    """An array of 4 bytes whose dtype is given this state by the file."""
    dtype = b"cnumpy\ndtype\nU\x02V8K\x00K\x01\x87R(" + fields + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return array + b"(K\x01K\x01\x85" + dtype + b"\x89U\x08\x41\x41\x41\x41\x41\x41\x41\x41tb"


LABELS = np.eye(2, dtype=np.int64)[[0, 1, 0, 0]]
HOSTILE = {
    "objects, whose pointers are the bytes": py2_array(LABELS * 0x4141414141).replace(b"i8", b"O8"),
    "dates": py2_array(LABELS).replace(b"i8", b"M8"),
    "complex numbers": py2_array(LABELS).replace(b"i8", b"c8"),
    "void": py2_array(LABELS).replace(b"i8", b"V8"),
    "text": py2_array(LABELS).replace(b"i8", b"S8"),
    "objects of another width": py2_array(np.eye(2, dtype=np.int32)).replace(b"i4", b"O8"),
    "fields that are objects": dtype_state(b"K\x03U\x01|NU\x01a\x85}U\x01aN\x86sK\x08K\x01K\x3f"),
    "fields that are objects, it says not": dtype_state(
        b"K\x03U\x01|NU\x01a\x85}U\x01acnumpy\ndtype\nU\x02O8K\x00K\x01\x87RK\x00\x86sK\x08K\x01K\x00"
    ),
    "an array inside the dtype": dtype_state(b"K\x03U\x01|(U\x02O8K\x01\x85tNNK\x08K\x01K\x3f"),
    "no state of the dtype": b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R",
    "a state of a class": b"cnumpy\nndarray\n}b",
    "attributes of a class": b"cnumpy\nndarray\nN}U\x07__new__cnumpy\ndtype\ns\x86b",
    "a table of 64 GB": b"Nr\xff\xff\xff\x7f",
    "a nested key, whose hash ends the process": b"}" + b")" + b"\x85" * 300_000 + b"Ns",
    "a name of the extension registry": b"\x82\x01",
    "a persistent name": b"U\x01aQ",
    "more bytes than there are": b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
    "lists of lists, which stand for 10^9 numbers": b"]("
    + b"K\x01" * 10
    + b"eq\x00"
    + b"".join(b"](" + bytes([0x68, k]) * 10 + b"eq" + bytes([k + 1]) for k in range(8))
    + b"}K\x00h\x08s",
    "one number": py2_array(np.array(1.0)),
    "a class that is called": b"cnumpy\nndarray\n(J\xff\xff\xff\x7ft\x85R",
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("part", ["ally", "graph", "allx"])
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_pickle_is_one_line(part, what, write, tmp_path):
    """In a child, since the unpickler of Python ends with the process at some of them."""
    root = write(**{part: HOSTILE[what]})
    (outcome,) = outcomes(planetoid.load, [("tiny", str(root), False)])
    assert outcome.startswith(f"refused: {root}/ind.tiny.{part}") and "\n" not in outcome
    assert ": write it again" in outcome or "do not trust this file" in outcome


def test_a_list_that_is_taken_many_times_is_refused(write, load):
    long = b"](" + b"K\x00" * 5000 + b"e"
    shared = b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(K\x00" + long + b"q\x01"
    items = b"".join(py2_int(node) + b"h\x01" for node in range(1, 5000))
    with pytest.raises(DataError, match="it has 25000000 links in .* one list many times"):
        load(write(graph=shared + items + b"u"))


def test_lists_that_are_taken_again_or_appended_to_once_more(write, load):
    start = b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(" + py2_int(0) + b"]q\x01" + py2_int(1) + b"a"
    again = start + py2_int(1) + b"h\x01" + py2_int(2) + b"](K\x03e(K\x00K\x04eu"
    graph = load(write(graph=again), symmetrize=False)
    rows, columns = graph.adjacency().nonzero()
    assert set(zip(columns.tolist(), rows.tolist())) == {(0, 1), (1, 1), (2, 3), (2, 0), (2, 4)}


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_arrays_and_lists_of_every_protocol(protocol, write, load):
    root = write()
    graph = pickle.dumps(GRAPH, protocol=protocol)
    (root / "ind.tiny.graph").write_bytes(graph)
    if protocol > 2:
        for part, array in (("ally", np.eye(2, dtype=">i8")[[0, 1, 0, 0]]), ("y", np.eye(2, dtype=bool))):
            content = pickle.dumps(array, protocol=protocol)
            (root / f"ind.tiny.{part}").write_bytes(content)
    loaded, expected = load(root), load(write())
    np.testing.assert_array_equal(loaded.indices, expected.indices)
    np.testing.assert_array_equal(loaded.labels, expected.labels)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            dict(ally=py2_array(np.int32([[1, 1], [0, 1], [1, 0], [1, 0]]))),
            "ind.tiny.ally must have a row of 0 and",
        ),
        (dict(ty=py2_array(np.int32([[0, 2], [1, 0], [0, 1]]))), "ind.tiny.ty must have a row of 0 and at most one 1"),
        (dict(graph=py2_graph({0: [1]}) + py2_int(0) + b"]s"), "it lists the links of a node twice"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes, message, write, load):
    with pytest.raises(DataError, match=message):
        load(write(**changes))


def test_a_test_index_far_out_is_refused_before_it_fills_the_memory(write, load):
    root = write()
    (root / "ind.tiny.test.index").write_text("2000000000000\n4\n5\n")
    with pytest.raises(DataError, match="test.index has 2000000000001 nodes, and a Graph can have fewer than 2\\^31"):
        load(root)
    (root / "ind.tiny.test.index").write_text("2000000000\n4\n5\n")
    with pytest.raises(DataError, match=r"2000000001 nodes with 3 features, by its test.index, needs \d+ bytes"):
        load(root)
    (root / "ind.tiny.test.index").write_text("7\n4\n5.5\n")
    with pytest.raises(DataError, match="test.index cannot be read .line 3: '5.5' is no integer.: write it again"):
        load(root)
