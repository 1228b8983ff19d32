"""fullgnn: exact full-batch training of graph neural networks over many GPUs."""

import os

from fullgnn import startup  # isort: skip
from typing import TYPE_CHECKING

# Read by the OpenMP library as torch loads it: its threads then sleep when idle. Polling, as they do otherwise, they
# take the cores from the compiled kernels that run between torch's operations (see fullgnn/kernels/support/process.py).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

startup.begin()

from fullgnn.room import import_on_use  # noqa: E402

if TYPE_CHECKING:
    from fullgnn.api import train_graph
    from fullgnn.errors import ConfigError, DataError, FullGNNError, PartitionError, UnsupportedError
    from fullgnn.graph import Graph
    from fullgnn.report.inspection import inspect
    from fullgnn.version import __version__

__all__ = [
    "ConfigError",
    "DataError",
    "FullGNNError",
    "Graph",
    "PartitionError",
    "UnsupportedError",
    "__version__",
    "inspect",
    "train_graph",
]

import_on_use(__name__)
