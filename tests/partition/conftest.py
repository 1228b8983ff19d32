"""The graphs of the reorderings serve the partitioners too."""

from tests.reorder.conftest import planted, tiny_graph

__all__ = ["planted", "tiny_graph"]
