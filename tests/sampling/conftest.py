"""Fixtures of several modules of tests of sampled training."""

from tests.sampling.loaders import graph
from tests.sampling.training import graph_files

__all__ = ["graph", "graph_files"]
