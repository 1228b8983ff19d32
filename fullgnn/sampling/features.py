"""The way of the features from the host to the device of a rank: sources of rows that wrap one another.

    HostRows    the rows of all nodes on the host, encoded (``codecs.py``), once on each machine
    Cached      a source, some of whose rows stay on the device (``caches.py``)
    Decoded     a source, whose rows a codec decodes on the device

``fetch(ids)`` gives the rows of some nodes on the device. It has two halves, since the first one may be done ahead, by
a worker: the host is read for the rows ``missing(ids)``, and ``place(ids, rows)`` makes the result of them. So a source
that wraps another one says which rows it still needs of it, and what it makes of those.
"""

import mmap
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from fullgnn.errors import DataError
from fullgnn.sampling.caches import Accesses, Cache
from fullgnn.sampling.codecs import Codec
from fullgnn.sampling.host_graph import read_only_tensor


class FeatureSource(ABC):
    """Rows of all nodes, for the device of this rank."""

    host: "HostRows"
    """The innermost source."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the result."""
        row = self.fetch(np.empty(0, np.int64))
        return row.shape[1] * row.element_size()

    @property
    @abstractmethod
    def is_cached(self) -> bool:
        """Whether some rows stay on the device, other ones perhaps in other epochs."""

    @abstractmethod
    def missing(self, ids: np.ndarray) -> np.ndarray:
        """Those of the (m,) nodes ``ids`` for whose rows the host is read, in their order."""

    @abstractmethod
    def place(self, ids: np.ndarray, rows: Tensor) -> Tensor:
        """(m, F) rows of the (m,) nodes ``ids``, on the device.

        Args:
            rows: those of ``missing(ids)``, as the host has them, on the host or on the device.
        """

    def fetch(self, ids: np.ndarray) -> Tensor:
        """(m, F) rows of the (m,) nodes ``ids``, on the device."""
        return self.place(ids, self.host.gather(self.missing(ids)))

    @abstractmethod
    def begin(self, epoch: int) -> int:
        """Prepare for ``epoch``; returns for how many rows the host was read."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """What it keeps on the device, for counting memory."""


class HostRows(FeatureSource):
    """The innermost source: (num_nodes, W) ``rows`` on the host, in memory or mapped from a file."""

    is_cached = False

    def __init__(self, rows: np.ndarray, device: torch.device):
        self.rows, self.device, self.host = rows, device, self
        self._tensor = read_only_tensor(rows)

    @property
    def row_bytes(self) -> int:
        """See ``FeatureSource``."""
        return self.rows.shape[1] * self.rows.itemsize

    def gather(self, ids: np.ndarray) -> Tensor:
        """(m, W) rows of the nodes ``ids``, on the host."""
        return self._tensor.index_select(0, torch.from_numpy(ids))

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """See ``FeatureSource``: all of them."""
        return ids

    def place(self, ids: np.ndarray, rows: Tensor) -> Tensor:
        """See ``FeatureSource``."""
        return rows.to(self.device)

    def begin(self, epoch: int) -> int:
        """See ``FeatureSource``."""
        return 0

    def tensors(self) -> list[Tensor]:
        """See ``FeatureSource``."""
        return []


class _Wrapping(FeatureSource):
    """What passes on to another source whatever a class does not change."""

    def __init__(self, source: FeatureSource):
        self.source, self.host = source, source.host

    @property
    def is_cached(self) -> bool:
        return self.source.is_cached

    def missing(self, ids: np.ndarray) -> np.ndarray:
        return self.source.missing(ids)

    def place(self, ids: np.ndarray, rows: Tensor) -> Tensor:
        return self.source.place(ids, rows)

    def begin(self, epoch: int) -> int:
        return self.source.begin(epoch)

    def tensors(self) -> list[Tensor]:
        return self.source.tensors()


class Decoded(_Wrapping):
    """Features of ``dtype``, of the encoded rows of ``source``.

    Args:
        state: what the codec has learnt of all rows, see ``codecs.py``.
    """

    def __init__(
        self,
        source: FeatureSource,
        codec: Codec,
        dtype: torch.dtype,
        state: dict[str, np.ndarray] | None = None,
    ):
        super().__init__(source)
        self._codec, self._dtype = codec, dtype
        self._state = {name: read_only_tensor(array).to(self.host.device) for name, array in (state or {}).items()}
        if self._state:
            codec.load_state(self._state)  # type: ignore[attr-defined]

    def place(self, ids: np.ndarray, rows: Tensor) -> Tensor:
        """See ``FeatureSource``."""
        return self._codec.decode(self.source.place(ids, rows), self._dtype)

    def tensors(self) -> list[Tensor]:
        """See ``FeatureSource``."""
        return [*self.source.tensors(), *self._state.values()]


class Cached(_Wrapping):
    """Rows of ``source``, some of which stay on the device.

    The table that tells where a node's row lies is in memory that this process shares with its forks, so that workers
    know what has changed between two epochs.

    Args:
        cache: chooses the nodes.
        accesses: what it may know.
    """

    def __init__(self, source: FeatureSource, cache: Cache, accesses: Accesses):
        super().__init__(source)
        num_nodes = len(self.host.rows)
        self._cache, self._accesses, self._asked = cache, accesses, False
        memory = mmap.mmap(-1, max(1, 4 * num_nodes))
        self._slot = np.frombuffer(memory, np.int32, num_nodes)  # where a node's row lies; -1: not on the device
        self._slot[:] = -1
        self._node = np.empty(0, np.int64)  # (num_slots,) whose row lies there
        self._rows: Tensor | None = None  # (num_slots, F)

    @property
    def is_cached(self) -> bool:
        """See ``FeatureSource``."""
        return True

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """See ``FeatureSource``."""
        return self.source.missing(ids[self._slot[ids] < 0])

    def place(self, ids: np.ndarray, rows: Tensor) -> Tensor:
        """See ``FeatureSource``."""
        if self._rows is None:
            return self.source.place(ids, rows)
        slot = self._slot[ids]
        hits, misses = np.flatnonzero(slot >= 0), np.flatnonzero(slot < 0)
        found = self.source.place(ids[misses], rows)
        if not len(hits):
            return found
        if not len(misses):
            return self._rows.index_select(0, self._moved(slot))
        result = found.new_empty(len(ids), found.shape[1])
        result.index_copy_(0, self._moved(hits), self._rows.index_select(0, self._moved(slot[hits])))
        return result.index_copy_(0, self._moved(misses), found)

    def begin(self, epoch: int) -> int:
        """See ``FeatureSource``; asks the cache which rows to keep from now on, if it is time."""
        num_read, horizon = self.source.begin(epoch), getattr(self._cache, "horizon", None)
        if self._asked and not (horizon and (epoch - 1) % horizon == 0):
            return num_read
        wanted, self._asked = self._cache.rows(self._accesses, epoch), True
        _check(wanted, len(self._slot), self._cache)
        return num_read + self._hold(wanted)

    def tensors(self) -> list[Tensor]:
        """See ``FeatureSource``."""
        return [*self.source.tensors(), *([] if self._rows is None else [self._rows])]

    def _hold(self, wanted: np.ndarray) -> int:
        """Keep the rows of the nodes ``wanted`` alone. A row that is there already stays where it is, and a new one
        takes the place of one that leaves, if there are as many. Returns for how many rows the host was read."""
        new = wanted[self._slot[wanted] < 0]
        if len(wanted) != len(self._node):
            kept = wanted[self._slot[wanted] >= 0]
            rows = [] if self._rows is None else [self._rows.index_select(0, self._moved(self._slot[kept]))]
            self._slot[self._node] = -1
            self._node = np.concatenate([kept, new])
            self._rows = torch.cat([*rows, self.source.fetch(new)]) if len(wanted) else None
            self._slot[self._node] = np.arange(len(self._node), dtype=np.int32)
        elif len(new):
            assert self._rows is not None
            stays = np.zeros(len(self._slot), bool)
            stays[wanted] = True
            leaving = np.flatnonzero(~stays[self._node])
            self._rows.index_copy_(0, self._moved(leaving), self.source.fetch(new))
            self._slot[self._node[leaving]] = -1
            self._node[leaving] = new
            self._slot[new] = leaving
        return len(self.source.missing(new))

    def _moved(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(index).to(self.host.device)


def _check(rows: np.ndarray, num_nodes: int, cache: Cache) -> None:
    """Refuse what is no choice of nodes.

    Raises:
        DataError: one line that names the cache.
    """
    fits = rows.dtype.kind in "iu" and rows.ndim == 1 and (np.diff(rows) > 0).all()
    if not fits or (len(rows) and not 0 <= rows[0] <= rows[-1] < num_nodes):
        raise DataError(
            f"the cache {type(cache).__name__} must choose ids of nodes in ascending order, none twice, from 0 to"
            f" {num_nodes - 1}"
        )
