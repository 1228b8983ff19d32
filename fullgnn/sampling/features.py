"""The way of the features from the host to the device of a rank.

host      rows of all nodes, encoded (``codecs.py``), once on each machine
fetched   rows of the inputs of a batch that are not cached: gathered on the host, by the rank or by its workers
device    the cached rows (``caches.py``) and the fetched ones in the order of the inputs, then decoded
"""

import numpy as np
import torch
from torch import Tensor

from fullgnn.sampling.codecs import Codec


class FeatureStore:
    """The features of all nodes, as a rank reads them.

    Args:
        rows: (num_nodes, W) encoded rows, on the host.
        codec: has encoded them.
        cached: (k,) int64 ids of the nodes whose rows are kept on ``device``.
        dtype: of the features that ``assemble`` returns.
    """

    def __init__(self, rows: np.ndarray, codec: Codec, cached: np.ndarray, dtype: torch.dtype, device: torch.device):
        self.rows = rows
        self._codec, self._dtype, self._device = codec, dtype, device
        self._slot: np.ndarray | None = None  # (num_nodes,) int32, where a node lies in the cache; -1: nowhere
        if len(cached):
            self._slot = np.full(len(rows), -1, np.int32)
            self._slot[cached] = np.arange(len(cached), dtype=np.int32)
            self._cached_rows = torch.from_numpy(rows[cached]).to(device)

    @property
    def row_bytes(self) -> int:
        """Bytes of an encoded row."""
        return self.rows.shape[1] * self.rows.itemsize

    def fetched(self, inputs: np.ndarray) -> np.ndarray:
        """Those of the (m,) nodes ``inputs`` whose rows are fetched from the host, in their order."""
        return inputs if self._slot is None else inputs[self._slot[inputs] < 0]

    def assemble(self, inputs: np.ndarray, rows: Tensor) -> Tensor:
        """(m, F) features of the (m,) nodes ``inputs``, on the device.

        Args:
            rows: those of ``fetched(inputs)``, on the device.
        """
        if self._slot is not None:
            slot = self._slot[inputs]
            found = rows.new_empty(len(inputs), self.rows.shape[1])
            hits, misses = np.flatnonzero(slot >= 0), np.flatnonzero(slot < 0)
            cached = self._cached_rows.index_select(0, self._moved(slot[hits]))
            rows = found.index_copy_(0, self._moved(hits), cached).index_copy_(0, self._moved(misses), rows)
        return self._codec.decode(rows, self._dtype)

    def tensors(self) -> list[Tensor]:
        """What it keeps on the device, for counting memory."""
        return [] if self._slot is None else [self._cached_rows]

    def _moved(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(index).to(self._device)
