"""The text form of LINQS: small files written here, and Cora as published."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fullgnn.errors import DataError
from fullgnn.graph import Graph, dataset_lacks, load_dataset

CONTENT = "b1\t1\t0\t0\tx\n31\t0\t1\t1\ty\nc\t0\t0\t0.5\tx\n"
CITES = "b1\t31\nb1\tc\nc\t31\n"  # 31 cites b1, c cites b1, 31 cites c


@pytest.fixture
def load(tmp_path: Path, compose_dataset: Callable) -> Callable[..., Graph]:
    """Loads the texts above, or others."""

    def load_texts(content: str = CONTENT, cites: str = CITES, **overrides: object) -> Graph:
        (tmp_path / "tiny.content").write_text(content)
        (tmp_path / "tiny.cites").write_text(cites)
        return load_dataset(compose_dataset("linqs", path=str(tmp_path), **overrides))

    return load_texts


def test_a_cited_paper_reads_from_those_that_cite_it(load: Callable[..., Graph]) -> None:
    graph = load()
    np.testing.assert_array_equal(graph.adjacency().toarray(), [[0, 1, 1], [0, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(graph.features.toarray(), np.float32([[1, 0, 0], [0, 1, 1], [0, 0, 0.5]]))
    assert graph.labels.tolist() == [0, 1, 0] and graph.class_names == ("x", "y")
    assert graph.node_names.tolist() == ["b1", "31", "c"] and graph.name == "tiny"
    assert not graph.train_mask.any()


def test_rows_are_normalised_and_integers_are_names(load: Callable[..., Graph]) -> None:
    graph = load(CONTENT.replace("b1", "7").replace("c\t", "-2\t"), "7\t31\n", normalize_features=True)
    assert graph.node_names.dtype == np.int64 and graph.node_names.tolist() == [7, 31, -2]
    np.testing.assert_array_equal(graph.features.toarray()[1], np.float32([0, 0.5, 0.5]))
    assert load(CONTENT.replace("31", "031").replace("b1", "7").replace("c\t", "2\t"), "").node_names.tolist() == [
        "7",
        "031",
        "2",
    ]  # a number with a zero before it is another text


def test_citations_of_unknown_papers_are_dropped_with_a_remark(load: Callable[..., Graph]) -> None:
    graph = load(cites=CITES + "b1\tghost\nghost\tc\nb1\t31\n")
    assert graph.num_edges == 3 and graph.remarks == {"unknown_papers": 2, "merged_arcs": 1}


def test_the_name_chooses_a_dataset_of_several_and_files_may_be_compressed(
    load: Callable[..., Graph], tmp_path: Path, compose_dataset: Callable
) -> None:
    load()
    for suffix, text in (("content", CONTENT), ("cites", CITES)):
        (tmp_path / f"other.{suffix}.gz").write_bytes(gzip.compress(text.encode()))
    node = compose_dataset("linqs", path=str(tmp_path), name="other")
    assert load_dataset(node).num_edges == 3 and dataset_lacks(node) == ["train_mask"]
    with pytest.raises(DataError, match="has other, tiny: choose one by dataset.name"):
        load_dataset(compose_dataset("linqs", path=str(tmp_path)))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (dict(content=""), r"tiny\.content is empty"),
        (dict(content="\n \n"), r"tiny\.content is empty"),
        (dict(content=CONTENT.replace("0.5", "nan")), r"tiny\.content, line 3 has 'nan', which is infinite or not"),
        (dict(content=CONTENT.replace("0.5", "half")), r"tiny\.content, line 3 has 'half', which is no number"),
        (dict(content=CONTENT + "d\t0\tx\n"), r"line 4 has 3 columns, and a line has an id, 3 numbers and a class"),
        (dict(content=CONTENT + "31\t0\t1\t1\ty\n"), r"tiny\.content has the id '31' twice"),
        (dict(content="a\n"), r"line 1 has 1 column, and a line has an id, 0 numbers and a class"),
        (dict(cites="b1\n"), r"tiny\.cites, line 1 has 1 column, and a line has the id of a cited paper"),
    ],
)
def test_errors_name_file_and_line(load: Callable[..., Graph], texts: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(**texts)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path, compose_dataset: Callable) -> None:
    (tmp_path / "tiny.content").write_text(CONTENT)
    with pytest.raises(DataError, match=r"no file .*tiny\.cites, nor with \.gz: set dataset\.path"):
        load_dataset(compose_dataset("linqs", path=str(tmp_path)))


def test_cora_as_published(shared_data: Path, compose_dataset: Callable) -> None:
    graph = load_dataset(compose_dataset("linqs", path=str(shared_data / "linqs")))
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (2708, 5429, 1433, 7)
    assert graph.symmetrized().num_edges == 2 * 5278 and graph.name == "cora" and graph.remarks == {}
    assert graph.class_names == (
        "Case_Based",
        "Genetic_Algorithms",
        "Neural_Networks",
        "Probabilistic_Methods",
        "Reinforcement_Learning",
        "Rule_Learning",
        "Theory",
    )
    assert set(graph.features.data) == {1} and graph.node_names[:2].tolist() == [31336, 1061127]
    # gnn-benchmark publishes the same citations by the same ids, in the other direction, and the same classes.
    other = load_dataset(compose_dataset("npz", path=str(shared_data / "gnn-benchmark" / "cora.npz")))
    ids = np.array(list(map(int, other.node_names.tolist())))
    readers, read = graph.adjacency().nonzero()
    others_read, others_readers = other.adjacency().nonzero()
    citations = set(zip(graph.node_names[readers].tolist(), graph.node_names[read].tolist()))
    assert citations == set(zip(ids[others_readers].tolist(), ids[others_read].tolist()))
    order, others_order = np.argsort(graph.node_names), np.argsort(ids)
    pairs = set(zip(graph.labels[order].tolist(), other.labels[others_order].tolist()))
    assert len(pairs) == 7
