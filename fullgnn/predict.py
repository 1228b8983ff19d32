"""Predict with a trained model, or write what one of its layers computes, for every node of a graph.

    python -m fullgnn.predict checkpoint=runs/mine
    python -m fullgnn.predict checkpoint=runs/mine dataset=npz dataset.path=other.npz runtime.nproc=4
    torchrun --nproc-per-node 4 -m fullgnn.predict checkpoint=runs/mine/checkpoints/epoch_000100 layer=0 out=vectors
    python -m fullgnn.predict checkpoint=runs/mine --config-dir=my_conf model=my_model

The files, in the original order of the nodes, are read with ``numpy.load(..., mmap_mode="r")``:

    predictions.npy   what the task predicts: (num_nodes,) classes, or one column for each label or number
    outputs.npy       (num_nodes, num_outputs), what the model computes, such as logits
    metrics.json      the metrics of all splits, if the graph has labels
    predictions.parquet or .csv
                      the predictions with the names of nodes and classes, if there are names; see prediction_table
    embeddings.npy    with layer=...: (num_nodes, channels), in place of the others

Every rank computes the rows of its own nodes. They travel to rank 0 part by part, and rank 0 writes each part to its
place in the files. So no rank ever holds the results of all nodes.

A checkpoint may come from anywhere. What it asks for is called only where a YAML file of fullgnn itself, of the same
group, calls the same; a model of your own is named on the command line, as in the last example. Nothing is written but
the files in ``out``, and what the command line names, such as ``runtime.cache_dir``.
"""

import dataclasses
import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

import torch
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fullgnn.codecs import CodecContext
from fullgnn.config import Config, RuntimeConfig
from fullgnn.config.compose import compose, load_config
from fullgnn.config.keys import CONFIG_FLAGS, check_choices, config_folders, help_with_keys, load_keys
from fullgnn.config.overrides import quote
from fullgnn.config.schema import TABLES
from fullgnn.config.trust import Calls, as_text, calls_of, check_calls, restored, trusted_node
from fullgnn.distributed import (
    World,
    broadcast_object,
    can_fork,
    check_tasks,
    default_nproc,
    fork_workers,
    from_rank0,
    init_world,
    launch_workers,
    under_torchrun,
    warn_of_crowding,
)
from fullgnn.distributed.command import run_command
from fullgnn.engine.checkpoints import fitting
from fullgnn.engine.checks import check_deterministic, check_preparation
from fullgnn.engine.passes import predict as predict_outputs
from fullgnn.engine.prediction import (
    WEIGHTS,
    Trained,
    check_fits,
    check_size,
    has_metrics,
    layer_name,
    layer_output,
    load_parameters,
    read_trained,
)
from fullgnn.engine.prediction_table import CSV, PARQUET, STEM, named_table, write_named
from fullgnn.engine.row_files import write_rows
from fullgnn.engine.run import Run, distribute, learn, make_scheme, prepare_input
from fullgnn.errors import ConfigError, DataError, message_of, quoted
from fullgnn.graph import check_dataset
from fullgnn.graph.datasets import dataset_files
from fullgnn.prepare.process import PreparationWorker, own_process_of_rank0
from fullgnn.prepare.source import Preparation, prepared_graph
from fullgnn.schemes.options import num_parts
from fullgnn.storage.folder import CHECKPOINTS, write_text, writing_to
from fullgnn.storage.record import strict_json
from fullgnn.tasks.own_metrics import without_own_metrics
from fullgnn.telemetry.log import setup_logging
from fullgnn.telemetry.meter import Meter

log = logging.getLogger("fullgnn.predict")  # also when this file is __main__

REPLACEABLE = ("dataset", "scheme", "partition", "reorder", "kernel", "optimizations", "runtime")
"""Groups of the trained run that the command line may replace."""
FIXED = ("model", "task", "codec", "seed", "normalization", "self_loops", "runtime.dtype")
"""Keys and groups of the trained run without which its parameters mean nothing."""
OF_RUNTIME = ("dtype", "deterministic")
"""Keys of ``runtime`` that are taken from the trained run. The others say what the machine has, and where it writes."""
NAMED = ("model", "task", "optimizer", "schedule", "sampler", "cache", "codec")
"""Groups of which the command line may only name the choice, or the ``_target_``, of the trained run. The run needs it
if a YAML file of the user names it."""

METRICS = "metrics.json"
_OF_RUN = "of the trained run"  # the choice of each group that is that of the trained run


@dataclass
class PredictConfig:
    """The keys of ``conf/predict.yaml``, which explains them."""

    checkpoint: Optional[str] = MISSING
    weights: str = MISSING
    layer: Optional[str] = MISSING
    out: Optional[str] = MISSING
    prediction_table: str = MISSING
    overwrite: bool = MISSING


@dataclass(frozen=True)
class PredictionRequest:
    """What the command line asks for, before the checkpoint is read."""

    keys: PredictConfig
    overrides: list[str]  # of the configuration of the trained run
    named: list[str]  # overrides that name the ``_target_`` of a group, directly or by its choice
    folders: list[str]  # with YAML files of the user
    runtime: RuntimeConfig  # the settings of this machine

    @property
    def checkpoint(self) -> str:
        assert self.keys.checkpoint is not None  # load_request has checked it
        return self.keys.checkpoint


def load_request(arguments: list[str]) -> PredictionRequest:
    """Read the ``arguments`` of the command line.

    Raises:
        ConfigError: one line that names the key, what is wrong with it and what it may be.
    """
    own_keys = [field.name for field in dataclasses.fields(PredictConfig)]
    own: list[str] = []
    overrides: list[str] = []
    folders, arguments = config_folders(arguments)
    for argument in arguments:
        (own if _check_key(argument, own_keys) in own_keys else overrides).append(argument)
    keys = load_keys("predict", PredictConfig, own)
    if keys.checkpoint is None:
        raise ConfigError("checkpoint has no value: give checkpoint=..., a run folder or a checkpoint of one")
    check_choices("weights", [keys.weights], WEIGHTS)
    check_choices("prediction_table", [keys.prediction_table], TABLES)
    machine = [override for override in overrides if _group(override) == "runtime"]
    runtime = load_config(compose(*machine, folders=folders)).runtime
    named = [override for override in overrides if _names_target(override)]
    return PredictionRequest(
        keys, [override for override in overrides if _group(override) not in NAMED], named, folders, runtime
    )


def _check_key(argument: str, own_keys: list[str]) -> str:
    """The key or group that ``argument`` sets. Raises: as ``load_request``."""
    key, group = _key(argument), _group(argument)
    if group in NAMED and _names_target(argument):
        return group
    fixed = next((prefix for prefix in FIXED if f"{key}.".startswith(f"{prefix}.")), None)
    if fixed is not None:
        raise _is_fixed(key, fixed)
    known = [*own_keys, *REPLACEABLE]
    if group in known and key != "runtime.dry_run":
        return group
    if group in (*(field.name for field in dataclasses.fields(Config)), *NAMED, "experiment"):
        raise ConfigError(f"{key} is a key of training, and not of predictions: leave it out")
    near = difflib.get_close_matches(group, known, n=1, cutoff=0.6)
    raise ConfigError(
        f"unknown key {key}: " + (f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}")
    )


def _is_fixed(key: str, fixed: str) -> ConfigError:
    return ConfigError(f"{key} cannot be given: the checkpoint fixes {fixed}, with which its model was trained")


def _names_target(argument: str) -> bool:
    """Whether ``argument`` names a ``_target_``: directly, or as a choice of a group, which is ``argument``'s key."""
    key = _key(argument)
    return "=" in argument and ("." not in key or key.rpartition(".")[2] in ("_target_", "_partial_"))


def _key(argument: str) -> str:
    match = re.match(r"[~+]*([^@:=]+)", argument)
    return match[1] if match else argument


def _group(argument: str) -> str:
    return _key(argument).partition(".")[0]


def prediction_config(request: PredictionRequest, trained: Trained) -> Config:
    """The configuration of the trained run, with what the command line replaces.

    The groups of the run become choices of a name of their own, which Hydra composes with the overrides of the command
    line. What the run was told about folders, processes and how long it trains is not taken over.

    Raises:
        ConfigError: a key or choice of the command line is wrong.
        DataError: the configuration of the run is damaged, or asks for a call that no YAML file of fullgnn has.
    """
    nodes = _run_nodes(request, trained)
    store = ConfigStore.instance()
    try:
        for group, node in nodes.items():
            store.store(name=_OF_RUN, node=as_text(node), group=group)
        composed = compose(
            *(f"{group}={quote(_OF_RUN)}" for group in nodes), *request.overrides, folders=request.folders
        )
    except ConfigError as error:
        raise ConfigError(restored(str(error))) from error
    finally:  # no other configuration of this process may see these choices
        for group in nodes:
            store.repo[group].pop(f"{_OF_RUN}.yaml", None)
    run = trained.run_config
    try:
        for key in ("seed", "normalization", "self_loops"):
            composed[key] = as_text(run[key])
        given = {_key(override) for override in request.overrides}
        for key in OF_RUNTIME:
            if f"runtime.{key}" not in given:
                composed.runtime[key] = as_text(run["runtime"].get(key, composed.runtime[key]))
        composed.optimizations.loss_rows_only = False  # every row is computed
        composed.train.save_predictions = request.keys.layer is None
        return restored(load_config(composed))
    except (ConfigError, OmegaConfBaseException) as error:
        raise ConfigError(f"checkpoint={request.checkpoint}: {restored(message_of(error))}") from error


def _run_nodes(request: PredictionRequest, trained: Trained) -> dict[str, dict[str, Any]]:
    """The nodes of the trained run by group, but for those which the command line replaces.

    Raises:
        ConfigError, DataError: as ``prediction_config``.
    """
    run, where = trained.run_config, f"checkpoint={request.checkpoint}"
    needed = [*REPLACEABLE, "model", "task", "seed", "normalization", "self_loops"]
    if missing := [key for key in needed if key not in run]:
        raise DataError(f"{where}: the configuration of its run lacks {missing[0]}: choose another checkpoint")
    own: dict[str, Calls] = {}
    if request.named:
        name = "minibatch" if {"sampler", "cache"} & {*run, *map(_group, request.named)} else "config"
        composed = compose(*request.named, name=name, folders=request.folders)
        for group in map(_group, request.named):
            own[group] = calls_of(OmegaConf.to_container(composed[group], resolve=False))
    replaced = {_key(override) for override in request.overrides}
    nodes = {}
    codec = ["codec"] if "codec" in run and not _encodes_products(run) else []
    for group in [*REPLACEABLE, "model", "task", *codec]:
        if group == "runtime":
            if not isinstance(run[group], dict):
                raise DataError(f"{where}: its runtime is no mapping but {quoted(run[group])}: choose another file")
        elif group not in replaced:
            node, not_called = without_own_metrics(run[group]) if group == "task" else (run[group], [])
            if not_called:
                names = quoted(", ".join(not_called))
                log.info("metrics that are left out, since a prediction calls no function that a file names: %s", names)
            nodes[group] = trusted_node(group, node, where, own.get(group))
    for group in NAMED:
        if group in run and group not in nodes:
            check_calls(group, run[group], where, own.get(group))
        if group in own and calls_of(run.get(group)) != own[group]:
            raise _is_fixed(group, group)
    return nodes


def _encodes_products(run: Mapping[str, Any]) -> bool:
    """Whether the codec of the trained run has encoded products of the features. Its evaluation read exact features."""
    loader = run.get("loader")
    return isinstance(loader, Mapping) and loader.get("precompute") is True


def start(request: PredictionRequest, arguments: list[str]) -> None:
    """Start the ranks on this machine, and wait for them."""
    torch.set_num_threads(1)  # this process only starts the ranks; see can_fork
    check_tasks(request.runtime)
    check_request(request)
    nproc = default_nproc(request.runtime)
    warn_of_crowding(nproc, request.runtime)
    if can_fork():
        fork_workers(run_rank, request, nproc=nproc, runtime=request.runtime)
    else:
        launch_workers(["-m", "fullgnn.predict", *arguments], nproc, request.runtime)


def check_request(request: PredictionRequest) -> tuple[Trained, Config]:
    """Read the checkpoint, and refuse a user error before a graph is loaded. Called on rank 0, and before ranks start.

    Raises:
        FullGNNError: a user error.
    """
    trained = read_trained(request.checkpoint, request.keys.weights)
    cfg = prediction_config(request, trained)
    if "model" not in map(_group, request.named):  # a model of the user's may do anything while it is built
        with fitting(trained.checkpoint, trained.part):
            check_size(trained, cfg.model)
    check_preparation(cfg)
    check_dataset(cfg.dataset)
    check_no_download(request, cfg)
    folder = out_folder(request, trained)
    there = [name for name in file_names(request) if (folder / name).exists()]
    if there and not request.keys.overwrite:
        raise ConfigError(
            f"out={folder} holds {', '.join(there)} already: choose another folder, or overwrite=true to replace"
        )
    return trained, cfg


def check_no_download(request: PredictionRequest, cfg: Config) -> None:
    """Refuse to download a dataset to a folder that the checkpoint names.

    Raises:
        ConfigError: a file is missing, and the command line does not say where it belongs.
    """
    if {"dataset", "dataset.root"} & set(map(_key, request.overrides)):
        return
    missing = [file for file in dataset_files(cfg.dataset) or () if not file.is_file()]
    if missing:
        raise ConfigError(
            f"checkpoint={request.checkpoint}: its dataset lacks the file {missing[0]}: give dataset.root=FOLDER, where"
            " it is or may be downloaded to, or another dataset=..."
        )


def out_folder(request: PredictionRequest, trained: Trained) -> Path:
    """The folder of the files; by default ``predictions`` in the run folder, or beside a checkpoint that lies alone."""
    if request.keys.out is not None:
        return Path(request.keys.out).expanduser().absolute()
    parent = trained.checkpoint.parent
    return (parent.parent if parent.name == CHECKPOINTS else parent) / "predictions"


def file_names(request: PredictionRequest) -> tuple[str, ...]:
    """The files that may be written: ``metrics.json`` only if the graph has labels, and one of the tables at most."""
    if request.keys.layer is not None:
        return ("embeddings.npy",)
    return "predictions.npy", "outputs.npy", METRICS, *(f"{STEM}.{suffix}" for suffix in (PARQUET, CSV))


def run_rank(request: PredictionRequest) -> None:
    """Predict. Every rank of the job that torchrun's environment describes calls it."""
    with own_process_of_rank0(request.runtime.timeout_s) as worker, init_world(request.runtime) as world:
        setup_logging(world.rank)
        predict_on(world, request, worker)


def predict_on(world: World, request: PredictionRequest, worker: PreparationWorker | None = None) -> None:
    """Predict in a ``world`` that has been joined already.

    Args:
        worker: on rank 0, where the whole graph is loaded; None: in this process.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    trained, cfg = broadcast_object(from_rank0(lambda: check_request(request)))
    check_deterministic(cfg, world.device)
    run, measures = trained_run(world, cfg, trained, request.keys.layer, worker)
    if request.keys.layer is not None:
        rows, metrics = {"embeddings": layer_output(run, layer_name(run.model, request.keys.layer))}, None
    else:
        output = predict_outputs(run)
        rows = {"predictions": run.task.prediction(output), "outputs": output}
        metrics = run.task.measure(output, run.graph, run.scheme) if measures else None
    facts, folder = run.facts, out_folder(request, trained)
    write_rows(run.scheme, folder, rows, facts.num_nodes)
    choice, class_names = request.keys.prediction_table, trained.labels.class_names
    table = None if request.keys.layer is not None else named_table(run, choice, class_names)
    if table is not None:
        path, files = folder / table, [folder / f"{name}.npy" for name in rows]
        from_rank0(lambda: write_named(path, run, files, class_names))
    about = {
        "checkpoint": str(trained.checkpoint),
        "weights": request.keys.weights,
        "epoch": trained.epoch,
        "dataset": facts.nodes.name,
        "metrics": metrics,
    }
    from_rank0(lambda: finish(folder, about, file_names(request), table))


def trained_run(
    world: World, cfg: Config, trained: Trained, layer: str | None = None, worker: PreparationWorker | None = None
) -> tuple[Run, bool]:
    """Prepare and distribute the graph of ``cfg``, and load the trained parameters. Every rank calls it.

    Args:
        worker: on rank 0, where the whole graph is loaded; None: in this process.

    Returns:
        the run, and whether its graph has labels with which the task can measure its metrics.

    Raises:
        FullGNNError: a user error, such as a graph that does not fit, or an unknown ``layer``; the same on every rank.
    """
    parts, meter = num_parts(cfg.scheme, world.size), Meter(world.device)
    preparation = Preparation(cfg, parts, codec_context=CodecContext(trained.codec_state))
    with prepared_graph(preparation, world, worker) as prepared:
        facts = prepared.facts.nodes
        links = facts.links and replace(facts.links, num_train=max(1, facts.links.num_train))  # none are trained with
        run = learn(cfg, world, meter, replace(facts, labels=trained.labels, links=links))
        if layer is not None:
            layer_name(run.model, layer)
        check_fits(trained, facts, run.model)
        measures, run.scheme = has_metrics(trained, facts), make_scheme(cfg, world, meter)
        distribute(run, prepared, measures)
    prepare_input(run)
    load_parameters(trained, run)
    return run, measures


def finish(folder: Path, about: dict[str, Any], names: tuple[str, ...], table: str | None) -> None:
    """Write ``metrics.json``, and log the result. Of an earlier prediction, ``metrics.json`` and the tables are removed
    if this one does not write them.

    Args:
        table: name of the table that has been written.
    """
    metrics = about["metrics"]
    with writing_to("out", folder):
        if metrics is not None:
            write_text(folder / METRICS, strict_json(about, indent=2) + "\n")
        elif METRICS in names:
            (folder / METRICS).unlink(missing_ok=True)
        for name in names:
            if name.startswith(STEM) and name not in ("predictions.npy", table):
                (folder / name).unlink(missing_ok=True)
    scores = [f"{name} {value:.4f}" for name, value in (metrics or {}).items() if value is not None]
    written = [name for name in names if (folder / name).exists()]
    result = f"{about['dataset']}, {about['weights']} weights, epoch {about['epoch']}: {'  '.join(scores)}"
    log.info("%s\n%s", result.rstrip(": "), "\n".join(str(folder / name) for name in written))


def run(arguments: list[str]) -> None:
    """The command: a rank of a job predicts; elsewhere the job is started."""
    request = load_request(arguments)
    if under_torchrun():
        run_rank(request)
    else:
        start(request, arguments)


def main() -> None:
    """Run the command line; a user error ends it with one line and status 1, a bug with its traceback."""
    run_command(run, lambda: help_with_keys(__doc__, "predict"), CONFIG_FLAGS)


if __name__ == "__main__":
    main()
