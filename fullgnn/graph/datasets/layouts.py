"""A graph of an .npz file whose layout is known by the names of its arrays."""

from os import PathLike
from pathlib import Path

from fullgnn.errors import DataError
from fullgnn.graph.datasets import heterophilous, npz
from fullgnn.graph.datasets.named_arrays import NamedArrays
from fullgnn.graph.graph import Graph


def load_npz(path: str | PathLike[str]) -> Graph:
    """The graph in the file ``path``; see ``Graph.load``.

    Raises:
        DataError: the file is missing or damaged, or holds no graph.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise DataError(f"no file {file.resolve()}: give an existing .npz file")
    arrays = NamedArrays(file, npz.WRITE_AGAIN)
    if "node_features" in arrays and "edges" in arrays:
        return heterophilous.load(file.stem, "", str(file), None, None)
    return npz.load(
        name=None,
        root="",
        path=str(file),
        normalize_features=False,
        train_fraction=None,
        val_fraction=None,
        seed=0,
    )
