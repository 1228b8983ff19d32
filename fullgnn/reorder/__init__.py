"""Renumber the nodes so that neighbours get nearby ids: one file per method.

Contract: ``method(adj, seed) -> perm``, with ``adj`` (n, n) CSR and ``perm`` (n,) int64 as
``scipy.sparse.csgraph`` returns it: new node ``i`` is old node ``perm[i]``. ``adj`` may be directed,
weighted, have self-loops or be empty, and is never written to.

``blockwise`` applies a method inside each part; ``two_level`` combines a partitioner with a method. A caller needs
only these two.

Each name below is the function, also where a module has the same name.
"""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.reorder.metis import metis
    from fullgnn.reorder.rcm import rcm
    from fullgnn.reorder.simple import degree, none, shuffle
    from fullgnn.reorder.slashburn import slashburn
    from fullgnn.reorder.two_level import NodeOrder, blockwise, check_order, two_level

__all__ = [
    "NodeOrder",
    "blockwise",
    "check_order",
    "degree",
    "metis",
    "none",
    "rcm",
    "shuffle",
    "slashburn",
    "two_level",
]

import_on_use(__name__)
