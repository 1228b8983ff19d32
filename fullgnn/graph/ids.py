"""Number the ids of nodes, integers or texts of any kind, while they arrive piece by piece.

``IntegerIds`` and ``TextIds`` give each new id the next number. Ids are looked up on all threads, and new ones are
added on one, so that the numbers follow the order in which the ids arrive. An id takes its own bytes and about 8 bytes
of a hash table.
"""

from typing import Any

import numpy as np

from fullgnn.graph import _ids_cpu as compiled
from fullgnn.graph.checks import check_num_nodes
from fullgnn.graph.growing import GrowingArray
from fullgnn.graph.node_names import NodeNames, Texts
from fullgnn.kernels.support.process import PIECES, even_slices, parallel_for

_LEAST_SLOTS = 1 << 10
_LOAD = 0.6  # ids by slot, at most
_LEAST_PIECE = 1 << 12  # ids that are worth a thread


class IntegerIds:
    """int64 ids and their numbers."""

    def __init__(self) -> None:
        self._ids = GrowingArray(np.int64)
        self._slots = np.full(_LEAST_SLOTS, -1, np.int32)

    def __len__(self) -> int:
        return self._ids.length

    @property
    def names(self) -> np.ndarray:
        """(num_ids,) int64, by number."""
        return self._ids.rows

    def find(self, values: np.ndarray) -> np.ndarray:
        """(n,) int32, the number of each of the int64 ``values``; -1: it has none."""
        codes, ids = np.empty(len(values), np.int32), self._ids.space

        def find(some: slice) -> None:
            compiled.find_integers(values[some], ids, self._slots, codes[some])

        parallel_for(find, _pieces(len(values)))
        return codes

    def number(self, values: np.ndarray) -> np.ndarray:
        """(n,) int32, the number of each of the int64 ``values``; new ones get the next numbers."""
        codes, place = self.find(values), 0
        while True:
            most = min(int(_LOAD * len(self._slots)), len(self) + len(values) - place)
            self._ids.reserve(most)
            arrays = self._ids.space, self._slots, codes
            place, self._ids.length = compiled.add_integers(values, *arrays, place, len(self), most)
            if place == len(values):
                return codes
            check_num_nodes(len(self) + 1)
            self._slots = np.full(2 * len(self._slots), -1, np.int32)
            compiled.fill_integers(self._ids.rows, self._slots)

    def in_order(self) -> np.ndarray:
        """(num_ids,) int64, the numbers of the ids, ascending by id."""
        return np.argsort(self.names)


class TextIds:
    """Texts and their numbers. A list of texts comes as Arrow keeps it: starts, and the bytes of all texts."""

    def __init__(self) -> None:
        self._ends = GrowingArray(np.int64)
        self._ends.add(1)[:] = 0
        self._utf8 = GrowingArray(np.uint8)
        self._slots = np.full(_LEAST_SLOTS, -1, np.int32)

    def __len__(self) -> int:
        return self._ends.length - 1

    @property
    def names(self) -> Texts:
        """The texts, by number."""
        return Texts(self._ends.rows, self._utf8.rows)

    def find(self, starts: np.ndarray, utf8: np.ndarray) -> np.ndarray:
        """(n,) int32, the number of each text; -1: it has none.

        Args:
            starts: (n + 1,) int32 or int64, text i is ``utf8[starts[i] : starts[i + 1]]``.
            utf8: uint8.
        """
        codes, known = np.empty(len(starts) - 1, np.int32), (self._ends.space, self._utf8.space)

        def find(some: slice) -> None:
            compiled.find_texts(starts[some.start : some.stop + 1], utf8, *known, self._slots, codes[some])

        parallel_for(find, _pieces(len(codes)))
        return codes

    def number(self, starts: np.ndarray, utf8: np.ndarray) -> np.ndarray:
        """(n,) int32, the number of each text; new ones get the next numbers. See ``find``."""
        codes, place = self.find(starts, utf8), 0
        while True:
            most = min(int(_LOAD * len(self._slots)), len(self) + len(codes) - place)
            self._ends.reserve(most + 1)
            arrays = self._ends.space, self._utf8.space, self._slots, codes
            place, count = compiled.add_texts(starts, utf8, *arrays, place, len(self), most)
            self._ends.length = count + 1
            self._utf8.length = int(self._ends.rows[-1])
            if place == len(codes):
                return codes
            size = int(starts[place + 1] - starts[place])
            self._utf8.reserve(self._utf8.length + max(size, int(starts[-1] - starts[place]) // 8))
            if count == int(_LOAD * len(self._slots)):
                check_num_nodes(count + 1)
                self._slots = np.full(2 * len(self._slots), -1, np.int32)
                compiled.fill_texts(self._ends.rows, self._utf8.space, self._slots)

    def in_order(self) -> np.ndarray:
        """(num_ids,) int64, the numbers of the texts, ascending by their bytes, which is the order of Unicode."""
        import pyarrow.compute

        names = self.names
        buffers = [None, pyarrow.py_buffer(names.ends), pyarrow.py_buffer(names.utf8)]
        array = pyarrow.LargeBinaryArray.from_buffers(pyarrow.large_binary(), len(names), buffers)
        return pyarrow.compute.array_sort_indices(array).to_numpy().astype(np.int64, copy=False)


def ranks_in(order: np.ndarray, dtype: Any = np.int32) -> np.ndarray:
    """The inverse of a permutation: the place of each number in ``order``."""
    ranks = np.empty(len(order), dtype)
    ranks[order] = np.arange(len(order), dtype=dtype)
    return ranks


def as_node_names(names: NodeNames) -> NodeNames | None:
    """The ``names`` of a graph; None, if they are 0, 1, 2, ..., which the nodes have without names."""
    if isinstance(names, np.ndarray) and np.array_equal(names, np.arange(len(names))):
        return None
    return names


def _pieces(length: int) -> list[slice]:
    return even_slices(length, max(1, min(PIECES, length // _LEAST_PIECE)))
