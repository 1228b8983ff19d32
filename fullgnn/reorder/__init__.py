"""Renumber the nodes so that neighbours get nearby ids: one file per method, ``blockwise`` applies any.

Contract: ``method(adj, seed) -> perm``, with ``adj`` (n, n) CSR and ``perm`` (n,) int64 as
``scipy.sparse.csgraph`` returns it: new node ``i`` is old node ``perm[i]``. ``adj`` may be directed,
weighted, have self-loops or be empty, and is never written to.

Each name below is the function, also where a file bears the same name.
"""

from fullgnn.reorder.blockwise import blockwise
from fullgnn.reorder.metis import metis
from fullgnn.reorder.rcm import rcm
from fullgnn.reorder.simple import degree, none, shuffle
from fullgnn.reorder.slashburn import slashburn

__all__ = ["blockwise", "degree", "metis", "none", "rcm", "shuffle", "slashburn"]
