"""Cut the nodes into block rows: one file per partitioner, but for those that look at no edge.

Contract: ``partitioner(adj, train_mask, num_parts, seed, **own keys) -> Cut``, with ``adj`` (n, n) CSR as the dataset
stores it, before normalisation, and ``train_mask`` (n,) bool. ``adj`` may be directed, weighted, have self-loops or
be empty, and is never written to. Parts may be empty, as they are with fewer nodes than parts.

Each name below is the function, also where a module has the same name.
"""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.partition.metis import metis
    from fullgnn.partition.nnz import nnz
    from fullgnn.partition.partition import Cut, Partition, contiguous, random

__all__ = ["Cut", "Partition", "contiguous", "metis", "nnz", "random"]

import_on_use(__name__)
