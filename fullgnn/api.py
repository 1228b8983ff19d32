"""Train from Python on a graph in memory."""

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch.distributed as dist
from scipy.sparse import issparse

from fullgnn.config import Config, given_targets, target_of
from fullgnn.config.compose import compose, load_config
from fullgnn.config.overrides import quote
from fullgnn.distributed import check_tasks, is_group_left_behind, under_torchrun
from fullgnn.errors import ConfigError, one_line_errors
from fullgnn.given_metrics import GivenMetrics
from fullgnn.given_model import GivenModel, with_given_model
from fullgnn.graph import Graph
from fullgnn.graph.arrays import graph_to_arrays
from fullgnn.graph.convert import as_graph, has_splits_in_columns, is_pyg_data
from fullgnn.graph.datasets import CONTENTS, SPLIT_CURE, UNKNOWN, drawn_split, number_of_split, split_anew
from fullgnn.graph.datasets.npz import SPLIT_KEYS
from fullgnn.graph.labels import is_labelled
from fullgnn.graph.splits import METHODS
from fullgnn.here import start
from fullgnn.storage.cache import Cache
from fullgnn.storage.folder import temporary_folder
from fullgnn.storage.record import RunRecord
from fullgnn.tasks import lacks_examples, learns_labels, refuse_for_links, refuse_without_examples
from fullgnn.train import Caller, run


@one_line_errors
def train_graph(
    graph: Any,
    *settings: str | Mapping[str, Any],
    config_dir: str | os.PathLike[str] | None = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    **groups: Any,
) -> RunRecord:
    """Train on a graph held in Python.

    The keys of a run are those of the command line, and they may be given in three ways, also together:

        train_graph(graph, "scheme=1d", "runtime.nproc=2", "train.epochs=50")
        train_graph(graph, {"scheme": "1d", "runtime.nproc": 2, "train": {"epochs": 50}})
        train_graph(graph, scheme="1d", runtime={"nproc": 2}, train={"epochs": 50})

    In a mapping, and as a keyword, ``name`` within a group is its choice: ``model={"name": "sage", "num_layers": 3}``.
    Of a key that is given twice, the later value holds; keywords are the latest.

    A run of one process takes place in the process that calls; a run of several (``runtime.nproc``) starts them. In a
    script that torchrun started, every rank calls this and joins the job; rank 0's graph is used. A script may call
    this function several times, on all ranks alike, also after a call that raised; calls with one ``run_dir`` need
    ``overwrite=true``, without which a folder that holds a run is refused.

    **In the calling process** the run is that of a new process, to the bit, whatever torch's threads, random states,
    modes and default dtype or device, and the environment, are. All of them are afterwards as they were, also after an
    error. Ctrl-C is a KeyboardInterrupt; while epochs are trained, a checkpoint is written before it, and a second
    Ctrl-C ends without one. In a thread that is not the main one, signals do not end a run. What stays is what was
    imported and compiled, and CUDA, where the run uses a GPU. ``peak_memory_bytes`` of the record is that of the
    process since it started, with all that its caller holds. The log goes to stderr, or wherever the level and the
    handlers of the logger ``fullgnn`` send it, if it has any. A new process is started nevertheless where the caller
    uses torch.distributed, where another thread trains, in a fork, for a dry run, and for ``runtime.deterministic``
    after CUDA has been used.

    **A model of your own** is a class, or a function that returns a module, with the contract of docs/extending.md:
    ``model=Net``, or ``model={"_target_": Net, "hidden_channels": 64}`` with its keys. Where the run starts other
    processes, the class must be one that they can import, and not of a notebook or of the script itself.
    ``model=Net(...)`` is an instance, and trains in one process. It is copied, and has the parameters of the best epoch
    when the call returns; a call that raises leaves it as it was. A prediction calls a class of yours only if its
    command line names it.

    The graph stays beside the run, as ``graph.npz`` in ``run_dir``, where ``python -m fullgnn.predict`` finds it.

    A graph without masks is split at random where ``dataset.train_fraction`` or ``dataset.val_fraction`` is given, by
    ``dataset.seed``; the one that is not given is 0.6 or 0.2. ``dataset.split`` splits any graph with labels, as
    ``Graph.split`` does. A number chooses a column of masks (num_nodes, s), one for each split: ``"dataset.split=3"``.

    With ``runtime.cache_dir``, a prepared graph is known by its arrays: a second call with an equal graph and the same
    settings finds it.

    Args:
        graph: a ``Graph``; a PyTorch Geometric ``Data``, a DGLGraph or a dataset of OGB, of which ``Graph.from_pyg``,
            ``Graph.from_dgl`` and ``Graph.from_ogb`` say what is read; a networkx graph or a scipy sparse matrix, which
            have edges only, enough for a task that finds links. For other tasks pass features, labels and masks to
            ``Graph.from_networkx`` or ``Graph.from_scipy``.
        settings: strings, as on the command line, and mappings of keys to values.
        config_dir: a folder with YAML files of your own, as ``--config-dir`` of the command line.
        metrics: metrics of your own by name, as ``{"mcc": f}``, of a task that learns labels. On rank 0,
            ``f(predictions, labels)`` gets the arrays of all nodes of a split, and also the outputs of the model if it
            has a parameter ``output``, and returns a number, or None. Where the run starts other processes, they must
            be able to import it.
        groups: values by group or by key without a dot.

    Raises:
        FullGNNError: a user error.
    """
    given_metrics = GivenMetrics(metrics or {})
    overrides, model = with_given_model([*settings, groups, *given_metrics.settings])
    _check_keys(groups, overrides)
    folders = _folders(config_dir)
    given, graph = graph, _graph_of(graph, overrides, folders)
    joined = under_torchrun()
    targets = given_metrics.targets | ({} if model is None else model.targets)
    with temporary_folder() as folder, given_targets(targets):
        path = folder / "graph.npz"
        written = {"name": graph.name, "path": str(path), CONTENTS: UNKNOWN}
        keys = [f"dataset.{key}={quote(value)}" for key, value in written.items()]
        overrides = ["dataset=npz", *keys, *overrides]
        cfg = load_config(compose(*overrides, folders=folders))
        check_tasks(cfg.runtime)
        graph = _with_split(given, graph, cfg, overrides)
        _check_examples(given, graph, cfg)
        if cfg.runtime.cache_dir is not None:
            cfg.dataset[CONTENTS] = f"{contents_of(graph, cfg.runtime.cache_dir)} {path}"
            overrides.append(f"dataset.{CONTENTS}={quote(cfg.dataset[CONTENTS])}")
        if not joined or os.environ["RANK"] == "0":  # only rank 0 reads the file
            graph.save(path)
        if joined:
            return run_as_rank(cfg, model)
        flags = [f"--config-dir={folder}" for folder in folders]
        overrides = [*flags, *overrides, f"run_dir={quote(cfg.run_dir)}"]
        return start(cfg, overrides, model, given_metrics.why_only_here)


def _folders(config_dir: str | os.PathLike[str] | None) -> list[str]:
    """The folders of YAML files of the user.

    Raises:
        ConfigError: it is no folder.
    """
    if config_dir is None:
        return []
    if not isinstance(config_dir, (str, os.PathLike)) or not os.path.isdir(config_dir):
        raise ConfigError(f"config_dir={config_dir} is no folder: give the folder of your own YAML files")
    return [os.path.abspath(config_dir)]


def run_as_rank(cfg: Config, model: GivenModel | None) -> RunRecord:
    """Run one training on this rank of torchrun's job.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    if dist.is_initialized() and not is_group_left_behind():
        raise ConfigError(
            "torch.distributed is in use in this process, and train_graph joins the job of torchrun itself: call"
            " torch.distributed.destroy_process_group() before"
        )
    if model is None:
        return run(cfg)
    size = int(os.environ["WORLD_SIZE"])
    if model.is_instance and size > 1:
        raise ConfigError(f"{model.why_only_here}; or train in one process, and torchrun has started {size}")
    model.check(cfg)
    return run(cfg, Caller(trained=model.take))


def contents_of(graph: Graph, cache_dir: str) -> str:
    """The SHA-256 of the fields of ``graph``, by which its prepared graph is known."""
    return Cache(cache_dir).key(name=graph.name, **graph_to_arrays(graph))


def _graph_of(given: Any, overrides: list[str], folders: list[str]) -> Graph:
    """The ``Graph`` of what is ``given``; of masks with several columns, with the one that ``dataset.split`` chooses.

    Raises:
        FullGNNError: a user error.
    """
    if not has_splits_in_columns(given):
        return as_graph(given)
    dataset = load_config(compose("dataset=npz", *overrides, folders=folders)).dataset
    drawn = drawn_split(dataset, target_of(dataset))
    return as_graph(given, number_of_split(dataset["split"]) if drawn is None else drawn.method)


def _with_split(given: Any, graph: Graph, cfg: Config, overrides: list[str]) -> Graph:
    """``graph``, made of what is ``given``, split as the keys of ``dataset`` ask for it.

    A graph without masks is split at random where a fraction is given; ``dataset.split`` names any other way, also for
    a graph with masks.

    Raises:
        ConfigError: keys of a split are given, and would do nothing, or do not fit the graph.
    """
    drawn = drawn_split(cfg.dataset, target_of(cfg.dataset))
    if drawn is not None:
        refuse_for_links(cfg.task, f"dataset.split={drawn.method}")
        return split_anew(graph, drawn, lambda: None)
    number = number_of_split(cfg.dataset["split"])
    if number is not None and not has_splits_in_columns(given):
        have = "the masks have one split" if _is_split(graph) else "there are no masks"
        raise ConfigError(
            f"dataset.split={number} chooses a column of masks, and {have}: leave it out, or name a method:"
            f" {', '.join(METHODS)}"
        )
    keys = [arg for arg in overrides if arg.partition("=")[0].lstrip("+") in [f"dataset.{key}" for key in SPLIT_KEYS]]
    if not keys:
        return graph
    refuse_for_links(cfg.task, " and ".join(keys))
    why = None
    if _is_split(graph):
        why = "the graph has masks, which are its split; dataset.split=random replaces them"
    elif not is_labelled(graph.labels).any():
        why = "the graph has no labels, whose nodes could be split"
    if why is not None:
        raise ConfigError(f"{' and '.join(keys)} would do nothing, since {why}: leave out what is given of them")
    train, val, seed = (cfg.dataset[key] for key in SPLIT_KEYS)
    if train is None and val is None:
        return graph  # a seed alone asks for no split
    return graph.split("random", train_fraction=train, val_fraction=val, seed=seed)


def _is_split(graph: Graph) -> bool:
    """Whether a mask of the ``graph`` has a node."""
    return bool(graph.train_mask.any() or graph.val_mask.any() or graph.test_mask.any())


def _check_keys(groups: Mapping[str, Any], overrides: list[str]) -> None:
    """Refuse another dataset, and node data as keywords.

    Raises:
        ConfigError: one line that says what to remove or to pass.
    """
    for override in overrides:
        if override.partition("=")[0].lstrip("+") in (
            "dataset",
            "dataset.path",
            "dataset._target_",
            f"dataset.{CONTENTS}",
        ):
            raise ConfigError(f"train_graph has its graph already: remove {override}")
    for field in fields(Graph):
        if field.name in groups:
            raise ConfigError(
                f"{field.name} is no key of a run but belongs to the graph: pass a fullgnn.Graph, as in"
                f" Graph.from_networkx(g, {field.name}=...)"
            )


def _check_examples(given: Any, graph: Graph, cfg: Config) -> None:
    """Refuse the ``graph``, made of ``given``, if there is nothing to train on.

    Raises:
        DataError: one line that says what is missing, and what to pass.
    """
    lacks = lacks_examples(graph) if learns_labels(cfg.task) else []
    kind = f"{type(given).__name__} of {type(given).__module__.partition('.')[0]}"
    if given is graph or isinstance(given, Graph):
        what, cure = f"the graph {graph.name}", f"pass {' and '.join(f'{name}=...' for name in lacks)} to the Graph"
    elif is_pyg_data(given):
        lacks = ["y" if name == "labels" else name for name in lacks]
        what, cure = f"the {kind}", f"set {' and '.join(lacks)}"
    else:
        call = "from_scipy(adj" if issparse(given) else "from_networkx(g"
        what, cure = f"the {kind}", f"pass fullgnn.Graph.{call}, features=..., labels=..., train_mask=...)"
    if lacks == ["train_mask"]:
        cure += f", or {SPLIT_CURE.replace('give', 'set', 1)}"
    refuse_without_examples(cfg.task, what, lacks, cure)
