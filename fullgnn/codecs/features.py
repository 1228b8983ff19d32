"""The features of all nodes, as a codec reads them: block after block, or a sample. They need not fit the memory."""

import logging
import time
from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.graph.sparse_features import NodeFeatures, features_to_arrays, to_dense

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 26
"""Features are read in blocks of about so many bytes."""

PROGRESS_S = 5.0
"""Seconds between two lines of progress."""


class Features:
    """The (num_nodes, F) features of all nodes, of the dtype of the run.

    Args:
        array: in memory or mapped from a file, of any float dtype; or sparse.
        dtype: of the run.
        graph: to which they belong; None: of what is encoded no graph is known.
    """

    def __init__(self, array: NodeFeatures, dtype: str, graph: Graph | None = None):
        self.array, self.dtype, self.graph = array, np.dtype(dtype), graph

    @property
    def num_nodes(self) -> int:
        return self.array.shape[0]

    @property
    def num_columns(self) -> int:
        return self.array.shape[1]

    def slices(self) -> list[slice]:
        """Consecutive rows, each of about ``BLOCK_BYTES``."""
        step = max(1, BLOCK_BYTES // max(1, self.num_columns * self.dtype.itemsize))
        return [slice(first, min(first + step, self.num_nodes)) for first in range(0, self.num_nodes, step)]

    def blocks(self, doing: str) -> Iterator[tuple[slice, np.ndarray]]:
        """The rows of each slice, (m, F), C-contiguous; logs how far it is, if that takes long.

        Args:
            doing: begins the line of progress: "topk: the codebook is learnt".

        Raises:
            DataError: they hold NaN or infinity, or numbers that ``dtype`` does not hold.
        """
        begin = said = time.perf_counter()
        for rows in self.slices():
            yield rows, self[rows]
            now = time.perf_counter()
            if now - said >= PROGRESS_S and rows.stop < self.num_nodes:
                share, said = rows.stop / self.num_nodes, now
                log.info("%s: %.0f %%, about %.0f s more", doing, 100 * share, (now - begin) * (1 / share - 1))

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """(m, F), C-contiguous: some of the rows.

        Raises:
            DataError: see ``blocks``.
        """
        dense = to_dense(self.array[rows], self.dtype)
        if dense.size and not np.isfinite([dense.min(), dense.max()]).all():
            raise DataError(
                f"features hold NaN or infinity, or numbers beyond {self.dtype}, which no codec keeps: mend them, or"
                " leave out codec"
            )
        return dense

    def whole(self) -> np.ndarray:
        """(num_nodes, F), C-contiguous: all of them, without a copy where that is possible."""
        return to_dense(self.array, self.dtype)

    def sparse(self) -> csr_array:
        """(num_nodes, F), all of them as a sparse matrix."""
        return csr_array(self.array).astype(self.dtype, copy=False)

    def identity(self, codec: object) -> dict[str, np.ndarray | str | None]:
        """What an encoding depends on beside the keys of the codec, for the keys of a cache."""
        graph = self.graph if getattr(codec, "reads_graph", False) else None
        known = {} if graph is None else {name: getattr(graph, name) for name in ("indptr", "indices", "weight")}
        return {**features_to_arrays(self.array), "dtype": self.dtype.str, **known}

    def sample(self, num_rows: int, seed: int) -> np.ndarray:
        """(min(num_rows, num_nodes), F): rows drawn without repetition, in the order of their nodes."""
        if num_rows >= self.num_nodes:
            return self[:]
        return self[np.sort(np.random.default_rng(seed).choice(self.num_nodes, num_rows, replace=False))]
