"""MUSAE: the publishers' files written here, and the npz of PyTorch Geometric compared with its own reader."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph, check_dataset, dataset_lacks, load_dataset

FILES = {
    "musae_facebook_edges.csv": "id_1,id_2\n0,1\n3,0\n2,2\n",
    "musae_facebook_target.csv": "id,facebook_id,page_name,page_type\n"
    '0,145647315578475,"The Voice of China, 中国好声音",tvshow\n'
    '2,191483281412,"U.S. ""Consulate""\nMumbai",government\n'
    "1,144761358898518,ESTACIONAMENTO,tvshow\n"
    "3,568700043198473,,company\n",
    "musae_facebook_features.json": json.dumps({"0": [2, 0, 2], "1": [], "3": [1]}),
}


@pytest.fixture
def load(tmp_path: Path, compose_dataset: Callable) -> Callable[..., Graph]:
    """Loads the files above, with some of them changed, or missing where the text is None."""

    def load_changed(changed: dict[str, str | None] | None = None, **overrides: object) -> Graph:
        for name, text in (FILES | (changed or {})).items():
            if text is not None:
                (tmp_path / name).write_text(text, errors="surrogateescape")
        return load_dataset(compose_dataset("musae", path=str(tmp_path), **overrides))

    return load_changed


def test_the_layout_of_facebook(load: Callable[..., Graph], tmp_path: Path, compose_dataset: Callable) -> None:
    graph = load(symmetrize=False)
    assert graph.class_names == ("company", "government", "tvshow") and graph.labels.tolist() == [2, 2, 1, 0]
    np.testing.assert_array_equal(graph.features.toarray(), [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]])
    readers, read = graph.adjacency().nonzero()
    assert sorted(zip(read.tolist(), readers.tolist())) == [(0, 1), (2, 2), (3, 0)]
    assert graph.node_names is None and graph.name == "facebook" and graph.remarks == {"featureless_nodes": 1}
    assert load().num_edges == 5
    assert dataset_lacks(compose_dataset("musae", path=str(tmp_path))) == ["train_mask"]


def test_labels_by_the_name_of_their_column(load: Callable[..., Graph]) -> None:
    target = "id,days,mature,views,new_id\n9,5,True,70,1\n8,6,False,80,0\n7,7,True,90.5,3\n6,8,True,60,2\n"
    changed = {"musae_facebook_target.csv": target}
    with pytest.raises(
        ConfigError, match="which column of .* is the label.*: set|Set dataset.label to one of id, days"
    ):
        load(changed)
    graph = load(changed, label="mature")
    assert graph.labels.tolist() == [0, 1, 1, 1] and graph.class_names == ("False", "True")
    graph = load(changed, label="views", values=True)
    assert graph.labels.tolist() == [80, 70, 60, 90.5] and graph.labels.dtype == np.float64
    many = "id,target\n" + "".join(f"{node},{7 * node}\n" for node in range(200))
    with pytest.raises(ConfigError, match="has 200 different labels of 200 nodes: set dataset.values=true"):
        load({"musae_facebook_target.csv": many})
    with pytest.raises(
        DataError, match="has no column 'kind', only id, days, mature, views, new_id: set dataset.label"
    ):
        load(changed, label="kind")


def test_classes_that_count_from_0_have_no_names(load: Callable[..., Graph]) -> None:
    graph = load({"musae_facebook_target.csv": "id,name,ml_target\n0,a,1\n1,b,0\n2,c,1\n3,d,1\n"})
    assert graph.labels.tolist() == [1, 0, 1, 1] and graph.class_names is None
    graph = load({"musae_facebook_target.csv": "id,target\n0,\n1,1\n2,0\n3,1\n"})
    assert graph.labels.tolist() == [-1, 1, 0, 1] and graph.class_names is None
    graph = load({"musae_facebook_target.csv": "id,target\n0,\n1,1.5\n2,0\n3,1\n"}, values=True)
    np.testing.assert_array_equal(graph.labels, [np.nan, 1.5, 0, 1])
    graph = load({"musae_facebook_target.csv": "id,target\n0,10\n1,9\n2,9\n3,10\n"})
    assert graph.labels.tolist() == [1, 0, 0, 1] and graph.class_names == ("9", "10")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("edges.csv", "id_1,id_2\n0,1\n0,7\n", "joins 0 and 7 in row 2, and one of them is not in the file of targets"),
        ("edges.csv", "id_1,id_2\n0,1,2\n", "cannot be read"),
        ("edges.csv", "id_1,id_2\n", "has no row"),
        ("edges.csv", "", "cannot be read"),
        ("edges.csv", "id_1,id_\udcff\n0,1\n", "cannot be read"),
        ("edges.csv", "id_1\n0\n", "has the columns id_1: it must have two"),
        ("edges.csv", "id,id\n0,1\n", "two columns of the same name in id, id"),
        ("target.csv", "id,page_type\n0,a\n0,b\n", "has the id '0' twice, in row 2"),
        ("target.csv", "node,page_type\n0,a\n", "has no column 'id', only node, page_type"),
        ("target.csv", "id,page_type\n0\n", "cannot be read"),
        ("features.json", "{", "cannot be read"),
        ("features.json", "[" * 99_999, "cannot be read"),
        ("features.json", '{"0": [1], "0": [2]}', "a node is listed twice"),
        ("features.json", '{"0": 1}', "holds no list for each node"),
        ("features.json", '{"0": [true]}', "holds other things than numbers of features"),
        ("features.json", '{"0": [1.5]}', "holds other things than numbers of features"),
        ("features.json", '{"0": [-1]}', "holds other things than numbers of features"),
        ("features.json", '{"0": [9999999999]}', "holds other things than numbers of features"),
        ("features.json", '{"7": [1]}', "has features of '7', which is not in the file of targets"),
        ("features.json", '{"0": [2147483646]}', "holds other things than numbers of features below 134217728"),
    ],
)
def test_errors_name_the_file(load: Callable[..., Graph], name: str, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load({f"musae_facebook_{name}": text})
    assert "\n" not in str(caught.value) and f"musae_facebook_{name}" in str(caught.value)


def test_a_missing_file_is_named(load: Callable[..., Graph]) -> None:
    with pytest.raises(DataError, match=r"no file .*musae_facebook_features\.json: set dataset\.path"):
        load({"musae_facebook_features.json": None})


def test_the_npz_is_read_as_by_pytorch_geometric(tmp_path: Path, compose_dataset: Callable) -> None:
    datasets = pytest.importorskip("torch_geometric.datasets")
    rng = np.random.default_rng(0)
    arrays = dict(
        edges=rng.integers(0, 20, (70, 2)), features=rng.standard_normal((20, 5)), target=rng.integers(0, 4, 20)
    )
    (tmp_path / "raw").mkdir()
    np.savez(tmp_path / "raw" / "facebook.npz", **arrays)
    expected = Graph.from_pyg(datasets.FacebookPagePage(str(tmp_path))[0])
    node = compose_dataset("musae", path=str(tmp_path / "raw"), symmetrize=False)
    graph = load_dataset(node)
    for name in ("indptr", "indices", "labels"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(expected, name))
    np.testing.assert_array_equal(graph.features.astype(np.float32), expected.features)
    with pytest.raises(ConfigError, match="dataset.label=page_type would do nothing, since facebook.npz has one array"):
        check_dataset(node | {"label": "page_type"})
    np.savez(tmp_path / "raw" / "facebook.npz", **(arrays | {"target": np.array([None] * 20)}))
    with pytest.raises(DataError, match="facebook.npz"):
        load_dataset(node)
    np.savez(tmp_path / "raw" / "facebook.npz", edges=arrays["edges"])
    with pytest.raises(DataError, match="facebook.npz has no array 'features', only edges"):
        load_dataset(node)


def test_both_layouts_are_the_same_graph(load: Callable[..., Graph], tmp_path: Path, compose_dataset: Callable) -> None:
    graph = load(symmetrize=False)
    pairs = np.array([[0, 1], [3, 0], [2, 2]])
    np.savez(tmp_path / "facebook.npz", edges=pairs, features=graph.features.toarray(), target=graph.labels)
    other = load_dataset(compose_dataset("musae", path=str(tmp_path), symmetrize=False))
    for name in ("indptr", "indices", "labels"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(other, name))
    np.testing.assert_array_equal(graph.features.toarray(), other.features)
