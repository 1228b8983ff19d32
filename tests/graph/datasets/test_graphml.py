"""GraphML as networkx writes it, and files that other programs write or that are hostile."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph, dataset_lacks, load_dataset

BOMB = '<?xml version="1.0"?>\n<!DOCTYPE lolz [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>\n'
SMALL = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="kind" attr.type="string"><default>plain</default></key>
<key id="d1" for="edge" attr.name="cost" attr.type="double"><default>2.5</default></key>
<graph edgedefault="directed">
<node id="n1"/><node id="n0"><data key="d0">odd</data></node>
<edge source="n1" target="n0"/><edge source="n0" target="n0"><data key="d1">3</data></edge>
</graph></graphml>"""


@pytest.fixture
def load(tmp_path: Path, load_text: Callable) -> Callable[..., Graph]:
    """Loads a text, or what networkx writes of a graph."""

    def load_graph(g: Any, **overrides: object) -> Graph:
        if isinstance(g, networkx.Graph):
            networkx.write_graphml(g, tmp_path / "tiny.graphml")
            g = None
        return load_text("graphml", "tiny.graphml", g, **overrides)

    return load_graph


@pytest.fixture
def g() -> networkx.DiGraph:
    graph = networkx.DiGraph()
    splits = ("train", "Train", "val", "test", None)
    for node, (kind, split) in enumerate(zip("abacb", splits)):
        attributes = dict(kind=kind, f_0=node / 2, f_1=node, year=2000 + node % 2, score=node - 0.5, seen=node > 2)
        graph.add_node(f"v{node}", **attributes | ({} if split is None else {"split": split}))
    graph.add_weighted_edges_from([("v0", "v1", 2.0), ("v1", "v3", 0.5), ("v3", "v3", 1.0)], weight="cost")
    return graph


def test_attributes_are_chosen_by_name(load: Callable[..., Graph], g: networkx.DiGraph) -> None:
    graph = load(g, label="kind", features="f_*", weight="cost", split_attribute="split")
    np.testing.assert_array_equal(
        graph.adjacency().toarray(), networkx.to_numpy_array(g, weight="cost").T
    )  # v1 reads from v0
    assert graph.labels.tolist() == [0, 1, 0, 2, 1] and graph.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(graph.features, [[node / 2, node] for node in range(5)])
    masks = [np.flatnonzero(mask).tolist() for mask in (graph.train_mask, graph.val_mask, graph.test_mask)]
    assert masks == [[0, 1], [2], [3]]
    assert graph.node_names.tolist() == ["v0", "v1", "v2", "v3", "v4"] and graph.name == "tiny"


def test_without_names_there_is_the_structure_only(load: Callable[..., Graph], g: networkx.DiGraph) -> None:
    graph = load(g)
    assert graph.num_features == 0 and graph.weight is None and graph.num_edges == 3 and graph.labels.min() == -1
    names = load(networkx.relabel_nodes(g, {f"v{node}": node for node in range(5)})).node_names
    assert names is None  # 0, 1, 2, ... need no names


def test_labels_of_other_types(load: Callable[..., Graph], g: networkx.DiGraph) -> None:
    graph = load(g, label="year")
    assert graph.labels.tolist() == [0, 1, 0, 1, 0] and graph.class_names == ("2000", "2001")
    assert load(g, label="seen").class_names == ("False", "True")
    del g.nodes["v2"]["score"], g.nodes["v3"]["kind"]
    np.testing.assert_array_equal(load(g, label="score").labels, [-0.5, 0.5, np.nan, 2.5, 3.5])
    assert load(g, label="kind").labels.tolist() == [0, 1, 0, -1, 1]


def test_features_by_list_and_order(load: Callable[..., Graph], g: networkx.DiGraph) -> None:
    for features in ("f_1, f_0", ["f_1", "f_?"]):
        np.testing.assert_array_equal(load(g, features=features).features[3], [3, 1.5])


def test_an_undirected_graph_has_both_directions(load: Callable[..., Graph], g: networkx.DiGraph) -> None:
    graph = load(g.to_undirected(), weight="cost")
    np.testing.assert_array_equal(
        graph.adjacency().toarray(), networkx.to_numpy_array(g.to_undirected(), weight="cost")
    )


def test_defaults_that_the_file_declares(load: Callable[..., Graph]) -> None:
    graph = load(SMALL, label="kind", weight="cost")
    assert graph.class_names == ("odd", "plain") and graph.labels.tolist() == [1, 0]
    assert graph.node_names.tolist() == ["n1", "n0"]
    np.testing.assert_array_equal(graph.adjacency().toarray(), [[0, 0], [2.5, 3]])
    parallel = SMALL.replace("</graph>", '<edge source="n1" target="n0" id="e9"/></graph>')
    assert load(parallel).remarks == {"merged_arcs": 1}
    np.testing.assert_array_equal(load(parallel, weight="cost").adjacency().toarray(), [[0, 0], [5, 3]])


@pytest.mark.filterwarnings("error")
def test_an_attribute_without_a_type_is_a_text(load: Callable[..., Graph]) -> None:
    assert load(SMALL.replace(' attr.type="string"', ""), label="kind").class_names == ("odd", "plain")


def test_what_is_missing_before_it_is_loaded(tmp_path: Path, compose_dataset: Callable) -> None:
    (tmp_path / "a.graphml.gz").write_bytes(gzip.compress(SMALL.encode()))
    node = compose_dataset("graphml", path=str(tmp_path / "a.graphml.gz"))
    assert dataset_lacks(node) == ["labels", "train_mask"] and load_dataset(node).name == "a"
    assert dataset_lacks(node | {"label": "kind"}) == ["train_mask"]


@pytest.mark.parametrize(
    "text",
    [BOMB + SMALL[39:], (BOMB + SMALL[39:]).encode("utf-16"), "<!DOCTYPE x SYSTEM 'file:///etc/passwd'><graphml/>"],
)
def test_a_document_type_is_refused(load: Callable[..., Graph], text: str | bytes) -> None:
    with pytest.raises(DataError, match="tiny.graphml has a document type .*: delete it"):
        load(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tiny.graphml is no XML"),
        ("a,b\n", "tiny.graphml is no XML"),
        (SMALL.replace('"directed"', '"Directed"'), "tiny.graphml has a graph without edgedefault: write directed or"),
        (SMALL.replace(' edgedefault="directed"', ""), "tiny.graphml has a graph without edgedefault"),
        (SMALL[:-9], "tiny.graphml cannot be read"),
        ("<graphml/>", "tiny.graphml cannot be read"),
        (SMALL.replace(">3<", ">x<"), "tiny.graphml cannot be read"),
        (SMALL.replace('key="d0">', 'key="d9">'), "tiny.graphml cannot be read"),
        (SMALL.replace("<node", "<hyperedge"), "tiny.graphml"),
        (SMALL.replace("<node", "<key").replace("<edge", "<key"), "tiny.graphml"),
    ],
)
def test_damage_is_one_line(load: Callable[..., Graph], text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (dict(label="colour"), "dataset.label=colour: no node of .* has this attribute, only kind, f_0, f_1"),
        (dict(features="g_*"), r"dataset.features=g_\*: no node of .*tiny.graphml has this attribute"),
        (dict(split_attribute="part"), "dataset.split_attribute=part: no node"),
        (
            dict(features="kind"),
            "tiny.graphml: node v0 has the text 'a' in the attribute kind, and features are numbers",
        ),
        (dict(features="split"), "node v0 has the text 'train' in the attribute split"),
        (dict(features="late"), "tiny.graphml: node v0 lacks the attribute late, and features are numbers: set it on"),
        (dict(split_attribute="kind"), "tiny.graphml has the part 'a' of a split: name the parts train, val and test"),
        (dict(weight="price"), "the edge of v0 and v1 has no attribute price, and weights are numbers"),
        (dict(weight="note"), "the edge of v0 and v1 has the text 'x' in the attribute note"),
        (dict(weight="odd"), "tiny.graphml: .*NaN or Inf"),
        (dict(features="nan"), "tiny.graphml: .*NaN or Inf"),
    ],
)
def test_mistakes_in_the_keys(load: Callable[..., Graph], g: networkx.DiGraph, keys: dict, message: str) -> None:
    g.nodes["v4"]["late"] = 1.0
    networkx.set_node_attributes(g, float("nan"), "nan")
    networkx.set_edge_attributes(g, "x", "note")
    networkx.set_edge_attributes(g, float("inf"), "odd")
    with pytest.raises((ConfigError, DataError), match=message) as caught:
        load(g, **keys)
    assert "\n" not in str(caught.value)
