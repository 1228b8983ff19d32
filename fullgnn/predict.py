"""Predict with a trained model, or write what one of its layers computes, for every node of a graph.

    python -m fullgnn.predict checkpoint=runs/mine
    python -m fullgnn.predict checkpoint=runs/mine dataset=npz dataset.path=other.npz runtime.nproc=4
    torchrun --nproc-per-node 4 -m fullgnn.predict checkpoint=runs/mine/checkpoints/epoch_000100 layer=0 out=vectors

The files, in the original order of the nodes, are read with ``numpy.load(..., mmap_mode="r")``:

    predictions.npy   what the task predicts: (num_nodes,) classes, or one column for each label or number
    outputs.npy       (num_nodes, num_outputs), what the model computes, such as logits
    metrics.json      the metrics of all splits, if the graph has labels
    embeddings.npy    with layer=...: (num_nodes, channels), in place of the others

Every rank computes the rows of its own nodes. They travel to rank 0 part by part, and rank 0 writes each part to its
place in the files. So no rank ever holds the results of all nodes.
"""

import dataclasses
import difflib
import logging
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

import torch
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from fullgnn.config import Config, RuntimeConfig
from fullgnn.config.compose import compose, load_config
from fullgnn.config.keys import check_choices, load_keys
from fullgnn.config.overrides import with_current_names
from fullgnn.distributed import (
    World,
    broadcast_object,
    can_fork,
    default_nproc,
    fork_workers,
    from_rank0,
    init_world,
    launch_workers,
    under_torchrun,
    warn_of_crowding,
)
from fullgnn.distributed.command import help_with_keys, run_as_rank, run_command
from fullgnn.engine import (
    Job,
    check_preparation,
    distribute,
    make_learner,
    make_scheme,
    with_input,
)
from fullgnn.engine import predict as predict_outputs
from fullgnn.engine.prediction import (
    WEIGHTS,
    Trained,
    check_fits,
    has_metrics,
    layer_name,
    layer_output,
    load_parameters,
    read_trained,
)
from fullgnn.engine.row_files import write_rows, writing_to
from fullgnn.errors import ConfigError
from fullgnn.graph import check_dataset
from fullgnn.prepare.process import HostWork, own_process_of_rank0
from fullgnn.prepare.source import prepared_graph
from fullgnn.schemes.base import Scheme
from fullgnn.storage.atomic import write_text
from fullgnn.storage.folder import CHECKPOINTS
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.logger import setup_logging
from fullgnn.telemetry.meter import Meter

log = logging.getLogger("fullgnn.predict")  # also when this file is __main__

REPLACEABLE = ("dataset", "scheme", "partition", "reorder", "kernel", "optimizations", "runtime")
"""Groups of the trained run that the command line may replace."""
FIXED = ("model", "task", "seed", "normalization", "self_loops", "runtime.dtype")
"""Keys and groups of the trained run without which its parameters mean nothing."""
OF_THE_MACHINE = ("nproc", "device", "backend", "threads", "timeout_s")
"""Keys of ``runtime`` that are not taken from the trained run, which may have run elsewhere."""

METRICS = "metrics.json"
_OF_RUN = "run"  # the choice of each group that is that of the trained run


@dataclass
class PredictConfig:
    """The keys of ``conf/predict.yaml``, which explains them."""

    checkpoint: Optional[str] = MISSING
    weights: str = MISSING
    layer: Optional[str] = MISSING
    out: Optional[str] = MISSING
    overwrite: bool = MISSING


@dataclass(frozen=True)
class Request:
    """What the command line asks for, before the checkpoint is read."""

    keys: PredictConfig
    overrides: list[str]  # of the configuration of the trained run
    runtime: RuntimeConfig  # the settings of this machine

    @property
    def checkpoint(self) -> str:
        assert self.keys.checkpoint is not None  # load_request has checked it
        return self.keys.checkpoint


def load_request(arguments: list[str]) -> Request:
    """Read the ``arguments`` of the command line.

    Raises:
        ConfigError: one line that names the key, what is wrong with it and what it may be.
    """
    own_keys = [field.name for field in dataclasses.fields(PredictConfig)]
    own: list[str] = []
    overrides: list[str] = []
    for argument in with_current_names(arguments):
        (own if _check_key(argument, own_keys) in own_keys else overrides).append(argument)
    keys = load_keys("predict", PredictConfig, own)
    if keys.checkpoint is None:
        raise ConfigError("checkpoint has no value: give checkpoint=..., a run folder or a checkpoint of one")
    check_choices("weights", [keys.weights], WEIGHTS)
    machine = [override for override in overrides if _group(override) == "runtime"]
    return Request(keys, overrides, load_config(compose(*machine)).runtime)


def _check_key(argument: str, own_keys: list[str]) -> str:
    """The key or group that ``argument`` sets. Raises: as ``load_request``."""
    key, group = _key(argument), _group(argument)
    fixed = next((one for one in FIXED if f"{key}.".startswith(f"{one}.")), None)
    if fixed is not None:
        raise ConfigError(f"{key} cannot be given: the checkpoint fixes {fixed}, with which its model was trained")
    known = [*own_keys, *REPLACEABLE]
    if group in known and key != "runtime.dry_run":
        return group
    if group in (field.name for field in dataclasses.fields(Config)) or group == "experiment":
        raise ConfigError(f"{key} is a key of training, and not of predictions: leave it out")
    near = difflib.get_close_matches(group, known, n=1, cutoff=0.6)
    raise ConfigError(
        f"unknown key {key}: " + (f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}")
    )


def _key(argument: str) -> str:
    found = re.match(r"[~+]*([^@:=]+)", argument)
    return found[1] if found else argument


def _group(argument: str) -> str:
    return _key(argument).partition(".")[0]


def prediction_config(request: Request, trained: Trained) -> Config:
    """The configuration of the trained run, with what the command line replaces.

    The groups of the run become choices named ``run``, which Hydra composes with the overrides of the command line.

    Raises:
        ConfigError: a key or choice of the command line is wrong.
    """
    run = dict(trained.run_config)
    run["runtime"] = {**run["runtime"], **{key: getattr(request.runtime, key) for key in OF_THE_MACHINE}}
    groups = [*REPLACEABLE, "model", "task"]
    for group in groups:
        ConfigStore.instance().store(name=_OF_RUN, node=run[group], group=group)
    given = set(map(_key, request.overrides))
    composed = compose(*(f"{group}={_OF_RUN}" for group in groups if group not in given), *request.overrides)
    for key in FIXED:
        if key not in groups and "." not in key:
            composed[key] = run[key]
    composed.runtime.dtype = run["runtime"]["dtype"]
    composed.optimizations.loss_rows_only = False  # every row is computed
    return load_config(composed)


def start(request: Request, arguments: list[str]) -> None:
    """Start the ranks on this machine, and wait for them."""
    torch.set_num_threads(1)  # this process only starts the ranks; see can_fork
    check_request(request)
    nproc = default_nproc(request.runtime)
    warn_of_crowding(nproc, request.runtime)
    if can_fork():
        fork_workers(run_as_rank, run_rank, request, nproc=nproc, runtime=request.runtime)
    else:
        launch_workers(["-m", "fullgnn.predict", *arguments], nproc, request.runtime)


def check_request(request: Request) -> tuple[Trained, Config]:
    """Read the checkpoint, and refuse a user error before a graph is loaded. Called on rank 0, and before ranks start.

    Raises:
        FullGNNError: a user error.
    """
    trained = read_trained(request.checkpoint, request.keys.weights)
    cfg = prediction_config(request, trained)
    check_preparation(cfg)
    check_dataset(cfg.dataset)
    folder = out_folder(request, trained)
    there = [name for name in file_names(request) if (folder / name).exists()]
    if there and not request.keys.overwrite:
        raise ConfigError(
            f"out={folder} holds {', '.join(there)} already: choose another folder, or overwrite=true to replace"
        )
    return trained, cfg


def out_folder(request: Request, trained: Trained) -> Path:
    """The folder of the files; by default ``predictions`` in the run folder, or beside a checkpoint that lies alone."""
    if request.keys.out is not None:
        return Path(request.keys.out).expanduser().absolute()
    parent = trained.checkpoint.parent
    return (parent.parent if parent.name == CHECKPOINTS else parent) / "predictions"


def file_names(request: Request) -> tuple[str, ...]:
    """The files that are written; ``metrics.json`` only if the graph has labels."""
    return ("predictions.npy", "outputs.npy", METRICS) if request.keys.layer is None else ("embeddings.npy",)


def run_rank(request: Request) -> None:
    """Predict. Every rank of the job that torchrun's environment describes calls it."""
    with own_process_of_rank0() as work, init_world(request.runtime) as world:
        setup_logging(world.rank)
        predict_on(world, request, work)


def predict_on(world: World, request: Request, work: HostWork | None = None) -> None:
    """Predict in a ``world`` that has been joined already.

    Args:
        work: on rank 0, where the whole graph is loaded; None: in this process.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    trained, cfg = broadcast_object(from_rank0(lambda: check_request(request)))
    scheme = make_scheme(cfg, world, Meter(world.device))
    job, measures = trained_job(world, cfg, scheme, trained, request.keys.layer, work)
    if request.keys.layer is not None:
        rows, metrics = {"embeddings": layer_output(job, layer_name(job.model, request.keys.layer))}, None
    else:
        output = predict_outputs(job.model, job.graph)
        rows = {"predictions": job.task.prediction(output), "outputs": output}
        metrics = job.task.measure(output, job.graph, scheme) if measures else None
    assert job.preparation is not None
    facts, folder = job.preparation.facts, out_folder(request, trained)
    write_rows(scheme, folder, rows, facts.num_nodes)
    about = {
        "checkpoint": str(trained.checkpoint),
        "weights": request.keys.weights,
        "epoch": trained.epoch,
        "dataset": facts.nodes.name,
        "metrics": metrics,
    }
    from_rank0(lambda: finish(folder, about, file_names(request)))


def trained_job(
    world: World, cfg: Config, scheme: Scheme, trained: Trained, layer: str | None = None, work: HostWork | None = None
) -> tuple[Job, bool]:
    """Prepare and distribute the graph of ``cfg``, and load the trained parameters. Every rank calls it.

    Args:
        work: on rank 0, where the whole graph is loaded; None: in this process.

    Returns:
        the job, and whether its graph has labels with which the task can measure its metrics.

    Raises:
        FullGNNError: a user error, such as a graph that does not fit, or an unknown ``layer``; the same on every rank.
    """
    with prepared_graph(cfg, world, scheme.num_parts, work) as prepared:
        facts = prepared.facts.nodes
        links = facts.links and replace(facts.links, num_train=max(1, facts.links.num_train))  # none are trained with
        learner = make_learner(cfg, replace(facts, labels=trained.labels, links=links), world.device)
        if layer is not None:
            layer_name(learner.model, layer)
        check_fits(trained, facts, learner.model)
        learner = replace(learner, measures=has_metrics(trained, facts))
        job = distribute(cfg, world, scheme, learner, prepared)
    job = with_input(job, cfg, world)
    load_parameters(world, trained, job)
    return job, learner.measures


def finish(folder: Path, about: dict[str, Any], names: tuple[str, ...]) -> None:
    """Write ``metrics.json``, or remove that of an earlier prediction if there are no metrics, and log the result."""
    metrics = about["metrics"]
    with writing_to(folder):
        if metrics is not None:
            write_text(folder / METRICS, strict_json(about, indent=2) + "\n")
        elif METRICS in names:
            (folder / METRICS).unlink(missing_ok=True)
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
    run_command(run, lambda: help_with_keys(__doc__, "predict"))


if __name__ == "__main__":
    main()
