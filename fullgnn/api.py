"""Train from Python on a graph in memory."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from scipy.sparse import issparse

from fullgnn.config import Config
from fullgnn.config.compose import compose, load_config
from fullgnn.config.overrides import as_overrides, quote
from fullgnn.distributed import under_torchrun
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph
from fullgnn.graph.convert import as_graph
from fullgnn.graph.labels import is_labelled
from fullgnn.graph.pyg import is_pyg_data
from fullgnn.storage.record import RunRecord
from fullgnn.tasks import takes_links
from fullgnn.train import run, start


def train_graph(graph: Any, *settings: str | Mapping[str, Any], **groups: Any) -> RunRecord:
    """Train on a graph held in Python.

    The keys of a run are those of the command line, and they may be given in three ways, also together:

        train_graph(graph, "scheme=1d", "runtime.nproc=2", "train.epochs=50")
        train_graph(graph, {"scheme": "1d", "runtime.nproc": 2, "train": {"epochs": 50}})
        train_graph(graph, scheme="1d", runtime={"nproc": 2}, train={"epochs": 50})

    In a mapping, and as a keyword, ``name`` within a group is its choice: ``model={"name": "sage", "num_layers": 3}``.
    Of a key that is given twice, the later value holds; keywords are the latest.

    In a script that torchrun started, every rank calls this and joins the job; rank 0's graph is used. Otherwise this
    function starts the ranks. In both cases the graph travels through a temporary file, as ``dataset=npz``. A script
    may call this function several times, on all ranks alike, also after a call that raised; calls with one ``run_dir``
    need ``overwrite=true``, without which a folder that holds a run is refused.

    Args:
        graph: a ``Graph``; a PyTorch Geometric ``Data``, of which ``Graph.from_pyg`` says what is read; a networkx
            graph or a scipy sparse matrix, which have edges only, enough for a task that finds links. For other tasks
            pass features, labels and masks to ``Graph.from_networkx`` or ``Graph.from_scipy``.
        settings: strings, as on the command line, and mappings of keys to values.
        groups: values by group or by key without a dot.

    Raises:
        FullGNNError: a user error.
    """
    overrides = as_overrides([*settings, groups])
    _check_keys(groups, overrides)
    given, graph = graph, as_graph(graph)
    joined = under_torchrun()
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
        path = Path(folder) / "graph.npz"
        name, file = quote(graph.name), quote(str(path))
        overrides = ["dataset=npz", f"dataset.name={name}", f"dataset.path={file}", *overrides]
        cfg = load_config(compose(*overrides))
        if given is not graph:
            _check_node_data(given, graph, cfg)
        if not joined or os.environ["RANK"] == "0":  # only rank 0 reads the file
            graph.save(path)
        if joined:
            return run(cfg)
        cfg.run_dir = os.path.abspath(cfg.run_dir)
        return start(cfg, [*overrides, f"run_dir={quote(cfg.run_dir)}"])


def _check_keys(groups: Mapping[str, Any], overrides: list[str]) -> None:
    """Refuse another dataset, and node data as keywords.

    Raises:
        ConfigError: one line that says what to remove or to pass.
    """
    for override in overrides:
        if override.partition("=")[0].lstrip("+") in ("dataset", "dataset.path", "dataset._target_"):
            raise ConfigError(f"train_graph has its graph already: remove {override}")
    for field in fields(Graph):
        if field.name in groups:
            raise ConfigError(
                f"{field.name} is no key of a run but belongs to the graph: pass a fullgnn.Graph, as in"
                f" Graph.from_networkx(g, {field.name}=...)"
            )


def _check_node_data(given: Any, graph: Graph, cfg: Config) -> None:
    """Refuse the ``graph`` of another library, made of ``given``, if there is nothing to train on.

    Raises:
        DataError: one line that says what is missing.
    """
    present = {"labels": is_labelled(graph.labels).any(), "train_mask": graph.train_mask.any()}
    if takes_links(cfg.task) or all(present.values()):
        return
    lacks = [name for name in present if not present[name]]
    cure = "pass fullgnn.Graph.{}({}, features=..., labels=..., train_mask=...)"
    if is_pyg_data(given):
        lacks = ["y" if name == "labels" else name for name in lacks]
        cure = f"set {' and '.join(lacks)}"
    else:
        cure = cure.format("from_scipy", "adj") if issparse(given) else cure.format("from_networkx", "g")
    kind = f"{type(given).__name__} of {type(given).__module__.partition('.')[0]}"
    raise DataError(
        f"the {kind} has no {' and no '.join(lacks)}, and task={cfg.task['name']} learns from labelled nodes: {cure}"
    )
