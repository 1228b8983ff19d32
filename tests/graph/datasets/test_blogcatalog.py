"""The CSV layout of the ASU Social Computing Data Repository, in small files written here."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fullgnn.errors import DataError
from fullgnn.graph import Graph, load_dataset

FILES = {
    "nodes.csv": "3\n1\n2\n4\n5\n",  # in any order
    "groups.csv": "1\n2\n3\n",
    "edges.csv": "1,2\n1,3\n5,4\n",
    "group-edges.csv": "1,1\n1,3\n2,2\n4,1\n5,3\n",
}


@pytest.fixture
def load(tmp_path: Path, compose_dataset: Callable) -> Callable[..., Graph]:
    """Loads the files above, with some of them changed, or missing where the text is None."""

    def load_changed(changed: dict[str, str | None] | None = None, **overrides: object) -> Graph:
        for name, text in (FILES | (changed or {})).items():
            if text is not None:
                (tmp_path / name).write_text(text)
        return load_dataset(compose_dataset("blogcatalog", path=str(tmp_path), **overrides))

    return load_changed


def test_edges_and_labels_count_from_0_and_edges_have_both_directions(load: Callable[..., Graph]) -> None:
    graph = load()
    rows, columns = graph.adjacency().nonzero()
    assert set(zip(rows.tolist(), columns.tolist())) == {(0, 1), (1, 0), (0, 2), (2, 0), (3, 4), (4, 3)}
    expected = [[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1]]
    assert graph.labels.dtype == np.int8 and graph.labels.tolist() == expected
    assert (graph.name, graph.num_classes, graph.num_features) == ("blogcatalog", 3, 0)


def test_the_random_split_depends_on_the_seed_alone(load: Callable[..., Graph]) -> None:
    def masks(graph: Graph) -> np.ndarray:
        return np.stack([graph.train_mask, graph.val_mask, graph.test_mask])

    first = masks(load())
    assert first.sum(axis=1).tolist() == [3, 1, 1] and (first.sum(axis=0) == 1).all()
    assert np.array_equal(first, masks(load()))
    assert any(not np.array_equal(first, masks(load(seed=seed))) for seed in (1, 2, 3))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"edges.csv": None}, r"no file .*edges\.csv: set dataset\.path to a folder"),
        ({"edges.csv": "1,2\n1,x\n"}, r"edges\.csv cannot be read"),
        ({"edges.csv": "1,6\n"}, r"edges\.csv has the id 6, and ids are 1 to 5"),
        ({"group-edges.csv": "1,0\n"}, r"group-edges\.csv has the id 0, and ids are 1 to 3"),
        (
            {"group-edges.csv": "1\n2\n"},
            r"group-edges\.csv cannot be read \(a line has 1 numbers\): write lines of 2 numbers",
        ),
        ({"nodes.csv": "1\n2\n2\n"}, r"nodes\.csv must list the ids 1, 2, \.\.\. once each"),
    ],
)
def test_errors_name_the_file(load: Callable[..., Graph], changed: dict[str, str | None], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(changed)
    assert "\n" not in str(caught.value)
    assert not any(word in str(caught.value) for word in ("fetch", "download", "damaged"))  # the files are the user's


@pytest.mark.parametrize(
    "text",
    ["1,2\n#1,3\n5,4\n", "1,2 # an edge\n", "1,2\n1.7,3\n", "1,2\n1,nan\n", "1,2\n1,2,3\n", "1,2\n1,\n", '"1",2\n'],
)
def test_a_line_is_read_or_refused_and_never_dropped(load: Callable[..., Graph], text: str) -> None:
    with pytest.raises(DataError, match=r"edges\.csv cannot be read .*: write lines of 2 numbers"):
        load({"edges.csv": text})


def test_labels_beyond_the_memory_are_refused(load: Callable[..., Graph], monkeypatch) -> None:
    monkeypatch.setattr("fullgnn.telemetry.machine.free_bytes", lambda: 1 << 28)
    many = "".join(f"{number}\n" for number in range(1, 20_001))
    with pytest.raises(DataError, match="labels of 20000 nodes in 20000 groups needs 400000000 bytes"):
        load({"nodes.csv": many, "groups.csv": many})
