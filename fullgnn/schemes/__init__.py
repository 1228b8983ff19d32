"""Distributed algorithms: who holds which block, and how A @ H is computed from them."""

from fullgnn.schemes.base import Scheme, ShardedAdjacency, ShardedGraph
from fullgnn.schemes.one_and_half_d import OneAndHalfD, one_and_half_d, one_d

__all__ = ["OneAndHalfD", "Scheme", "ShardedAdjacency", "ShardedGraph", "one_and_half_d", "one_d"]
