"""What the notes on the real graphs tell of their traps: an inspection finds it."""

from pathlib import Path

import pytest

from fullgnn.inspection.command import run

GRAPHS = {
    "cora": ["dataset=planetoid", "dataset.name=cora", "dataset.root={}/planetoid"],
    "citeseer": ["dataset=planetoid", "dataset.name=citeseer", "dataset.root={}/planetoid"],
    "pubmed": ["dataset=planetoid", "dataset.name=pubmed", "dataset.root={}/planetoid"],
    "computers": ["dataset=npz", "dataset.path={}/gnn-benchmark/amazon_electronics_computers.npz"],
}
HOMOPHILY = {"cora": (0.81, 0.77), "citeseer": (0.74, 0.67), "pubmed": (0.80, 0.69)}
"""Edge and adjusted homophily, as Platonov et al. (2023), "Characterizing Graph Datasets", give them."""


def inspected(name: str, shared_data: Path):
    return run([key.format(shared_data) for key in GRAPHS[name]])


@pytest.mark.parametrize("name", HOMOPHILY)
def test_published_homophily(name: str, shared_data: Path) -> None:
    found = inspected(name, shared_data).labels.homophily
    assert (round(found.edge, 2), round(found.adjusted, 2)) == HOMOPHILY[name]


def test_citeseer_has_self_loops_and_nodes_without_anything(shared_data: Path) -> None:
    found = inspected("citeseer", shared_data)
    structure, labels = found.structure, found.labels
    assert (structure.self_loops, structure.only_self_loop, structure.isolated_nodes) == (124, 48, 0)
    assert found.features.empty_rows == 15 and found.num_nodes - labels.num_labelled == 15
    assert (labels.split["train"], labels.split["val"], labels.split["test"]) == (120, 500, 1000)
    assert any("124 nodes have a stored edge to themselves" in sentence for sentence in found.odd)
    assert any("48 nodes have no edge but one to themselves" in sentence for sentence in found.odd)
    assert any("15 nodes have features that are all 0" in sentence for sentence in found.odd)


def test_computers_is_directed_and_has_isolated_nodes(shared_data: Path) -> None:
    found = inspected("computers", shared_data)
    assert (found.structure.isolated_nodes, found.num_edges, found.structure.symmetric) == (281, 287_209, False)
    assert round(found.features.density, 3) == 0.348
    assert any("281 nodes are isolated" in sentence for sentence in found.odd)
    assert not any("one direction only" in sentence for sentence in found.odd)  # most arcs are
    assert not any("sparse" in sentence for sentence in found.odd)


def test_amazon0601_has_seven_components(shared_data: Path) -> None:
    found = run(["dataset=edge_list", f"dataset.path={shared_data}/snap/amazon0601.txt.gz"])
    assert (found.num_nodes, found.num_edges) == (403_394, 3_387_388)
    assert (found.structure.num_components, found.structure.largest_components[0]) == (7, 403_364)
    assert found.structure.one_way_arcs == 2 * 2_443_408 - 3_387_388 and found.labels is None


def test_most_protein_pairs_are_stored_in_both_directions(shared_data: Path) -> None:
    (file,) = (shared_data / "protein").glob("sfld*.csv")
    found = run(["dataset=triples", f"dataset.path={file}"])
    assert found.num_nodes == 232 and found.remarks["zero_arcs"] > 0
    assert found.structure.weights[1] == pytest.approx(323.3, abs=0.01)
    assert found.structure.one_way_arcs > 0
    assert any("arcs are stored in one direction only" in sentence for sentence in found.odd)
