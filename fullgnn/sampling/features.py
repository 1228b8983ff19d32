"""The way of the features from the host to the device of a rank: sources of rows that wrap one another.

    HostRows    the rows of all nodes on the host, encoded (``fullgnn.codecs``), once on each machine
    Cached      a source, some of whose rows stay on the device (``caches.py``)
    Decoded     a source, whose rows a codec decodes on the device
    InPlace     a source, whose rows the first layer reads where they lie, if the device is the CPU
    SparseInPlace    the same of a sparse matrix, for any device

``fetch(ids)`` gives the rows of some nodes on the device. It has two halves, since the first one may be done ahead, by
a worker: the host is read for the rows ``missing(ids)``, and ``place(ids, rows)`` makes the result of them. So a source
that wraps another one says which rows it still needs of it, and what it makes of those.
"""

import mmap

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.codecs import Codec
from fullgnn.errors import DataError
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.support.read_only import read_only_tensor
from fullgnn.kernels.support.to_device import move
from fullgnn.sampling.caches import RESERVE_MEGABYTES, Accesses, Cache
from fullgnn.schemes.inputs import Input, InputRows

FILLED_BYTES = 1 << 26
"""Rows of so many bytes are brought at a time to the device that keeps them."""


class FeatureSource:
    """Rows of all nodes, for the device of this rank. What a class does not change is that of the source it wraps."""

    host: "HostRows"
    """The innermost source."""

    def __init__(self, source: "FeatureSource"):
        self.source, self.host = source, source.host

    @property
    def is_cached(self) -> bool:
        """Whether some rows stay on the device, other ones perhaps in other epochs."""
        return self.source.is_cached

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """Those of the (m,) nodes ``ids`` for whose rows the host is read, in their order."""
        return self.source.missing(ids)

    def place(self, ids: np.ndarray | Tensor, rows: Tensor) -> Tensor:
        """(m, F) rows of the (m,) nodes ``ids``, on the device.

        Args:
            rows: those of ``missing(ids)``, as the host has them, on the host or on the device.
        """
        return self.source.place(ids, rows)

    def held(self, ids: np.ndarray | Tensor) -> tuple[Tensor, Tensor] | None:
        """A table on the device, and the (m,) int64 rows of it that hold the nodes ``ids``, so that a codec gathers and
        decodes at once; None: some of them are not there."""
        return None

    @property
    def has_all(self) -> bool:
        """Whether the rows of all nodes that a batch may read stay on the device. Then no row is missing, and ``held``
        and ``place`` take ids that are a tensor on the device too."""
        return self.source.has_all

    def fetch(self, ids: np.ndarray) -> Tensor:
        """(m, F) rows of the (m,) nodes ``ids``, on the device."""
        return self.place(ids, self.host.gather(self.missing(ids)))

    def num_read(self, num_ids: int, rows: Tensor) -> int:
        """For how many of ``num_ids`` nodes the host is read, of which ``rows`` are the missing ones."""
        return len(rows)

    def begin(self, epoch: int) -> int:
        """Prepare for ``epoch``; returns for how many rows the host was read."""
        return self.source.begin(epoch)

    @property
    def waits(self) -> bool:
        """Whether its cache has no rows yet, since ``take`` has not told it how many the device has room for."""
        return self.source.waits

    def take(self, left_bytes: int) -> int:
        """Let the cache take so many bytes of the device, but for its reserve; returns the room in rows."""
        return self.source.take(left_bytes)

    def tensors(self) -> list[Tensor]:
        """What it keeps on the device, for counting memory."""
        return self.source.tensors()


class HostRows(FeatureSource):
    """The innermost source: (num_nodes, W) ``rows`` on the host, in memory or mapped from a file.

    Args:
        row_bytes: of a row; None: that of ``rows``.
    """

    is_cached = waits = has_all = False

    def __init__(self, rows: np.ndarray, device: torch.device, row_bytes: int | None = None):
        self.rows, self.device, self.host = rows, device, self
        self.tensor = read_only_tensor(rows)
        self.row_bytes = rows.shape[1] * rows.itemsize if row_bytes is None else row_bytes

    def gather(self, ids: np.ndarray) -> Tensor:
        """(m, W) rows of the nodes ``ids``, on the host; page-locked if they are for a GPU."""
        index = torch.from_numpy(ids)
        if self.device.type != "cuda":
            return self.tensor.index_select(0, index)
        rows = torch.empty(len(ids), self.tensor.shape[1], dtype=self.tensor.dtype, pin_memory=True)
        return torch.index_select(self.tensor, 0, index, out=rows)

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """See ``FeatureSource``: all of them."""
        return ids

    def place(self, ids: np.ndarray | Tensor, rows: Tensor) -> Tensor:
        """See ``FeatureSource``."""
        return rows.to(self.device)

    def begin(self, epoch: int) -> int:
        """See ``FeatureSource``."""
        return 0

    def take(self, left_bytes: int) -> int:
        """See ``FeatureSource``."""
        return 0

    def tensors(self) -> list[Tensor]:
        """See ``FeatureSource``."""
        return []


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
        return InputRows(self.host.tensor, torch.from_numpy(ids).int())


class SparseInPlace(InPlace):
    """Rows of the sparse ``matrix`` (num_nodes, F) on the host, of which a batch gets its own as ``SparseRows``."""

    def __init__(self, matrix: csr_array, device: torch.device):
        num_nodes = matrix.shape[0]
        entry_bytes = matrix.data.itemsize + matrix.indices.itemsize
        none = np.empty((num_nodes, 0), matrix.dtype)
        super().__init__(HostRows(none, device, matrix.nnz * entry_bytes // max(1, num_nodes)))
        self._matrix, self._dtype = matrix, read_only_tensor(none).dtype

    def input(self, ids: np.ndarray) -> Input:
        """See ``InPlace``."""
        return SparseRows.of(self._matrix[ids], self._dtype, self.host.device, single_use=True)


class Decoded(FeatureSource):
    """Features of ``dtype``, of the encoded rows of ``source``.

    Args:
        state: what the codec has learnt of all rows, see ``fullgnn.codecs``.
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

    def place(self, ids: np.ndarray | Tensor, rows: Tensor) -> Tensor:
        """See ``FeatureSource``."""
        decode_rows = getattr(self._codec, "decode_rows", None)
        held = None if decode_rows is None else self.source.held(ids)
        if decode_rows is not None and held is not None:
            return decode_rows(*held, self._dtype)
        return self._codec.decode(self.source.place(ids, rows), self._dtype)

    def tensors(self) -> list[Tensor]:
        """See ``FeatureSource``."""
        return [*self.source.tensors(), *self._state.values()]


class Cached(FeatureSource):
    """Rows of ``source``, some of which stay on the device.

    The table that tells where a node's row lies is in memory that this process shares with its forks, so that workers
    know what has changed between two epochs. Where every row stays on the device, so does that table.

    Args:
        cache: chooses the nodes.
        accesses: what it may know.
    """

    is_cached = True

    def __init__(self, source: FeatureSource, cache: Cache, accesses: Accesses):
        super().__init__(source)
        num_nodes = len(self.host.rows)
        self._cache, self._accesses, self._asked = cache, accesses, False
        memory = mmap.mmap(-1, max(1, 4 * num_nodes))
        self._slot = np.frombuffer(memory, np.int32, num_nodes)  # where a node's row lies; -1: not on the device
        self._slot[:] = -1
        self._node = np.empty(0, np.int64)  # (num_slots,) whose row lies there; -1: nobody's
        self._rows: Tensor | None = None  # (num_slots, F)
        self._has_all: bool | None = None  # None: nobody has asked since the rows have changed
        self._slot_on_device: Tensor | None = None  # copied when a batch whose ids are on the device first asks for it

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """See ``FeatureSource``."""
        return self.source.missing(ids[self._slot[ids] < 0])

    def place(self, ids: np.ndarray | Tensor, rows: Tensor) -> Tensor:
        """See ``FeatureSource``."""
        if isinstance(ids, Tensor):
            table, index = self._held_on_device(ids)
            return table.index_select(0, index)
        if self._rows is None:
            return self.source.place(ids, rows)
        slot = self._slot[ids]
        hits, misses = np.flatnonzero(slot >= 0), np.flatnonzero(slot < 0)
        fetched = self.source.place(ids[misses], rows)
        if not len(hits):
            return fetched
        if not len(misses):
            return self._rows.index_select(0, self._moved(slot))
        result = fetched.new_empty(len(ids), fetched.shape[1])
        result.index_copy_(0, self._moved(hits), self._rows.index_select(0, self._moved(slot[hits])))
        return result.index_copy_(0, self._moved(misses), fetched)

    def held(self, ids: np.ndarray | Tensor) -> tuple[Tensor, Tensor] | None:
        """See ``FeatureSource``."""
        if isinstance(ids, Tensor):
            return self._held_on_device(ids)
        slot = self._slot[ids]
        if self._rows is None or not len(slot) or slot.min() < 0:
            return None
        return self._rows, self._moved(slot.astype(np.int64))

    @property
    def has_all(self) -> bool:
        """See ``FeatureSource``."""
        if self._has_all is None:
            self._has_all = self._rows is not None and bool((self._slot[self._accesses.nodes] >= 0).all())
        return self._has_all

    def _held_on_device(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        assert self.has_all and self._rows is not None, "some rows are on the host"
        if self._slot_on_device is None:
            self._slot_on_device = self._moved(self._slot)
        return self._rows, self._slot_on_device.index_select(0, ids).long()

    def begin(self, epoch: int) -> int:
        """See ``FeatureSource``; asks the cache which rows to keep from now on, if it is time."""
        num_read, horizon = self.source.begin(epoch), getattr(self._cache, "horizon", None)
        if self._asked and not (horizon and (epoch - 1) % horizon == 0):
            return num_read
        wanted, self._asked = self._cache.rows(self._accesses, epoch), True
        _check(wanted, len(self._slot), self._cache)
        return num_read + self._hold(wanted)

    @property
    def waits(self) -> bool:
        """See ``FeatureSource``."""
        return self._is_automatic and self._accesses.left_bytes is None

    def take(self, left_bytes: int) -> int:
        """See ``FeatureSource``."""
        reserve = getattr(self._cache, "reserve_megabytes", RESERVE_MEGABYTES)
        self._accesses.left_bytes = int(max(0.0, left_bytes - 1e6 * reserve))
        return self._accesses.room(None)

    def tensors(self) -> list[Tensor]:
        """See ``FeatureSource``."""
        own = self._rows, self._slot_on_device
        return [*self.source.tensors(), *(tensor for tensor in own if tensor is not None)]

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
        step = max(1, FILLED_BYTES // max(1, self.host.row_bytes))
        for some in (slice(first, first + step) for first in range(0, len(new), step)):
            assert self._rows is not None
            self._rows.index_copy_(0, self._moved(free[some]), self.source.fetch(new[some]))
        self._node[free] = new
        self._slot[new] = free
        self._has_all = self._slot_on_device = None
        return len(self.source.missing(new))

    def _resize(self, num_slots: int) -> None:
        """Move the rows that are there to the first of so many slots."""
        kept, node = np.flatnonzero(self._node >= 0), np.full(num_slots, -1)
        node[: len(kept)] = self._node[kept]
        rows = None
        if num_slots:
            like = self.source.fetch(node[:0]) if self._rows is None else self._rows
            rows = like.new_empty(num_slots, like.shape[1])
            if len(kept):
                rows[: len(kept)] = like.index_select(0, self._moved(kept))
        self._node, self._rows = node, rows
        self._slot[node[: len(kept)]] = np.arange(len(kept), dtype=np.int32)

    def _moved(self, index: np.ndarray) -> Tensor:
        return move(torch.from_numpy(index), self.host.device)


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
