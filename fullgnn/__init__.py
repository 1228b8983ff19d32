"""fullgnn: exact full-batch training of graph neural networks over many GPUs."""

from typing import Any

from fullgnn.errors import ConfigError, DataError, FullGNNError, PartitionError, UnsupportedError
from fullgnn.graph import Graph

__all__ = ["ConfigError", "DataError", "FullGNNError", "Graph", "PartitionError", "UnsupportedError", "train_graph"]


def __getattr__(name: str) -> Any:
    if name == "train_graph":  # imported on use: python -m fullgnn.train must be the first to import that module
        from fullgnn.api import train_graph

        return train_graph
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
