"""Matrix Market files that scipy writes, compared with what scipy reads."""

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from scipy.sparse import coo_array

from fullgnn.errors import DataError
from fullgnn.graph import Graph, dataset_lacks, load_dataset
from fullgnn.graph.datasets import words

SMALL = "%%MatrixMarket matrix coordinate real general\n% c\n3 3 2\n1 2 0.5\n3 3 2\n"


@pytest.fixture
def load(load_text: Callable) -> Callable[..., Graph]:
    return partial(load_text, "matrix_market", "tiny.mtx")


@pytest.mark.parametrize("chunk", [1 << 22, 40])
@pytest.mark.parametrize("layout", ["coordinate", "array"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_what_scipy_writes_is_what_scipy_reads(
    load: Callable[..., Graph], tmp_path: Path, field: str, symmetry: str, layout: str, chunk: int, monkeypatch
) -> None:
    if (field, layout) == ("pattern", "array"):
        pytest.skip("no such file")
    rng = np.random.default_rng(0)
    matrix = coo_array(np.where(rng.random((30, 30)) < 0.1, 100 * rng.random((30, 30)), 0))
    matrix = matrix + matrix.T if symmetry == "symmetric" else matrix
    matrix = matrix.toarray() if layout == "array" else matrix
    scipy.io.mmwrite(tmp_path / "tiny.mtx", matrix, comment="two\nlines", field=field, symmetry=symmetry)
    read = scipy.io.mmread(tmp_path / "tiny.mtx")
    expected = read if isinstance(read, np.ndarray) else read.toarray()
    monkeypatch.setattr(words, "CHUNK", chunk)
    np.testing.assert_array_equal(load().adjacency().toarray(), expected.T)
    graph = load(transpose=True)
    np.testing.assert_array_equal(graph.adjacency().toarray(), expected)
    assert (graph.weight is None) == (field == "pattern") and graph.num_edges == np.count_nonzero(expected)
    assert "zero_arcs" not in graph.remarks or layout == "coordinate"


def test_an_entry_is_an_arc_from_its_row_to_its_column(load: Callable[..., Graph]) -> None:
    graph = load(SMALL)
    np.testing.assert_array_equal(graph.adjacency().toarray(), [[0, 0, 0], [0.5, 0, 0], [0, 0, 2]])
    assert graph.name == "tiny" and graph.num_features == 0
    assert load(SMALL, symmetrize=True).num_edges == 3


def test_repeated_entries_are_added_and_zeros_dropped(load: Callable[..., Graph]) -> None:
    text = "%%matrixmarket Matrix Coordinate Real General\n3 3 4\n\n1 2 1\n1 2 2\n2 2 0\n  3 1 -1e-3 \n"
    graph = load(text, transpose=True)
    np.testing.assert_array_equal(graph.adjacency().toarray(), [[0, 3, 0], [0, 0, 0], [-1e-3, 0, 0]])
    assert graph.remarks == {"merged_arcs": 1, "zero_arcs": 1}


def test_a_compressed_file(tmp_path: Path, compose_dataset: Callable) -> None:
    (tmp_path / "packed.mtx.gz").write_bytes(gzip.compress(SMALL.encode()))
    node = compose_dataset("matrix_market", path=str(tmp_path / "packed.mtx.gz"))
    assert load_dataset(node).name == "packed" and dataset_lacks(node) == ["labels", "train_mask"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tiny.mtx has no size: it is empty or cut off"),
        (SMALL[:49], "tiny.mtx has no size"),
        ("3 3 1\n1 2 1\n", "line 1 must be like %%MatrixMarket matrix coordinate real general"),
        (SMALL.replace("real", "complex"), "line 1 has 'complex', and a graph is read from real or integer or pattern"),
        (SMALL.replace("general", "skew-symmetric"), "has 'skew-symmetric', and a graph is read from general or sym"),
        (SMALL.replace("matrix coo", "vector coo"), "has 'vector'"),
        (SMALL.replace("coordinate real", "array pattern"), "announces an array without numbers"),
        (SMALL.replace("3 3 2\n1", "3 4 2\n1"), "line 3 has 3 rows and 4 columns, and the matrix of a graph is square"),
        (SMALL.replace("3 3 2\n1", "3 3 3\n1"), "announces 3 entries and has 2"),
        (SMALL.replace("3 3 2\n1", "3 3 1\n1"), "line 5 follows the 1 entries"),
        (SMALL.replace("3 3 2\n1", "3 3\n1"), "line 3 has 2 columns, and a line has the numbers of rows, columns and"),
        (SMALL.replace("3 3 2\n1", "3 3 -1\n1"), "line 3 announces -1 entries"),
        (SMALL.replace("1 2 0.5", "1 4 0.5"), r"line 4 has the entry \(1, 4\), and rows and columns are 1 to 3"),
        (SMALL.replace("1 2 0.5", "0 1 0.5"), r"line 4 has the entry \(0, 1\)"),
        (SMALL.replace("1 2 0.5", "1 2"), "line 4 has 2 columns, and a line has a row, a column and a number"),
        (SMALL.replace("1 2 0.5", "1 2 inf"), "line 4 has 'inf', which is infinite or not a number"),
        (SMALL.replace("1 2 0.5", "1 2 1 7"), "line 4 has 4 columns"),
        (SMALL.replace("general", "symmetric"), "line 4 has an entry above the diagonal"),
        (SMALL.replace("3 3 2\n1", "9000000000 9000000000 2\n1"), "9000000000 nodes"),
    ],
)
def test_errors_name_the_file(load: Callable[..., Graph], text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(text)
    assert "\n" not in str(caught.value) and "tiny.mtx" in str(caught.value)


def test_the_direction_is_that_of_networkx(load: Callable[..., Graph], tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    g = networkx.DiGraph([(0, 1), (1, 2), (0, 3)])
    scipy.io.mmwrite(tmp_path / "tiny.mtx", coo_array(networkx.to_scipy_sparse_array(g)))
    expected = Graph.from_networkx(g).adjacency().toarray()
    np.testing.assert_array_equal(load().adjacency().toarray(), expected)
