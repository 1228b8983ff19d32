"""Users and the items that they have interacted with, as recommender systems are published: a training and a test file.

Two formats, as in the data of LightGCN (He et al., 2020; github.com/gusye1234/LightGCN-PyTorch):

- ``lists``: a user and all of its items a line, separated by blanks, with ids from 0; a user may have no item. Gowalla,
  Yelp2018 and Amazon-Book are published so, as ``train.txt`` and ``test.txt``;
- ``triples``: a user, an item and a count a line, separated by tabs, with ids from 1, as Last.fm is published; the
  count is not used.

The users are the nodes 0 to num_users - 1 of the ``Graph``, in the order of their ids, and the items are the nodes
after them. Each id up to the largest one of either file is a node. The adjacency has the training interactions, in both
directions and without weights; the test interactions are ``Graph.test_links``. There are neither features nor labels.
"""

import gzip
import zlib
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.checks import first_line
from fullgnn.graph.csr import distinct
from fullgnn.graph.graph import Graph

FORMATS = ("lists", "triples")


def files(train_path: str, test_path: str) -> list[Path]:
    """The two files of ``load``.

    Raises:
        DataError: a file is missing.
    """
    return [
        _existing(Path(path).expanduser(), key) for key, path in (("train_path", train_path), ("test_path", test_path))
    ]


def lacks() -> list[str]:
    """What the graph has not of ``labels`` and ``train_mask``."""
    return ["labels", "train_mask"]


def load(name: str, format: str, train_path: str, test_path: str) -> Graph:
    """The bipartite graph of the two files, each plain or, with the suffix .gz, compressed.

    Raises:
        ConfigError: an unknown format.
        DataError: a file is missing or has wrong contents; the message names it.
    """
    if format not in FORMATS:
        raise ConfigError(f"dataset.format={format} is not known: choose one of {', '.join(FORMATS)}")
    read = _read_lists if format == "lists" else _read_triples
    train_file, test_file = files(train_path, test_path)
    (train, *train_sizes), (test, *test_sizes) = read(train_file), read(test_file)
    if not train.size:
        raise DataError(f"{train_file} has no interaction: there is nothing to train on")
    num_users, num_items = (max(sizes) for sizes in zip(train_sizes, test_sizes))
    num_given = train.shape[1] + test.shape[1]
    train, test = (distinct(pairs[0] * num_items + pairs[1]) for pairs in (train, test))
    again = np.isin(test, train)
    noted = {"merged_interactions": num_given - len(train) - len(test), "known_test_interactions": int(again.sum())}
    test = test[~again]
    user, item = train // num_items, train % num_items + num_users
    ends = np.concatenate([user, item]), np.concatenate([item, user])
    size = num_users + num_items
    adj = coo_array((np.ones(len(ends[0]), bool), ends), shape=(size, size))
    links = np.stack([test // num_items, test % num_items + num_users])
    return Graph.from_scipy(adj, name=name, num_users=num_users, test_links=links, remarks=noted)


def _read_lists(file: Path) -> tuple[np.ndarray, int, int]:
    """(2, E) int64 users above items, both from 0; and the number of users and of items."""
    lines = [line.split() for line in _text(file).splitlines()]
    lines = [line for line in lines if line]
    try:
        numbers = np.array([number for line in lines for number in line], dtype=np.int64)
    except (OverflowError, ValueError) as error:
        raise DataError(f"{file} must hold integers only ({first_line(error)}): number users and items") from error
    _check_ids(file, numbers, 0)
    counts = np.array([len(line) - 1 for line in lines], dtype=np.int64)
    is_user = np.zeros(len(numbers), bool)
    is_user[np.cumsum(counts + 1) - counts - 1] = True
    users, items = numbers[is_user], numbers[~is_user]
    return np.stack([np.repeat(users, counts), items]), _size(users), _size(items)


def _read_triples(file: Path) -> tuple[np.ndarray, int, int]:
    """As ``_read_lists``."""
    rows = [line.split("\t") for line in _text(file).splitlines() if line.strip()]
    if any(len(row) != 3 for row in rows):
        number = next(number for number, row in enumerate(rows, 1) if len(row) != 3)
        raise DataError(
            f"{file} has {len(rows[number - 1])} columns in line {number}, and format=triples has a user, an item and a"
            " count, separated by tabs: correct the line, or set dataset.format=lists"
        )
    try:
        pairs = np.array([row[:2] for row in rows], dtype=np.int64).reshape(-1, 2).T
    except (OverflowError, ValueError) as error:
        raise DataError(f"{file} must hold integers only ({first_line(error)}): number users and items") from error
    _check_ids(file, pairs.ravel(), 1)
    return pairs - 1, _size(pairs[0] - 1), _size(pairs[1] - 1)


def _size(ids: np.ndarray) -> int:
    return int(ids.max()) + 1 if len(ids) else 0


def _check_ids(file: Path, ids: np.ndarray, first: int) -> None:
    if ids.size and (ids.min() < first or ids.max() >= 2**31 - 1):
        bad = ids.min() if ids.min() < first else ids.max()
        raise DataError(f"{file} has the id {bad}, and ids count from {first}, below 2^31: number the ids so")


def _existing(file: Path, key: str) -> Path:
    if not file.is_file():
        raise DataError(f"no file {file.resolve()}: set dataset.{key} to a file of interactions")
    return file


def _text(file: Path) -> str:
    try:
        content = file.read_bytes()
        return (gzip.decompress(content) if file.suffix == ".gz" else content).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DataError(f"{file} cannot be read ({first_line(error)}): write it again, as ASCII text") from error
