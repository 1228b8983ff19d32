"""fullgnn: exact full-batch training of graph neural networks over many GPUs."""

import os

from fullgnn import startup  # isort: skip
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Read by the OpenMP library as torch loads it: its threads then sleep when idle. Polling, as they do otherwise, they
# take the cores from the compiled kernels that run between torch's operations (see fullgnn/kernels/support/threads.py).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

startup.begin()

from fullgnn.errors import ConfigError, DataError, FullGNNError, PartitionError, UnsupportedError  # noqa: E402
from fullgnn.graph import Graph  # noqa: E402

if TYPE_CHECKING:
    from fullgnn.api import train_graph
    from fullgnn.inspection import inspect

    __version__: str

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


def __getattr__(name: str) -> Any:
    if name == "train_graph":  # imported on use: python -m fullgnn.train must be the first to import that module
        from fullgnn.api import train_graph

        return train_graph
    if name == "inspect":  # also the name of the command: see fullgnn/inspect.py
        from fullgnn.inspection import inspect

        return inspect
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    """The version of this code: that of its checkout, or of the installed package; ``unknown`` where neither is there.

    The checkout goes first, because the metadata may be those of another copy that is installed.
    """
    from configparser import ConfigParser
    from importlib.metadata import PackageNotFoundError, version

    checkout = ConfigParser(interpolation=None)
    checkout.read(Path(__file__).parents[1] / "setup.cfg")
    if checkout.get("metadata", "name", fallback=None) == "fullgnn":
        return checkout["metadata"]["version"]
    try:
        return version("fullgnn")
    except PackageNotFoundError:
        return "unknown"
