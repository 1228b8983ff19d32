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

from pathlib import Path

import numpy as np
from scipy.sparse import coo_array

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.csr import distinct
from fullgnn.graph.datasets.given_files import existing_file
from fullgnn.graph.datasets.words import WordRows, WrongWord, read_text, rows_in
from fullgnn.graph.graph import Graph

FORMATS = ("lists", "triples")


def files(train_path: str, test_path: str) -> list[Path]:
    """The two files of ``load``.

    Raises:
        DataError: a file is missing.
    """
    paths = {"train_path": train_path, "test_path": test_path}
    return [existing_file(path, key, "a file of interactions") for key, path in paths.items()]


def lacks() -> list[str]:
    """Both ``labels`` and ``train_mask``: a graph of users and items has none."""
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
    check_num_nodes(num_users + num_items, f"the graph of {train_file} and {test_file}")
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
    rows, _ = rows_in(file, read_text(file))
    numbers = _integers(rows, np.arange(len(rows.start)), 0)
    is_item = np.ones(len(numbers), bool)
    is_item[rows.first[:-1]] = False
    users, items = numbers[~is_item], numbers[is_item]
    return np.stack([np.repeat(users, np.diff(rows.first) - 1), items]), _size(users), _size(items)


def _read_triples(file: Path) -> tuple[np.ndarray, int, int]:
    """As ``_read_lists``."""
    rows, _ = rows_in(file, read_text(file), separator="\t")
    counts = np.diff(rows.first)
    wrong = np.flatnonzero(counts != 3)
    if len(wrong):
        raise DataError(
            f"{file} has {counts[wrong[0]]} columns in line {rows.line[wrong[0]]}, and format=triples has a user, an"
            " item and a count, separated by tabs: correct the line, or set dataset.format=lists"
        )
    words = np.arange(len(rows.start)).reshape(-1, 3)[:, :2].ravel()  # the third column is not read
    if (rows.start[words] == rows.end[words]).any():
        raise DataError(f"{file} must have a user and an item in each line: correct it")
    pairs = _integers(rows, words, 1).reshape(-1, 2).T - 1
    return pairs, _size(pairs[0]), _size(pairs[1])


def _integers(rows: WordRows, words: np.ndarray, first: int) -> np.ndarray:
    """(num_words,) int64, ids that count from ``first``."""
    try:
        ids = rows.integers(words)
    except WrongWord as error:
        why = "is beyond int64" if error.is_integer else "is no integer"
        raise DataError(
            f"{rows.file} must hold integers only (line {error.line}: {error.word!r} {why}): number users and items"
        ) from error
    if ids.size and (ids.min() < first or ids.max() >= 2**31 - 1):
        bad = ids.min() if ids.min() < first else ids.max()
        raise DataError(f"{rows.file} has the id {bad}, and ids count from {first}, below 2^31: number the ids so")
    return ids


def _size(ids: np.ndarray) -> int:
    return int(ids.max()) + 1 if len(ids) else 0
