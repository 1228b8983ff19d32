"""Labelled pairs with weights: small ones written here, and protein similarities as published."""

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fullgnn.errors import DataError
from fullgnn.graph import Graph, dataset_lacks, load_dataset
from fullgnn.graph.datasets import words

TEXT = "b\ta\t0.5\na\tc d\t2\nb\tb\t1e1\n"
PROTEIN = "sfld_brown_et_al_amidohydrolases_protein_similarities_for_beh.csv"


@pytest.fixture
def load(load_text: Callable) -> Callable[..., Graph]:
    return partial(load_text, "triples", "tiny.abc")


def test_names_in_the_order_of_their_appearance(load: Callable[..., Graph]) -> None:
    graph = load(TEXT)
    assert graph.node_names.tolist() == ["b", "a", "c d"] and graph.name == "tiny" and graph.remarks == {}
    np.testing.assert_array_equal(graph.adjacency().toarray(), [[10, 0, 0], [0.5, 0, 0], [0, 2, 0]])


def test_a_header_is_found_by_its_third_word_or_announced(load: Callable[..., Graph]) -> None:
    for text in ("Source\tTarget\tWeight\n", "\n u\tv\t1_0\n"):
        graph = load(text + TEXT)
        assert graph.node_names.tolist() == ["b", "a", "c d"] and graph.remarks == {"header_lines": 1}
    assert load(TEXT, header=True).node_names.tolist() == ["a", "c d", "b"]
    assert load("u v\nä b\n", header=True).node_names.tolist() == ["ä", "b"]
    assert load("u v\nä b\n").node_names.tolist() == ["u", "v", "ä", "b"]
    with pytest.raises(DataError, match="line 1 has 'w', which is no number"):
        load("u\tv\tw\n" + TEXT, header=False)


def test_pairs_apart_by_blanks_and_without_weights(load: Callable[..., Graph]) -> None:
    graph = load(" 0  1 \n\n1 2\n0 1\n")
    assert graph.node_names is None and graph.weight is None and graph.remarks == {"merged_arcs": 1}
    assert load("7 -3 1\n").node_names.tolist() == [7, -3]
    assert load("07 3 1\n").node_names.tolist() == ["07", "3"]


def test_weights_of_0_are_dropped_with_a_remark(load: Callable[..., Graph]) -> None:
    graph = load("a b 0.0\nb a 3\nc a 0\n")
    assert (graph.num_nodes, graph.num_edges, graph.remarks) == (3, 1, {"zero_arcs": 2})


@pytest.mark.parametrize("seed", range(3))
def test_any_cut_of_the_file_gives_the_same_graph(load: Callable[..., Graph], seed: int, monkeypatch) -> None:
    rng = np.random.default_rng(seed)
    names = [f"n{number:x}" for number in rng.integers(0, 99, 200)]
    text = "".join(f"{u}\t{v}\t{w:.3f}\n" for u, v, w in zip(names, names[::-1], rng.random(200)))
    monkeypatch.setattr(words, "CHUNK", int(rng.integers(3, 99)))
    parts = load(text)
    assert parts.node_names.tolist() == list(dict.fromkeys(sum(zip(names, names[::-1]), ())))
    monkeypatch.setattr(words, "CHUNK", 1 << 22)
    whole = load(text)
    assert whole.node_names.tolist() == parts.node_names.tolist()
    assert (whole.adjacency() != parts.adjacency()).nnz == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tiny.abc has no pair"),
        ("a b c\n", "tiny.abc has no pair"),
        ("a b 1\na b x\n", "line 2 has 'x', which is no number"),
        ("a b inf\na b 1\n", "line 1 has 'inf', which is infinite or not a number"),
        ("a b 1\na b nan\n", "line 2 has 'nan', which is infinite or not a number"),
        ("a b 1\na b\n", "line 2 has 2 columns, and a line has two names and a weight"),
        ("a b 1 2\n", "line 1 has 4 columns, and a line has two names or two names and a weight"),
        ("a\tb\t1\n\tb\t1\n", "line 2 has an empty name"),
        ("a\tb\t1\na\t \t1\n", "line 2 has an empty name"),
        ("a\tb\t1\na\tb\t\n", "line 2 has '', which is no number"),
        (b"a b 1\n\xff b 1\n", "line 2 has '.', which is no text in UTF-8"),
    ],
)
def test_errors_name_file_and_line(load: Callable[..., Graph], text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(text)
    assert "\n" not in str(caught.value) and "tiny.abc" in str(caught.value)


def test_protein_similarities_as_published(shared_data: Path, compose_dataset: Callable) -> None:
    file = shared_data / "protein" / PROTEIN
    node = compose_dataset("triples", path=str(file))
    graph = load_dataset(node)
    with file.open() as stream:
        _, *rows = csv.reader(stream, delimiter="\t")
    assert (graph.num_nodes, len(rows), graph.name) == (232, 30_008, file.stem)
    assert len({frozenset(row[:2]) for row in rows}) == 15_570
    expected = {(u, v): float(w) for u, v, w in rows if float(w)}
    assert graph.num_edges == len(expected) and graph.remarks == {
        "zero_arcs": 30_008 - len(expected),
        "header_lines": 1,
    }
    names = np.array(graph.node_names.tolist())
    targets, sources = graph.adjacency().nonzero()
    assert dict(zip(zip(names[sources].tolist(), names[targets].tolist()), graph.weight.tolist())) == expected
    assert any((v, u) not in expected for u, v in expected) and dataset_lacks(node) == ["labels", "train_mask"]
