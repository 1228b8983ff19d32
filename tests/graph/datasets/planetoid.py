"""Helpers that test_planetoid.py shares with other test modules."""

import struct

import numpy as np
import scipy.sparse


def py2_string(value):
    return b"T" + struct.pack("<I", len(value)) + value  # BINSTRING, which Python 3 no longer writes


def py2_int(value):
    return b"J" + struct.pack("<i", value)


def py2_array(array):
    """An array as numpy on Python 2 pickled it: _reconstruct(ndarray, (0,), 'b') with the bytes as a str."""
    shape = b"(" + b"".join(map(py2_int, array.shape)) + b"t"
    dtype = b"cnumpy\ndtype\n" + py2_string(array.dtype.str[1:].encode()) + py2_int(0) + py2_int(1) + b"\x87R"
    dtype += b"(" + py2_int(3) + py2_string(b"<") + b"NNN" + py2_int(-1) + py2_int(-1) + py2_int(0) + b"tb"
    new = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + py2_int(0) + b"\x85" + py2_string(b"b") + b"\x87R"
    )
    return new + b"(" + py2_int(1) + shape + dtype + b"\x89" + py2_string(array.tobytes()) + b"tb"


def py2_csr(dense):
    csr = dense if scipy.sparse.issparse(dense) else scipy.sparse.csr_matrix(dense)
    state = py2_string(b"_shape") + py2_int(csr.shape[0]) + py2_int(csr.shape[1]) + b"\x86"
    for name in ("data", "indices", "indptr"):
        state += py2_string(name.encode()) + py2_array(getattr(csr, name))
    return b"cscipy.sparse.csr\ncsr_matrix\n)\x81}(" + state + b"ub"


def py2_graph(graph):
    items = b"".join(py2_int(u) + b"](" + b"".join(map(py2_int, targets)) + b"e" for u, targets in graph.items())
    return b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(" + items + b"u"


# Nodes 0-3 are in allx; 4, 5 and 7 are test nodes, listed unsorted; 6 is skipped, as CiteSeer skips 15 ids.
ALLX = np.float32([[1, 0, 1], [0, 2, 0], [0, 0, 0], [1, 1, 2]])
TX = np.float32([[7, 0, 0], [0, 4, 0], [5, 0, 5]])
TEST_INDEX = [7, 4, 5]
GRAPH = {
    0: [1, 1, 7],
    1: [0],
    2: [2],
    3: [6],
    4: [],
    5: [0, 4],
    6: [3],
    7: [],
}  # duplicates, a self-loop at 2
