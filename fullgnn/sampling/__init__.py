"""Sampled training: each step reads a sample of the neighbours of some training nodes.

The way of a batch: ``batches`` (which training nodes), ``samplers`` and ``neighbors`` (what they read), ``loader`` (the
features), ``blocks`` (as the blocks that the models of full-batch training read), ``fit`` (the step). ``setup`` puts
them together, and evaluates the model exactly on the full graph.
"""

from fullgnn.sampling.clusters import cluster
from fullgnn.sampling.neighbors import ALL, Draw, Hop, NeighborSampler
from fullgnn.sampling.samplers import Sampler, neighbor

__all__ = ["ALL", "Draw", "Hop", "NeighborSampler", "Sampler", "cluster", "neighbor"]
