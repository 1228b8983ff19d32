"""Traps of the layouts of OGB and Reddit, in files that the tests of their readers write: an inspection names them."""

from collections.abc import Callable

import numpy as np
import pytest

from fullgnn.graph import load_dataset
from fullgnn.report.inspection import Inspection, inspection
from tests.cases import config
from tests.graph.datasets.ogb import (  # noqa: F401  # fixtures
    CLASSES,
    EDGES,
    NUM_NODES,
    SEVERAL,
    SPLIT,
    write_binary,
    write_proteins,
    write_text,
)
from tests.graph.datasets.reddit import write  # noqa: F401  # a fixture

Look = Callable[..., tuple[Inspection, str]]


@pytest.fixture
def look(compose_dataset, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Inspects a dataset: what is found, and its text without line ends. What ranks would hold is left out."""
    monkeypatch.setattr(inspection, "layouts_of", lambda graph, cfg: ((), "not asked for"))

    def inspected(choice: str, **keys: str) -> tuple[Inspection, str]:
        facts = inspection.look_at(load_dataset(compose_dataset(choice, **keys)), config("runtime.device=cpu"))
        return facts, " ".join(str(facts).split())

    return inspected


def test_arxiv_is_directed_and_products_has_each_edge_once(write_text, tmp_path, look: Look) -> None:  # noqa: F811
    arcs = {(u, v) for u, v in EDGES.tolist()}
    one_way = sum((v, u) not in arcs for u, v in arcs)
    write_text("ogbn-arxiv")
    facts, text = look("ogbn-arxiv", root=str(tmp_path))
    assert facts.structure.one_way_arcs == one_way > 0 and len(arcs) == facts.num_edges
    assert f"the graph is directed, since {one_way} of them have no entry of the other direction" in text
    assert f"{len(EDGES) - len(arcs)} arcs repeat another one" in text
    assert f"{sum(u == v for u, v in arcs)} nodes have a stored edge to themselves" in text
    write_text("ogbn-products")  # the flag to add the other direction is not in the folder
    facts, text = look("ogbn-products", root=str(tmp_path))
    assert facts.structure.symmetric and facts.num_edges == len(arcs) + one_way


def test_proteins_have_several_labels_no_features_and_numbers_of_edges(
    write_proteins,  # noqa: F811
    tmp_path,
    look: Look,
) -> None:
    write_proteins()
    facts, text = look("ogbn-proteins", root=str(tmp_path))
    assert facts.structure.symmetric and facts.features is None and "The nodes have no features" in text
    several = np.count_nonzero(SEVERAL.sum(axis=1) > 1)
    assert f"They have {SEVERAL.sum()} labels in all, and {several} nodes have several." in text
    assert "there are 8 numbers for each edge, and they are not read" in text


def test_papers_without_a_label_are_counted(write_binary, tmp_path, look: Look) -> None:  # noqa: F811
    write_binary()
    facts, text = look("ogbn-papers100M", root=str(tmp_path))
    unknown = np.arange(NUM_NODES) % 4 == 3  # NaN in the file
    assert facts.labels.num_labelled == np.count_nonzero(~unknown)
    in_split = sum(np.count_nonzero(unknown[nodes]) for nodes in SPLIT.values())
    assert f"{in_split} nodes of the split have no label" in text
    known = CLASSES[~unknown, 0]
    assert [sum(of_class) for of_class in zip(*facts.labels.classes.values())] == np.bincount(known).tolist()


def test_reddit_has_parts_by_number_and_repeated_arcs(write, look: Look) -> None:  # noqa: F811
    facts, text = look("reddit", path=str(write()))
    assert [facts.labels.split[part] for part in ("train", "val", "test")] == [20, 10, 10]
    assert f"{200 - facts.num_edges} arcs repeat another one" in text and facts.num_edges < 200
