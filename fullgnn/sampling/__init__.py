"""Sampled training: each step reads a sample of the neighbours of some training nodes."""

from fullgnn.sampling.neighbors import ALL, Draw, Hop, NeighborSampler

__all__ = ["ALL", "Draw", "Hop", "NeighborSampler"]
