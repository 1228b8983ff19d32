"""Caches of features: rows that stay on the device of a rank, so that batches need not fetch them from the host.

Contract of a cache: a class whose keys are those of its YAML, with

    rows(accesses, epoch) -> ids    (k,) int64 ids of the nodes, ascending: those that stay from ``epoch`` on

Every rank asks its own cache before its first epoch. With an attribute ``horizon``, it is asked again before every
epoch 1 + k horizon. A cache whose attribute ``megabytes`` is None has as much room as the first batch of the run leaves
on the device, and is asked after that batch for the first time. What it chooses is a function of its keys, of
``accesses`` and of the epoch, so that a run that goes on from a checkpoint has the same rows, if it has the same room.
The batches are the same with any cache, to the bit.

Sources: Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching", SoCC 2020 (by
degree); Yang et al., "GNNLab: a factored system for sample-based GNN training over GPUs", EuroSys 2022 (pre-sampled
epochs). That draws can be known before their epoch begins is from RapidGNN (2025), which fetches ahead by them.
"""

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import numpy as np

from fullgnn.codecs.codec import check_key
from fullgnn.sampling.host_graph import HostGraph

log = logging.getLogger(__name__)

RESERVE_MEGABYTES = 1000.0
"""What a cache of automatic size leaves of the device, as PaGraph does."""

CLOSE = 1.01
"""``cache=auto`` prefers the simpler of two caches, if it fetches at most so many times the bytes of the other."""

FEW_ROWS = 1000
"""``cache=auto`` counts further epochs until the best cache fetches so many rows: the difference of a few rows is
chance."""

MOST_EPOCHS = 8
"""``cache=auto`` counts at most so many epochs."""


class Accesses:
    """What a cache may know: which rows this rank reads.

    Args:
        counts: see ``counts``.
        row_bytes: bytes of a row that stays on the device.
        held: (num_nodes,) bool, the nodes of this rank's part, which reads no others; None: all.
    """

    def __init__(
        self,
        graph: HostGraph,
        counts: Callable[[int], np.ndarray],
        row_bytes: int,
        held: np.ndarray | None = None,
    ):
        self.graph, self.row_bytes, self._held = graph, row_bytes, held
        self.counts: Callable[[int], np.ndarray] = lru_cache(maxsize=2)(counts)
        """``counts(epoch)``, (num_nodes,) int32: how many batches of ``epoch`` read the row of each node on this rank.

        The draws are a function of the seed, the epoch, the hop and the node, so they are made ahead here, which takes
        at most as long as drawing takes in an epoch. Epochs that are never trained, 0 and below, may be asked for.
        """
        self.left_bytes: int | None = None
        """What the first batch has left of the device, without the reserve; None: it has not been trained."""

    @property
    def nodes(self) -> np.ndarray:
        """(k,) int64 ids of the nodes that this rank may read, ascending."""
        return np.arange(self.graph.num_nodes) if self._held is None else np.flatnonzero(self._held)

    def num_readers(self) -> np.ndarray:
        """(num_nodes,) how many nodes of this rank's part read each node: its out-degree, where arcs point from what is
        read; -1 for nodes of other parts."""
        return num_readers(self.graph.indptr, self.graph.indices, self._held)

    def room(self, megabytes: float | None) -> int:
        """How many rows fit ``megabytes``, or, with None, what the first batch has left; at most those of ``nodes``.

        Raises:
            ConfigError: the number is negative, or not a number.
        """
        if megabytes is None:
            assert self.left_bytes is not None
            num_bytes: float = self.left_bytes
        else:
            _check_size("cache.megabytes", megabytes)
            num_bytes = megabytes * 1e6
        most_rows = len(self.nodes)
        return most_rows if num_bytes >= most_rows * self.row_bytes else int(num_bytes) // self.row_bytes


class CachePolicy(Protocol):
    """Chooses the rows that stay on the device of a rank; see the head of this file."""

    def rows(self, accesses: Accesses, epoch: int) -> np.ndarray:
        """(k,) int64 ids, ascending and distinct, of the nodes whose rows stay from ``epoch`` on."""


class CacheNothing:
    """Every row is fetched from the host."""

    def rows(self, accesses: Accesses, epoch: int) -> np.ndarray:
        """See ``CachePolicy``."""
        return np.empty(0, np.int64)


class CacheAll:
    """The rows of all nodes that a rank may read."""

    def rows(self, accesses: Accesses, epoch: int) -> np.ndarray:
        """See ``CachePolicy``."""
        return accesses.nodes


class Sized:
    """A cache of a certain size.

    Args:
        megabytes: size of the rows on each device; None: what the first batch leaves of it, see ``Loader``.
        reserve_megabytes: what they leave of the device, where their size is None.
    """

    def __init__(self, megabytes: float | None, reserve_megabytes: float = RESERVE_MEGABYTES):
        _check_size("cache.reserve_megabytes", reserve_megabytes)
        self.megabytes, self.reserve_megabytes = megabytes, reserve_megabytes


class CacheByDegree(Sized):
    """The nodes that most nodes read, as PaGraph chooses them."""

    def rows(self, accesses: Accesses, epoch: int) -> np.ndarray:
        """See ``CachePolicy``."""
        return most(accesses.room(self.megabytes), accesses.num_readers())


class CacheByPresampling(Sized):
    """The nodes that pre-sampled epochs read most often, as GNNLab chooses them.

    The epochs 0, -1, ... are drawn for it, which are never trained. Among nodes that are read equally often, those
    that most nodes read come first.

    Args:
        megabytes, reserve_megabytes: see ``Sized``.
        epochs: how many epochs are drawn.
    """

    def __init__(self, megabytes: float | None, epochs: int = 1, reserve_megabytes: float = RESERVE_MEGABYTES):
        super().__init__(megabytes, reserve_megabytes)
        check_key("cache.epochs", epochs, epochs >= 1, "1 or more")
        self.epochs = epochs

    def rows(self, accesses: Accesses, epoch: int) -> np.ndarray:
        """See ``CachePolicy``."""
        room = accesses.room(self.megabytes)
        return most(room, total(accesses, range(1 - self.epochs, 1)), accesses.num_readers())


class CacheExactly(Sized):
    """The nodes that this rank reads most often in the epochs that come: no other choice has more hits.

    Args:
        megabytes, reserve_megabytes: see ``Sized``.
        horizon: how many epochs are looked at; as often the rows change.
    """

    def __init__(self, megabytes: float | None, horizon: int = 1, reserve_megabytes: float = RESERVE_MEGABYTES):
        super().__init__(megabytes, reserve_megabytes)
        check_key("cache.horizon", horizon, horizon >= 1, "1 or more")
        self.horizon = horizon

    def rows(self, accesses: Accesses, epoch: int) -> np.ndarray:
        """See ``CachePolicy``."""
        first = epoch - (epoch - 1) % self.horizon
        counts = total(accesses, range(first, first + self.horizon))
        return most(min(accesses.room(self.megabytes), int(np.count_nonzero(counts))), counts)


class CacheByCount(Sized):
    """The simplest of the caches above that fetches about as few bytes as the best of them.

    When it is first asked, the rows that epochs 0 and 1 read are counted, and what each cache would fetch in epoch 1,
    with the rows that change for it. Where that is little, epochs 2, 3, ... are counted too, which are short then.
    """

    horizon: int | None = None
    _chosen: CachePolicy | None = None

    def rows(self, accesses: Accesses, epoch: int) -> np.ndarray:
        """See ``CachePolicy``."""
        if self._chosen is None:
            self._chosen = self._choose(accesses)
            self.horizon = getattr(self._chosen, "horizon", None)
        return self._chosen.rows(accesses, epoch)

    def _choose(self, accesses: Accesses) -> CachePolicy:
        room, degree = accesses.room(self.megabytes), CacheByDegree(self.megabytes)
        if room in (0, len(accesses.nodes)):
            return degree
        caches: dict[str, CachePolicy] = {
            "degree": degree,
            "presample": CacheByPresampling(self.megabytes),
            "exact": CacheExactly(self.megabytes),
        }
        kept = {name: cache.rows(accesses, 0) for name, cache in caches.items()}
        fetched = dict.fromkeys(caches, 0)
        for epoch in range(1, 1 + MOST_EPOCHS):
            counts, exact = accesses.counts(epoch), caches["exact"].rows(accesses, epoch)
            fetched["exact"] += len(np.setdiff1d(exact, kept["exact"], assume_unique=True))
            kept["exact"] = exact
            for name, rows in kept.items():
                fetched[name] += _misses(counts, rows)
            if (least := min(fetched.values())) >= FEW_ROWS:
                break
        name = next(name for name, num_rows in fetched.items() if num_rows <= CLOSE * least)
        said = ", ".join(f"{kind} {num_rows * accesses.row_bytes / 1e6:.1f} MB" for kind, num_rows in fetched.items())
        when = "in epoch 1" if epoch == 1 else f"in epochs 1 to {epoch}"
        log.info("cache=auto: as cache=%s; a rank would fetch %s: %s", name, when, said)
        return caches[name]


def most(count: int, *scores: np.ndarray) -> np.ndarray:
    """The ``count`` nodes with the highest scores, ascending; ties by the next scores, then by the lowest id."""
    return np.sort(np.lexsort([-score for score in reversed(scores)])[:count])


def num_readers(indptr: np.ndarray, indices: np.ndarray, held: np.ndarray | None = None) -> np.ndarray:
    """(num_nodes,) int64: how many nodes read each node, among those that are ``held``; -1 for the others.

    Args:
        indptr: (num_nodes + 1,); indices: (num_edges,): row i holds the nodes that node i reads from.
        held: (num_nodes,) bool; None: all.
    """
    if held is None:
        return np.bincount(indices, minlength=len(indptr) - 1)
    read = indices[np.repeat(held, np.diff(indptr))]
    return np.where(held, np.bincount(read, minlength=len(held)), -1)


def total(accesses: Accesses, epochs: range) -> np.ndarray:
    """(num_nodes,) int64: how often this rank reads each row in all of these ``epochs``."""
    counts = np.zeros(accesses.graph.num_nodes, np.int64)
    for epoch in epochs:
        counts += accesses.counts(epoch)
    return counts


def _misses(counts: np.ndarray, rows: np.ndarray) -> int:
    """How many rows of an epoch with these ``counts`` are fetched, where ``rows`` stay on the device."""
    return int(counts.sum(dtype=np.int64) - counts[rows].sum(dtype=np.int64))


def _check_size(key: str, number: object) -> None:
    check_key(key, number, isinstance(number, (int, float)) and number >= 0, "0 or more")
