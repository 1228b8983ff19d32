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


class _Ids:
    """Ids and their numbers.

    Args:
        utf8: where the bytes of texts are collected; None: ids are integers.
    """

    def __init__(self, utf8: GrowingArray | None) -> None:
        self._keys, self._utf8 = GrowingArray(np.int64), utf8
        self._num_starts = 0 if utf8 is None else 1  # where the first text begins, before the end of each text
        self._keys.add(self._num_starts)[:] = 0
        self._slots = np.full(_LEAST_SLOTS, -1, np.int32)

    def __len__(self) -> int:
        return self._keys.length - self._num_starts

    def find(self, keys: np.ndarray, utf8: np.ndarray | None = None) -> np.ndarray:
        """(n,) int32, the number of each id; -1: it has none.

        Args:
            keys: (n,) int64 integers; of texts, (n + 1,) int32 or int64, text i is ``utf8[keys[i] : keys[i + 1]]``.
            utf8: uint8.
        """
        codes, known = np.empty(len(keys) - self._num_starts, np.int32), self._known()
        pieces = even_slices(len(codes), max(1, min(PIECES, len(codes) // _LEAST_PIECE)))
        parallel_for(lambda some: compiled.find(keys, utf8, *known, self._slots, codes, some.start, some.stop), pieces)
        return codes

    def number(self, keys: np.ndarray, utf8: np.ndarray | None = None) -> np.ndarray:
        """(n,) int32, the number of each id; new ones get the next numbers. See ``find``."""
        codes, place = self.find(keys, utf8), 0
        while True:
            limit = int(_LOAD * len(self._slots))
            most = min(limit, len(self) + len(codes) - place)
            self._keys.reserve(most + self._num_starts)
            place, count = compiled.add(keys, utf8, *self._known(), self._slots, codes, place, len(self), most)
            self._keys.length = count + self._num_starts
            if self._utf8 is not None:
                self._utf8.length = int(self._keys.rows[-1])
            if place == len(codes):
                return codes
            if self._utf8 is not None:
                needed = max(keys[place + 1] - keys[place], (keys[-1] - keys[place]) // 8)
                self._utf8.reserve(self._utf8.length + int(needed))
            if count == limit:
                check_num_nodes(count + 1)
                self._slots = np.full(2 * len(self._slots), -1, np.int32)
                compiled.fill(*self._known(), count, self._slots)

    def _known(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The keys and the bytes of all ids that have a number, with the room behind them."""
        return self._keys.space, None if self._utf8 is None else self._utf8.space


class IntegerIds(_Ids):
    """int64 ids and their numbers."""

    def __init__(self) -> None:
        super().__init__(None)

    @property
    def names(self) -> np.ndarray:
        """(num_ids,) int64, by number."""
        return self._keys.rows

    def in_order(self) -> np.ndarray:
        """(num_ids,) int64, the numbers of the ids, ascending by id."""
        return np.argsort(self.names)


class TextIds(_Ids):
    """Texts and their numbers. A list of texts comes as Arrow keeps it: starts, and the bytes of all texts."""

    def __init__(self) -> None:
        self._bytes = GrowingArray(np.uint8)
        super().__init__(self._bytes)

    @property
    def names(self) -> Texts:
        """The texts, by number."""
        return Texts(self._keys.rows, self._bytes.rows)

    def in_order(self) -> np.ndarray:
        """(num_ids,) int64, the numbers of the texts, ascending by their bytes, which is the order of Unicode."""
        import pyarrow.compute

        return pyarrow.compute.array_sort_indices(self.names.to_arrow()).to_numpy().astype(np.int64, copy=False)


def ranks_in(order: np.ndarray, dtype: Any = np.int32) -> np.ndarray:
    """The inverse of a permutation: the place of each number in ``order``."""
    ranks = np.empty(len(order), dtype)
    ranks[order] = np.arange(len(order), dtype=dtype)
    return ranks


def numbered(ids: IntegerIds | TextIds, num_given: int = 0) -> tuple[np.ndarray | None, NodeNames]:
    """The number of each node by the order in which its id arrived, or None; and the names of the nodes by number.

    Nodes that are given in an order keep it, and the others follow in ascending order: integers by value, texts by
    Unicode.

    Args:
        num_given: how many ids, which arrived first, are those of nodes in an order, as of tables of nodes.
    """
    if num_given and len(ids) == num_given:
        return None, ids.names[np.arange(num_given)]  # without the room that ``ids`` has for others
    order = ids.in_order()
    if num_given:
        order = np.concatenate([np.arange(num_given), order[order >= num_given]])
    return ranks_in(order), ids.names[order]
