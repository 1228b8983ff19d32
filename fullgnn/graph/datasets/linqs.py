"""Citation graphs in the text form of LINQS: Cora, CiteSeer, WebKB and others.

Data: Sen et al., "Collective classification in network data" (2008); linqs.org/datasets. A dataset has two files, plain
or compressed, whose words are apart by tabs or blanks:

- ``<name>.content``: a paper a line: its id, its words as numbers (0 or 1), and the name of its class;
- ``<name>.cites``: two ids a line, first the cited paper, then the citing one.

LINQS says of a line "paper1 paper2" that the link is "paper2->paper1". So the arc goes from the citing paper to the
cited one, and the cited paper reads from those that cite it. Ids are integers or texts in any order. There is no split.
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from fullgnn.errors import DataError, quoted
from fullgnn.graph.datasets.named import classes_of, first_repeated, joined, node_names_of, places_of
from fullgnn.graph.datasets.words import WordRows, read_rows
from fullgnn.graph.graph import Graph
from fullgnn.graph.node_data import normalize_rows
from fullgnn.telemetry.machine import check_fits

_SUFFIXES = ("content", "cites")


def files(name: str | None, path: str) -> list[Path]:
    """The two files of ``load``: the papers, and their citations.

    Raises:
        DataError: a file is missing, or ``path`` has several datasets and ``name`` chooses none.
    """
    folder = Path(path).expanduser()
    if name is None:
        names = sorted({file.name.split(".content")[0] for file in folder.glob("*.content*")})
        if len(names) > 1:
            raise DataError(f"{folder.resolve()} has {quoted(', '.join(names))}: choose one by dataset.name")
        name = names[0] if names else None
    return [_file(folder, name or "*", suffix) for suffix in _SUFFIXES]


def lacks() -> list[str]:
    """``train_mask``: LINQS publishes no split."""
    return ["train_mask"]


def load(name: str | None, path: str, normalize_features: bool) -> Graph:
    """The graph of ``<name>.content`` and ``<name>.cites`` in the folder ``path``; node i is the i-th paper.

    Features are sparse, float32. Citations of papers that are not in ``<name>.content`` are dropped; a remark has their
    number.

    Args:
        name: None: the only dataset in the folder.

    Raises:
        DataError: a file is missing or has wrong contents; the message names it, and the line.
    """
    content, cites = files(name, path)
    ids, features, classes = _papers(content)
    labels, class_names = classes_of(classes)
    pairs = [np.empty((2, 0), np.int32)]
    for rows in read_rows(cites):
        rows.columns({2: "the id of a cited paper and that of a citing one"})
        cited, citing = (places_of(rows.texts(slice(column, None, 2)), ids) for column in (0, 1))
        pairs.append(np.stack([citing, cited]))
    arcs = np.concatenate(pairs, axis=1)
    known = (arcs >= 0).all(axis=0)
    return Graph.from_edge_index(
        arcs[:, known],
        features=normalize_rows(features) if normalize_features else features,
        labels=labels,
        class_names=class_names,
        node_names=node_names_of(ids),
        name=name or content.name.split(".content")[0],
        remarks={"unknown_papers": int(np.count_nonzero(~known))},
    )


def _papers(file: Path) -> tuple[Any, ...]:
    """The ids of the papers, their features, (num_papers, F) sparse float32, and the names of their classes."""
    ids, features, classes = [], [], []
    columns, num_stored = 0, 0
    for rows in read_rows(file):
        columns = columns or max(2, int(rows.first[1]))
        rows.columns({columns: f"an id, {columns - 2} numbers and a class, as the first line"})
        ids.append(rows.texts(slice(0, None, columns)))
        classes.append(rows.texts(slice(columns - 1, None, columns)))
        features.append(_features(rows, columns))
        num_stored += features[-1].nnz
        check_fits(24 * num_stored, f"{file}: {num_stored} numbers that are not 0, or more,", "leave out words")
    if not ids:
        raise DataError(f"{file} is empty: write a line for each paper, with its id, its words and its class")
    all_ids = joined(ids)
    again = first_repeated(all_ids)
    if again is not None:
        raise DataError(f"{file} has the id {quoted(all_ids[again])!r} twice: write a line for each paper, once")
    return all_ids, vstack(features, format="csr"), joined(classes)


def _features(rows: WordRows, columns: int) -> csr_array:
    """(num_rows, columns - 2) float32."""
    words = np.arange(len(rows.start)).reshape(-1, columns)[:, 1:-1]
    return csr_array(rows.floats(words.ravel()).astype(np.float32).reshape(words.shape))


def _file(folder: Path, name: str, suffix: str) -> Path:
    """``<name>.<suffix>`` in ``folder``, or else the compressed file."""
    file = folder / f"{name}.{suffix}"
    packed = file.with_name(f"{file.name}.gz")
    if not file.is_file() and not packed.is_file():
        raise DataError(
            f"no file {file.resolve()}, nor with .gz: set dataset.path to a folder with NAME.content and NAME.cites of"
            " LINQS, and dataset.name to NAME"
        )
    return file if file.is_file() else packed
