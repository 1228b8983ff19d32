"""Sampled training: each step reads a sample of the neighbours of some training nodes.

The way of a batch: ``batches`` (which training nodes), ``samplers`` and ``neighbors`` (what they read), ``loader`` and
``features`` (the rows), ``blocks`` (as the blocks that the models of full-batch training read), ``fit`` (the step).
``setup`` puts them together, and evaluates the model exactly on the full graph.
"""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.codecs import BFloat16, Unencoded
    from fullgnn.sampling.caches import (
        Accesses,
        CacheAll,
        CacheByCount,
        CacheByDegree,
        CacheByPresampling,
        CacheExactly,
        CacheNothing,
    )
    from fullgnn.sampling.clusters import cluster
    from fullgnn.sampling.hop import Hop
    from fullgnn.sampling.layers import layer
    from fullgnn.sampling.neighbors import ALL, Draw, NeighborSampler
    from fullgnn.sampling.samplers import Sampler, neighbor

__all__ = [
    "ALL",
    "Accesses",
    "BFloat16",
    "CacheAll",
    "CacheByCount",
    "CacheByDegree",
    "CacheByPresampling",
    "CacheExactly",
    "CacheNothing",
    "Draw",
    "Hop",
    "NeighborSampler",
    "Sampler",
    "Unencoded",
    "cluster",
    "layer",
    "neighbor",
]

import_on_use(__name__)
