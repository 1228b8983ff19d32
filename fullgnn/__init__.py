"""fullgnn: exact full-batch training of graph neural networks over many GPUs."""

import os
from typing import Any

# Read by the OpenMP library as torch loads it: its threads then sleep when idle. Polling, as they do otherwise, they
# take the cores from the compiled kernels that run between torch's operations (see fullgnn/kernels/support/threads.py).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from fullgnn.errors import ConfigError, DataError, FullGNNError, PartitionError, UnsupportedError  # noqa: E402
from fullgnn.graph import Graph  # noqa: E402

__all__ = ["ConfigError", "DataError", "FullGNNError", "Graph", "PartitionError", "UnsupportedError", "train_graph"]


def __getattr__(name: str) -> Any:
    if name == "train_graph":  # imported on use: python -m fullgnn.train must be the first to import that module
        from fullgnn.api import train_graph

        return train_graph
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
