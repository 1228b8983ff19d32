"""Train from Python on a graph in memory."""

import os
import tempfile
from pathlib import Path

from fullgnn.config.compose import compose, load_config
from fullgnn.config.overrides import quote
from fullgnn.distributed import under_torchrun
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.storage.record import RunRecord
from fullgnn.train import run, start


def train_graph(graph: Graph, *overrides: str) -> RunRecord:
    """Train on a graph held in Python, with ``overrides`` as on the command line.

    In a script that torchrun started, every rank calls this and joins the job; rank 0's graph is used. Otherwise this
    function starts the ranks. In both cases the graph travels through a temporary file, as ``dataset=npz``. A script
    may call this function several times, on all ranks alike, also after a call that raised; calls with one ``run_dir``
    need ``overwrite=true``, without which a folder that holds a run is refused.

    Raises:
        FullGNNError: a user error.
    """
    for override in overrides:
        if override.startswith("dataset="):
            raise ConfigError(f"train_graph has its graph already: remove {override}")
    joined = under_torchrun()
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
        path = Path(folder) / "graph.npz"
        if not joined or os.environ["RANK"] == "0":  # only rank 0 reads the file
            graph.save(path)
        overrides = ("dataset=npz", f"dataset.name={quote(graph.name)}", f"dataset.path={quote(str(path))}", *overrides)
        cfg = load_config(compose(*overrides))
        if joined:
            return run(cfg)
        cfg.run_dir = os.path.abspath(cfg.run_dir)
        return start(cfg, [*overrides, f"run_dir={quote(cfg.run_dir)}"])
