"""The names of all nodes on rank 0, in the original order of the nodes, for the predictions at the end of a run.

The names of a large graph lie in temporary files, which are mapped and have no place in any folder: they go with the
process.
"""

import os
import tempfile
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError
from fullgnn.graph.node_names import NodeNames, Texts
from fullgnn.partition.prepared import PreparedGraph

IN_MEMORY = 1 << 24  # bytes of an array that needs no file
TEXTS_AT_ONCE = 1 << 16


class KeptNames:
    """The names of all nodes of a prepared graph.

    Raises:
        ConfigError: the folder for temporary files has no room.
    """

    def __init__(self, prepared: PreparedGraph):
        num_nodes = prepared.facts.num_nodes
        self._is_text = prepared.facts.nodes.node_names == "texts"
        if not self._is_text:
            self._names = _space(np.int64, num_nodes)
            for part in prepared.parts():
                self._names[part.node_id] = part.node_names
            return
        self._ends = _space(np.int64, num_nodes + 1)
        self._ends[0] = 0
        for part in prepared.parts():
            names = _texts_of(part.node_names)
            self._ends[part.node_id + 1] = names.ends[1:] - names.ends[:-1]
        np.cumsum(self._ends, out=self._ends)
        self._utf8 = _space(np.uint8, int(self._ends[-1]))
        for part in prepared.parts():
            names, starts = _texts_of(part.node_names), self._ends[part.node_id]
            for first in range(0, len(names), TEXTS_AT_ONCE):
                ends = names.ends[first : first + TEXTS_AT_ONCE + 1]
                begin, stop = int(ends[0]), int(ends[-1])
                shift = starts[first : first + len(ends) - 1] - ends[:-1]
                self._utf8[np.arange(begin, stop) + np.repeat(shift, np.diff(ends))] = names.utf8[begin:stop]

    def some(self, first: int, stop: int) -> NodeNames:
        """The names of the nodes from ``first`` up to ``stop``, by original id."""
        if not self._is_text:
            return np.array(self._names[first:stop])
        ends = np.array(self._ends[first : stop + 1])
        return Texts(ends - ends[0], np.array(self._utf8[ends[0] : ends[-1]]))


def kept_names(prepared: PreparedGraph) -> KeptNames | None:
    """The names of the nodes; None: they have none."""
    return KeptNames(prepared) if prepared.facts.nodes.node_names else None


def _texts_of(names: NodeNames | None) -> Texts:
    assert isinstance(names, Texts)
    return names


def _space(dtype: Any, count: int) -> np.ndarray:
    """An array in memory, or in a file that has no name."""
    size = np.dtype(dtype).itemsize * count
    if size <= IN_MEMORY:
        return np.empty(count, dtype)
    try:
        with tempfile.TemporaryFile(prefix="fullgnn-") as file:
            if hasattr(os, "posix_fallocate"):  # otherwise a disk that becomes full would kill the process
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return np.memmap(file, dtype, mode="r+", shape=(count,))
    except OSError as error:
        raise ConfigError(
            f"the names of the nodes cannot be written to {tempfile.gettempdir()} ({error.strerror or error}): set"
            " TMPDIR to a folder with more room, or train.save_predictions=false"
        ) from error
