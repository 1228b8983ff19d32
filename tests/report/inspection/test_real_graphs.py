"""What the notes on the real graphs tell of their traps: an inspection finds it, and its text names it.

Each graph is read and inspected once. What ranks would hold is left out, which takes longest, and which the graphs of
``test_ranks.py`` have.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fullgnn.config.compose import compose, load_config
from fullgnn.graph import load_dataset
from fullgnn.report.inspection import Inspection, inspection

Look = Callable[..., tuple[Inspection, str]]


@pytest.fixture
def look(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Inspects a dataset, whose keys may have a ``{}`` for the folder of the real data: what is found, and its text
    without line ends."""
    monkeypatch.setattr(inspection, "layouts_of", lambda graph, cfg: ((), "not asked for"))

    def inspected(choice: str, **keys: object) -> tuple[Inspection, str]:
        given = [f"dataset.{key}={value}".format(shared_data) for key, value in keys.items()]
        cfg = load_config(compose(f"dataset={choice}", "runtime.device=cpu", *given))
        facts = inspection.look_at(load_dataset(cfg.dataset), cfg)
        return facts, " ".join(str(facts).split())

    return inspected


HOMOPHILY = {"cora": (0.81, 0.77), "citeseer": (0.74, 0.67), "pubmed": (0.80, 0.69)}
"""Edge and adjusted homophily, as Platonov et al. (2023), "Characterizing Graph Datasets", give them."""


@pytest.mark.parametrize(
    ("name", "split", "repeated", "loops", "alone"),
    [
        ("cora", (140, 500, 1000), 10_858 - 10_556, 0, 0),
        ("citeseer", (120, 500, 1000), 9_464 - 9_228, 124, 48),
        ("pubmed", (60, 500, 1000), 88_676 - 88_651, 3, 0),
    ],
)
def test_planetoid(name: str, split: tuple[int, ...], repeated: int, loops: int, alone: int, look: Look) -> None:
    """Rows of ``tx`` in another order than the unsorted ``test.index`` would lower the homophily."""
    facts, text = look(name, root="{}/planetoid")
    structure, labels = facts.structure, facts.labels
    assert (round(labels.homophily.edge, 2), round(labels.homophily.adjusted, 2)) == HOMOPHILY[name]
    assert facts.remarks == {"merged_arcs": repeated} and f"{repeated} arcs repeat another one" in text
    assert tuple(labels.split[part] for part in ("train", "val", "test")) == split
    assert set(labels.classes["train"]) == {20} and structure.symmetric and structure.isolated_nodes == 0
    assert (structure.self_loops, structure.only_self_loop) == (loops, alone)
    assert (f"{loops} nodes have a stored edge to themselves" in text) == (loops > 0)
    assert (f"{alone} nodes have no edge but one to themselves" in text) == (alone > 0)
    blank = 15 if name == "citeseer" else 0  # the ids that its test.index skips
    assert facts.num_nodes - labels.num_labelled == facts.features.empty_unlabelled == facts.features.empty_rows
    assert facts.features.empty_rows == blank
    named = "15 nodes have features that are all 0, and 15 of them have no label either"
    assert (named in text) == (name == "citeseer")


def test_cora_of_linqs_has_arcs_ids_and_class_names(look: Look) -> None:
    facts, text = look("linqs", path="{}/linqs")
    assert facts.structure.one_way_arcs == 2 * 5_278 - 5_429
    assert "the graph is directed, since 5,127 of them have no entry of the other direction" in text
    assert (facts.structure.in_degrees.max, facts.structure.out_degrees.max) == (166, 5)  # a paper reads who cites it
    assert "names of their own, which are integers from 35 to 1155073, in no order and with gaps: 31336" in text
    assert "| 6 Theory" in text and facts.labels.class_names[0] == "Case_Based"
    assert facts.labels.split["none"] == 2708 and "No node is in the training part of the split" in text


@pytest.mark.parametrize(
    ("name", "arcs", "edges", "loops", "isolated", "density"),
    [
        ("cora", 5_429, 5_278, 0, 0, 0.0127),
        ("citeseer", 4_715, 4_536, 124, 0, 0.0086),
        ("amazon_electronics_computers", 287_209, 245_861, 0, 281, 0.348),
        ("ms_academic_phy", 495_924, 247_962, 0, 0, 0.0039),
    ],
)
def test_gnn_benchmark(name: str, arcs: int, edges: int, loops: int, isolated: int, density: float, look: Look) -> None:
    facts, text = look("npz", path=f"{{}}/gnn-benchmark/{name}.npz")
    structure, one_way = facts.structure, 2 * edges - (arcs - loops)
    assert (facts.num_edges, structure.self_loops, structure.isolated_nodes) == (arcs, loops, isolated)
    assert structure.one_way_arcs == one_way and structure.symmetric == (name == "ms_academic_phy")
    assert f"directed, since {one_way:,} of them have no entry" in text or structure.symmetric
    assert (f"{loops} nodes have a stored edge to themselves" in text) == (loops > 0)
    assert (f"{isolated} nodes are isolated" in text) == (isolated > 0)
    assert f"{facts.num_nodes} labelled nodes were split at random" in text  # no splits are shipped
    assert round(facts.features.density, 3 if density > 0.1 else 4) == density and facts.features.sparse
    unread = name == "ms_academic_phy"  # its names of classes would have to be unpickled
    assert ("names for 5 classes as Python objects, which are never read" in text) == unread
    assert (facts.labels.class_names is None) == unread
    assert "one direction only" not in text  # most arcs are, in three of them


def test_chameleon_is_directed_and_leaks(look: Look) -> None:
    facts, text = look("chameleon", root="{}/heterophilous")
    structure = facts.structure
    assert (facts.num_edges, structure.self_loops) == (36_101, 50) and not structure.symmetric
    assert structure.one_way_arcs == 2 * 31_371 - (36_101 - 50)
    assert "50 nodes have a stored edge to themselves" in text and "the graph is directed" in text
    assert "214 of 456 test nodes (46.93 %) have a training node with the same neighbours" in text
    assert "the file has 10 splits of the nodes, and split 0 is used: dataset.split chooses another one" in text
    assert look("chameleon", root="{}/heterophilous", split=9)[0].remarks == {}


def test_tolokers_has_each_edge_once(look: Look) -> None:
    facts, text = look("tolokers", root="{}/heterophilous")
    assert facts.structure.symmetric and facts.num_edges == 1_038_000 and "No arc has its reverse" not in text
    assert round(facts.structure.in_degrees.mean) == 88 and facts.labels.kind == "2 classes"
    assert [sum(of_class) for of_class in zip(*facts.labels.classes.values())] == [9_192, 2_566]
    assert "10 splits of the nodes" in text
    facts, text = look("tolokers", root="{}/heterophilous", directed=True)
    assert facts.num_edges == facts.structure.one_way_arcs == 519_000
    assert "No arc has its reverse: if the graph is meant to be undirected, the data have each edge once" in text


def test_blogcatalog_has_several_labels_and_neither_features_nor_a_split(look: Look) -> None:
    facts, text = look("blogcatalog", path="{}/blogcatalog")
    assert (facts.num_nodes, facts.num_edges, facts.structure.symmetric) == (10_312, 2 * 333_983, True)
    assert "39 labels a node; 10,312 nodes are labelled" in text
    assert "They have 14,476 labels in all, and 2,852 nodes have several." in text
    assert facts.features is None and "no features: a model learns from trainable vectors" in text
    assert "10312 labelled nodes were split at random" in text
    text = look("blogcatalog", path="{}/blogcatalog", symmetrize=False)[1]
    assert "No arc has its reverse: if the graph is meant to be undirected, the data have each edge once" in text


def test_amazon0601_has_seven_components(look: Look) -> None:
    facts, text = look("edge_list", path="{}/snap/amazon0601.txt.gz")
    assert (facts.num_nodes, facts.num_edges, facts.node_names) == (403_394, 3_387_388, None)
    assert (facts.structure.num_components, facts.structure.largest_components[0]) == (7, 403_364)
    assert "has 7 connected components. The largest have 403,364," in text
    assert facts.structure.one_way_arcs == 2 * 2_443_408 - 3_387_388
    assert "No node has a label." in text and "The nodes have no features" in text


def test_an_edge_list_with_gaps_and_repeated_lines(look: Look, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("# FromNodeId\tToNodeId\n7\t-3\n900\t7\n7\t-3\n7\t7\n")
    facts, text = look("edge_list", path=tmp_path / "ids.txt")
    assert (facts.num_nodes, facts.num_edges, facts.structure.self_loops) == (3, 3, 1)
    assert "own, which are integers from -3 to 900, in ascending order and with gaps: -3, 7, 900." in text
    assert "1 arcs repeat another one" in text and "No arc has its reverse" in text


def test_protein_pairs_have_text_ids_and_weights_in_mostly_both_directions(look: Look, shared_data: Path) -> None:
    (file,) = (shared_data / "protein").glob("sfld*.csv")
    facts, text = look("triples", path=file)
    assert facts.num_nodes == 232 and "names of their own, which are texts: " in text
    assert facts.structure.weights[1] == pytest.approx(323.3, abs=0.01) and "and 323.306." in text
    assert f"{30_008 - facts.num_edges} arcs of weight 0 were dropped" in text  # as scores of 0.0 are
    assert "1 line at the start of the file has no number where a weight belongs, and was taken for a header" in text
    assert f"{facts.structure.one_way_arcs:,} arcs are stored in one direction only, and all others in both" in text


def test_users_and_items_count_from_1_and_some_are_in_one_part_only(look: Look, shared_data: Path) -> None:
    folder = shared_data / "lightgcn"
    parts = [np.loadtxt(folder / f"lastfm_{part}1.txt", np.int64, usecols=(0, 1)) for part in ("data", "test")]
    users, items = (np.unique(parts[0][:, column]) for column in (0, 1))
    paths = {"train_path": folder / "lastfm_data1.txt", "test_path": folder / "lastfm_test1.txt"}
    facts, text = look("lastfm", **paths)
    assert (facts.num_users, facts.num_nodes, facts.num_edges) == (1_892, 1_892 + 4_489, 2 * 42_135)
    assert facts.held_out_pairs == 10_533 and "1,892 users, the others are items" in text
    assert f"{1_892 - len(users)} users have no training interaction" in text
    assert f"{4_489 - len(items)} items are in no training interaction" in text


def test_lists_of_items_count_from_0(look: Look, shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    file = shared_data / "lightgcn" / "gowalla_test.txt.gz"  # the matching list for training is not at hand
    facts, _ = look("interactions", format="lists", train_path=file, test_path=tmp_path / "empty.txt")
    assert (facts.num_users, facts.num_edges) == (29_858, 2 * 217_242) and facts.structure.isolated_nodes > 0
