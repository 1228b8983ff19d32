"""The gnn-benchmark npz layout: written here array by array, saved by Graph.save, and as published."""

import numpy as np
import pytest
import scipy.sparse

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph, load_dataset
from fullgnn.graph.datasets import download

ARCS = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], np.float32)  # arcs 0 -> 1 and 1 -> 2
FEATURES = np.array([[2, 0], [1, 3], [0, 0]], np.float32)


def layout(prefix, dense):
    csr = scipy.sparse.csr_matrix(dense)
    return {f"{prefix}_{part}": np.asarray(getattr(csr, part)) for part in ("data", "indices", "indptr", "shape")}


@pytest.fixture
def write(tmp_path):
    """Writes a file in the published layout, with an object array that must never be unpickled."""

    def build(file="tiny.npz", drop=(), **changes):
        arrays = dict(
            **layout("adj", ARCS),
            **layout("attr", FEATURES),
            labels=np.array([0, 1, 1], np.int8),
            class_names=np.array(["a", None], dtype=object),
        )
        arrays = {key: value for key, value in {**arrays, **changes}.items() if key not in drop}
        np.savez(tmp_path / file, **arrays)
        return tmp_path / file

    return build


@pytest.fixture
def load(compose_dataset):
    return lambda **overrides: load_dataset(compose_dataset("npz", **overrides))


def test_published_layout(write, load):
    graph = load(path=str(write()))
    np.testing.assert_array_equal(graph.adjacency().toarray(), ARCS.T)  # node 1 reads from 0, 2 from 1
    np.testing.assert_array_equal(graph.features.toarray(), FEATURES)
    assert graph.labels.tolist() == [0, 1, 1] and graph.num_classes == 2
    assert graph.name == "tiny" and graph.weight is None
    split = np.stack([graph.train_mask, graph.val_mask, graph.test_mask])
    assert (split.sum(axis=0) == 1).all() and graph.train_mask.sum() == 2
    assert load(path=str(write()), symmetrize=True).num_edges == 4


def test_found_by_name_in_root(write, load, tmp_path):
    write()
    assert load(name="tiny", root=str(tmp_path)).name == "tiny"
    assert load(name="other", path=str(tmp_path / "tiny.npz")).name == "other"


def test_dense_features_and_row_normalisation(write, load):
    dropped = [f"attr_{part}" for part in ("data", "indices", "indptr", "shape")]
    file = write(drop=dropped, attr_matrix=FEATURES.astype(np.float64))
    assert load(path=str(file)).features.dtype == np.float64
    normalised = load(path=str(file), normalize_features=True).features
    np.testing.assert_array_equal(normalised, [[1, 0], [0.25, 0.75], [0, 0]])


def test_row_normalisation_of_integers_and_of_nonsense(write, load):
    dropped = [f"attr_{part}" for part in ("data", "indices", "indptr", "shape")]
    counts = load(path=str(write(drop=dropped, attr_matrix=FEATURES.astype(int))), normalize_features=True)
    np.testing.assert_array_equal(counts.features, np.float32([[1, 0], [0.25, 0.75], [0, 0]]))
    assert counts.features.dtype == np.float32
    with pytest.raises(DataError, match=r"features has shape \(3,\)"):
        load(path=str(write(drop=dropped, attr_matrix=np.ones(3))), normalize_features=True)


def test_split_is_seeded_and_avoids_unlabelled_nodes(load, tmp_path, fields):
    graph = Graph.from_edge_index([[0], [1]], **fields(200))
    arrays = dict(layout("adj", graph.adjacency()), attr_matrix=graph.features)
    arrays["labels"] = np.where(np.arange(200) < 20, -1, graph.labels)
    np.savez(tmp_path / "g.npz", **arrays)
    file = str(tmp_path / "g.npz")
    first, again, other = load(path=file), load(path=file), load(path=file, seed=1)
    assert [int(m.sum()) for m in (first.train_mask, first.val_mask, first.test_mask)] == [108, 36, 36]
    np.testing.assert_array_equal(first.train_mask, again.train_mask)
    assert not np.array_equal(first.train_mask, other.train_mask)
    assert not first.train_mask[:20].any()


def test_masks_in_the_file_are_the_split(write, load):
    graph = load(path=str(write(train_mask=[True, False, False], test_mask=[False, False, True])))
    assert graph.train_mask.tolist() == [True, False, False] and not graph.val_mask.any()
    assert graph.test_mask.tolist() == [False, False, True]


@pytest.mark.parametrize("weight_dtype", [None, np.float32, np.float64])
@pytest.mark.parametrize("feature_dtype", [np.float32, np.float64])
def test_save_and_load_give_the_identical_graph(weight_dtype, feature_dtype, fields, load, tmp_path):
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((30, 30)) * (rng.random((30, 30)) < 0.2)
    dense = (dense != 0) if weight_dtype is None else dense.astype(weight_dtype)
    changes = dict(features=rng.standard_normal((30, 4)).astype(feature_dtype), num_classes=5, name="kept")
    graph = Graph.from_scipy(scipy.sparse.csr_array(dense), **fields(30, **changes))
    graph.save(tmp_path / "deep" / "saved")  # no suffix: the file has exactly this name
    loaded = load(path=str(tmp_path / "deep" / "saved"))
    for name in ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask"):
        ours, theirs = getattr(graph, name), getattr(loaded, name)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    assert (loaded.num_classes, loaded.name) == (5, "kept")
    if weight_dtype is None:
        assert loaded.weight is None
    else:
        assert loaded.weight.dtype == weight_dtype
        np.testing.assert_array_equal(loaded.weight, graph.weight)


@pytest.mark.parametrize(
    ("drop", "changes", "message"),
    [
        (["adj_indptr"], {}, "has no array 'adj_indptr'"),
        ([], dict(adj_indices=np.array([1, 9])), "adj_.* is no CSR matrix"),
        ([], dict(adj_shape=np.array([3])), "adj_.* is no CSR matrix"),
        ([], dict(adj_data=np.array([1.0, 2.0, 3.0])), "adj_.* is no CSR matrix"),
        ([], dict(labels=np.array([0, 1])), "labels has shape"),
        ([], dict(labels=np.array([0, 1, None], dtype=object)), "array 'labels' holds Python objects, .*dtype=float"),
        ([], dict(labels=np.array(["a", "b", "b"])), "labels hold text, and .*pass numpy.unique"),
        ([], dict(num_classes=np.array([2, 2])), "tiny.npz: array 'num_classes' .* takes one integer"),
        ([], dict(train_mask=np.ones((3, 10), bool)), "train_mask has 10 columns, .* as in dataset.split=0"),
        ([], layout("attr", FEATURES[:2]), "features has shape"),
    ],
)
def test_wrong_contents(drop, changes, message, write, load):
    with pytest.raises(DataError, match=message) as error:
        load(path=str(write(drop=drop, **changes)))
    assert "tiny.npz" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("kept", [0, 3, 100, 0.5, 0.99])
def test_truncated_file(kept, write, load, tmp_path):
    content = write().read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: kept if kept >= 1 else int(kept * len(content))])
    with pytest.raises(DataError, match="cut.npz .*write it again, for example with Graph.save"):
        load(path=str(tmp_path / "cut.npz"))


def test_flipped_bytes_inside_an_array(load, tmp_path, fields):
    Graph.from_edge_index([[0], [1]], **fields(500)).save(tmp_path / "g.npz")
    content = bytearray((tmp_path / "g.npz").read_bytes())
    start = content.index(b"attr_matrix.npy") + 400
    content[start : start + 8] = b"\xff" * 8
    (tmp_path / "g.npz").write_bytes(content)
    with pytest.raises(DataError, match="array 'attr_matrix' cannot be read .*CRC.*: write it again"):
        load(path=str(tmp_path / "g.npz"))


def test_not_an_npz(load, tmp_path):
    np.save(tmp_path / "single.npy", np.ones(3))
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(DataError, match="a single numpy array"):
        load(path=str(tmp_path / "single.npy"))
    with pytest.raises(DataError, match="no npz file"):
        load(path=str(tmp_path / "text.npz"))


def test_only_a_public_file_in_the_root_is_downloaded_again(write, load, tmp_path):
    """A file of the user's own may have the name of a public one."""
    content = write().read_bytes()
    for name in ("cora.npz", "mine.npz"):
        (tmp_path / name).write_bytes(content[:100])
    root = str(tmp_path)
    with pytest.raises(DataError, match="cora.npz is no npz file.*: delete it and run again to download it afresh"):
        load(name="cora", root=root)
    for own in (
        dict(path=f"{root}/cora.npz"),
        dict(path=f"{root}/cora.npz", name="cora"),
        dict(name="mine", root=root),
    ):
        with pytest.raises(DataError, match="is no npz file.*: write it again, for example with Graph.save"):
            load(**own)


def test_no_file_named(load, tmp_path):
    with pytest.raises(ConfigError, match="set dataset.path=FILE.npz"):
        load()
    with pytest.raises(DataError, match="no file .*absent.npz: set dataset.path"):
        load(path=str(tmp_path / "absent.npz"))
    with pytest.raises(DataError, match="'absent' is not public: .*amazon_electronics_computers"):
        load(name="absent", root=str(tmp_path))


def test_public_file_is_wanted_from_the_network(load, tmp_path, monkeypatch):
    def offline(url, timeout):
        raise OSError(f"no route to {url}")

    monkeypatch.setattr(download.urllib.request, "urlopen", offline)
    with pytest.raises(DataError, match="gnn-benchmark/raw/master/data/npz/cora.npz"):
        load(name="cora", root=str(tmp_path))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "nodes", "arcs", "edges", "loops", "features", "classes"),
    [
        ("cora", 2708, 5429, 5278, 0, 1433, 7),
        ("citeseer", 3312, 4715, 4536, 124, 3703, 6),
        ("amazon_electronics_computers", 13_752, 287_209, 245_861, 0, 767, 10),
        ("ms_academic_phy", 34_493, 495_924, 247_962, 0, 8415, 5),
    ],
)
def test_published_files(name, nodes, arcs, edges, loops, features, classes, shared_data, load):
    graph = load(name=name, root=str(shared_data / "gnn-benchmark"))
    assert (graph.num_nodes, graph.num_edges) == (nodes, arcs)
    assert (graph.num_features, graph.num_classes) == (features, classes)
    assert int(graph.adjacency(bool).diagonal().sum()) == loops and graph.weight is None
    assert graph.symmetrized().num_edges == 2 * edges + loops
    assert graph.train_mask.sum() == round(0.6 * nodes)


@pytest.mark.parametrize(
    ("name", "unsorted", "symmetric", "isolated", "object_names"),
    [
        ("cora", True, False, 0, False),
        ("citeseer", True, False, 48, False),
        ("amazon_electronics_computers", True, False, 281, False),
        ("ms_academic_phy", False, True, 0, True),
    ],
)
def test_traps_of_the_published_files(name, unsorted, symmetric, isolated, object_names, shared_data, load):
    """Unsorted indices, isolated nodes, and names that would have to be unpickled."""
    with np.load(shared_data / "gnn-benchmark" / f"{name}.npz") as arrays:
        indices, indptr = arrays["adj_indices"], arrays["adj_indptr"]
        falls = np.diff(indices) < 0
        falls[indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < len(indices))] - 1] = False
        assert falls.any() == unsorted
        if object_names:
            with pytest.raises(ValueError, match="allow_pickle"):
                arrays["class_names"]
        labels = arrays["labels"]
        by_source = scipy.sparse.csr_array((arrays["adj_data"], indices, indptr), shape=(len(labels),) * 2)
    graph = load(name=name, root=str(shared_data / "gnn-benchmark"))
    np.testing.assert_array_equal(graph.labels, labels)
    assert (graph.adjacency().T != by_source).nnz == 0
    assert graph.is_symmetric == symmetric and graph.remarks["random_split_nodes"] == len(labels)
    assert graph.remarks.keys().isdisjoint({"merged_arcs", "zero_arcs", "unequal_weights"})
    target, source = graph.adjacency(bool).nonzero()
    ends = np.concatenate([target[target != source], source[target != source]])
    assert (np.bincount(ends, minlength=len(labels)) == 0).sum() == isolated  # without a self-loop


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(adj_indices=np.array([0.0, 1.7])), "'adj_indices' has dtype float64, and takes integers"),
        (dict(adj_indptr=np.array([0.0, 1, 2, np.nan])), "'adj_indptr' has dtype float64, and takes integers"),
        (dict(adj_shape=np.array([3.0, 3.0])), "'adj_shape' has dtype float64, and takes integers"),
        (dict(attr_indices=np.array([0.5, 0, 1])), "'attr_indices' has dtype float64, and takes integers"),
        (dict(adj_shape=np.array([True, True])), "'adj_shape' has dtype bool, and takes integers"),
        (dict(num_classes=np.array(2.7)), "'num_classes' has dtype float64, and takes integers"),
        (dict(num_users=np.array(1.5)), "'num_users' has dtype float64, and takes integers"),
        (dict(test_links=np.array([[0.0], [2.2]])), "'test_links' has dtype float64, and takes integers"),
        (dict(train_mask=np.array([1.0, np.nan, 0])), "train_mask holds values other than 0 and 1"),
        (dict(adj_shape=np.array([10**12, 10**12])), "indptr has 4 numbers, and 1000000000000 rows need"),
        (
            dict(attr_shape=np.array([3, 10**12])),
            "features has 1000000000000 columns: number the columns from 0 on",
        ),
        (dict(adj_indices=np.array([0, -1])), "indices have -1, and there are 3 columns"),
        (dict(adj_indptr=np.array([0, 2, 1, 2])), "indptr must start at 0 and never decrease"),
        (dict(adj_indptr=np.array([0, 1, 2, 2**62])), "indptr ends at"),
        (dict(name=np.array(["a", "b"])), "'name' must be a text"),
    ],
)
def test_numbers_that_count_are_integers_and_fit(changes, message, write, load):
    with pytest.raises(DataError, match=message) as error:
        load(path=str(write(**changes)))
    assert "tiny.npz" in str(error.value) and "\n" not in str(error.value)


def test_text_of_a_file_is_cut_and_its_path_is_not(write, load, tmp_path):
    folder = tmp_path / ("long" * 60)
    folder.mkdir()
    file = write(drop=["adj_indptr"], **{"x" * 3000: np.ones(2)}).rename(folder / "tiny.npz")
    with pytest.raises(DataError) as error:
        load(path=str(file))
    assert str(file) in str(error.value) and "x" * 201 not in str(error.value) and "..." in str(error.value)
