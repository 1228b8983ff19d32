"""The way of the features from the host to the device of a rank.

    FeatureSource   the rows of all nodes on the host, encoded (``fullgnn.codecs``), once on each machine; the device
                    decodes those of a batch
    Cached          the same, some of whose encoded rows stay on the device (``caches.py``)
    InPlace         the same, whose rows the first layer reads where they lie, if the device is the CPU
    SparseInPlace   the same of a sparse matrix, for any device

A batch gets its features in two halves, since the first one may be done ahead, by a worker: the host is read for the
rows ``missing(ids)``, and ``place(ids, rows)`` makes the features of them.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.codecs import Codec, State, Unencoded
from fullgnn.distributed.shared_memory import shared_with_forks
from fullgnn.errors import DataError
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.support.read_only import read_only_tensor
from fullgnn.kernels.support.to_device import move
from fullgnn.sampling.caches import RESERVE_MEGABYTES, Accesses, CachePolicy
from fullgnn.schemes.inputs import Input, InputRows

FILLED_BYTES = 1 << 26
"""Rows of so many bytes are brought at a time to the device that keeps them."""


class Encoding(NamedTuple):
    """What decodes the rows of the host."""

    codec: Codec = Unencoded()
    dtype: torch.dtype = torch.float32  # of the features
    state: State | None = None  # what the codec has learnt of all rows, see ``fullgnn.codecs``


PLAIN = Encoding()


class FeatureSource:
    """Features for the ``device`` of this rank, of encoded ``rows`` on the host.

    Args:
        rows: (num_nodes, W), in memory or mapped from a file.
    """

    waits = False
    """Whether its cache has no rows yet, since ``take`` has not told it how many the device has room for."""
    has_all = False
    """Whether the rows of all nodes that a batch may read stay on the device. Then no row is missing, and ``place``
    takes ids that are a tensor on the device too."""

    def __init__(self, rows: np.ndarray, device: torch.device, encoding: Encoding = PLAIN):
        self.rows, self.device, self.row_bytes = rows, device, rows.shape[1] * rows.itemsize
        self.tensor = read_only_tensor(rows)
        self._codec, self._dtype, state = encoding
        self._state = {name: read_only_tensor(array).to(device) for name, array in (state or {}).items()}
        if self._state:
            self._codec.load_state(self._state)  # type: ignore[attr-defined]

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """The nodes among ``ids``, (m,), for whose rows the host is read, in their order."""
        return ids

    def gather(self, ids: np.ndarray) -> Tensor:
        """(m, W) rows of the nodes ``ids``, on the host; page-locked if they are for a GPU."""
        index = torch.from_numpy(ids)
        if self.device.type != "cuda":
            return self.tensor.index_select(0, index)
        rows = torch.empty(len(ids), self.tensor.shape[1], dtype=self.tensor.dtype, pin_memory=True)
        return torch.index_select(self.tensor, 0, index, out=rows)

    def place(self, ids: np.ndarray | Tensor, rows: Tensor) -> Tensor:
        """(m, F) features of the (m,) nodes ``ids``, on the device.

        Args:
            rows: those of ``missing(ids)``, as the host has them, on the host or on the device.
        """
        return self._codec.decode(rows.to(self.device), self._dtype)

    def num_read(self, num_ids: int, rows: Tensor) -> int:
        """For how many of ``num_ids`` nodes the host is read, of which ``rows`` are the missing ones."""
        return len(rows)

    def tensors(self) -> list[Tensor]:
        """What it keeps on the device, for counting memory."""
        return [*self._state.values()]


class InPlace(FeatureSource):
    """The rows of the host, of which no batch has a copy: the first layer reads them by the ids of the nodes."""

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """See ``FeatureSource``: none of them is gathered."""
        return ids[:0]

    def num_read(self, num_ids: int, rows: Tensor) -> int:
        """See ``FeatureSource``: all of them."""
        return num_ids

    def input(self, ids: np.ndarray) -> Input:
        """The input of a model, of the (m,) nodes ``ids``."""
        return InputRows(self.tensor, torch.from_numpy(ids).int())


class SparseInPlace(InPlace):
    """Rows of the sparse ``matrix`` (num_nodes, F) on the host, of which a batch gets its own as ``SparseRows``."""

    def __init__(self, matrix: csr_array, device: torch.device):
        super().__init__(np.empty((matrix.shape[0], 0), matrix.dtype), device)
        entry_bytes = matrix.data.itemsize + matrix.indices.itemsize
        self.row_bytes = matrix.nnz * entry_bytes // max(1, matrix.shape[0])
        self._matrix = matrix

    def input(self, ids: np.ndarray) -> Input:
        """See ``InPlace``."""
        return SparseRows.of(self._matrix[ids], self.tensor.dtype, self.device, single_use=True)


class Cached(FeatureSource):
    """Features, some of whose encoded rows stay on the device.

    The table that tells where a node's row lies is in memory that this process shares with its forks, so that workers
    know what has changed between two epochs. Where every row stays on the device, so does that table.

    Args:
        cache: chooses the nodes.
        accesses: what it may know.
    """

    def __init__(
        self, rows: np.ndarray, device: torch.device, cache: CachePolicy, accesses: Accesses, encoding: Encoding = PLAIN
    ):
        super().__init__(rows, device, encoding)
        num_nodes = len(rows)
        self._cache, self._accesses, self._asked = cache, accesses, False
        self._slot = shared_with_forks(num_nodes, np.int32)  # where a node's row lies; -1: not on the device
        self._slot[:] = -1
        self._node = np.empty(0, np.int64)  # (num_slots,) whose row lies there; -1: nobody's
        self._table: Tensor | None = None  # (num_slots, W)
        self._has_all: bool | None = None  # None: nobody has asked since the rows have changed
        self._slot_on_device: Tensor | None = None  # copied when a batch whose ids are on the device first asks for it

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """See ``FeatureSource``."""
        return ids[self._slot[ids] < 0]

    def place(self, ids: np.ndarray | Tensor, rows: Tensor) -> Tensor:
        """See ``FeatureSource``."""
        table = self._table
        if isinstance(ids, Tensor):
            assert self.has_all and table is not None, "some rows are on the host"
            if self._slot_on_device is None:
                self._slot_on_device = self._moved(self._slot)
            return self._decoded(table, self._slot_on_device.index_select(0, ids).long())
        if table is None:
            return super().place(ids, rows)
        slot = self._slot[ids]
        hits, misses = np.flatnonzero(slot >= 0), np.flatnonzero(slot < 0)
        if len(hits) and not len(misses):
            return self._decoded(table, self._moved(slot.astype(np.int64)))
        fetched = rows.to(self.device)
        if len(hits):
            joined = fetched.new_empty(len(ids), fetched.shape[1])
            joined.index_copy_(0, self._moved(hits), table.index_select(0, self._moved(slot[hits])))
            fetched = joined.index_copy_(0, self._moved(misses), fetched)
        return super().place(ids, fetched)

    def _decoded(self, table: Tensor, index: Tensor) -> Tensor:
        """The features of the rows ``index``, (m,) int64, of the ``table``; a codec may gather and decode at once."""
        decode_rows = getattr(self._codec, "decode_rows", None)
        if decode_rows is not None:
            return decode_rows(table, index, self._dtype)
        return self._codec.decode(table.index_select(0, index), self._dtype)

    @property
    def has_all(self) -> bool:  # type: ignore[override]
        """See ``FeatureSource``."""
        if self._has_all is None:
            self._has_all = self._table is not None and bool((self._slot[self._accesses.nodes] >= 0).all())
        return self._has_all

    def begin(self, epoch: int) -> int:
        """Ask the cache which rows to keep from ``epoch`` on, if it is time; returns for how many rows the host was
        read."""
        horizon = getattr(self._cache, "horizon", None)
        if self._asked and not (horizon and (epoch - 1) % horizon == 0):
            return 0
        wanted, self._asked = self._cache.rows(self._accesses, epoch), True
        _check(wanted, len(self._slot), self._cache)
        return self._hold(wanted)

    @property
    def waits(self) -> bool:  # type: ignore[override]
        """See ``FeatureSource``."""
        return self._is_automatic and self._accesses.left_bytes is None

    def take(self, left_bytes: int) -> int:
        """Let the cache take so many bytes of the device, but for its reserve; returns the room in rows."""
        reserve = getattr(self._cache, "reserve_megabytes", RESERVE_MEGABYTES)
        self._accesses.left_bytes = int(max(0.0, left_bytes - 1e6 * reserve))
        return self._accesses.room(None)

    def tensors(self) -> list[Tensor]:
        """See ``FeatureSource``."""
        own = self._table, self._slot_on_device
        return [*super().tensors(), *(tensor for tensor in own if tensor is not None)]

    @property
    def _is_automatic(self) -> bool:
        return getattr(self._cache, "megabytes", 0) is None

    def _hold(self, wanted: np.ndarray) -> int:
        """Keep the rows of the nodes ``wanted`` alone. A row that is there already stays where it is, and a new one
        takes the place of one that leaves, if there are as many. Returns for how many rows the host was read."""
        new, stays = wanted[self._slot[wanted] < 0], np.zeros(len(self._slot), bool)
        stays[wanted] = True
        leaving = np.flatnonzero((self._node >= 0) & ~stays[self._node])
        self._slot[self._node[leaving]] = -1
        self._node[leaving] = -1
        # Memory of automatic size is all there is: it has its size at once, since no second one fits beside it.
        num_slots = max(len(wanted), self._accesses.room(None) if self._is_automatic else 0)
        if num_slots != len(self._node):
            self._resize(num_slots)
        free = np.flatnonzero(self._node < 0)[: len(new)]
        step = max(1, FILLED_BYTES // max(1, self.row_bytes))
        for some in (slice(first, first + step) for first in range(0, len(new), step)):
            assert self._table is not None
            self._table.index_copy_(0, self._moved(free[some]), self.gather(new[some]).to(self.device))
        self._node[free] = new
        self._slot[new] = free
        self._has_all = self._slot_on_device = None
        return len(new)

    def _resize(self, num_slots: int) -> None:
        """Move the rows that are there to the first of so many slots."""
        kept, node = np.flatnonzero(self._node >= 0), np.full(num_slots, -1)
        node[: len(kept)] = self._node[kept]
        table = None
        if num_slots:
            table = torch.empty(num_slots, self.tensor.shape[1], dtype=self.tensor.dtype, device=self.device)
            if len(kept) and self._table is not None:
                table[: len(kept)] = self._table.index_select(0, self._moved(kept))
        self._node, self._table = node, table
        self._slot[node[: len(kept)]] = np.arange(len(kept), dtype=np.int32)

    def _moved(self, index: np.ndarray) -> Tensor:
        return move(torch.from_numpy(index), self.device)


def _check(rows: np.ndarray, num_nodes: int, cache: CachePolicy) -> None:
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
