"""Train a GNN on a whole graph over any number of processes.

    python -m fullgnn.train runtime.nproc=2 scheme=1d dataset=digits
    torchrun --nproc-per-node 4 -m fullgnn.train scheme=1.5d scheme.replication=2 reorder=rcm
    python -m fullgnn.train -m scheme=1d,1.5d reorder=none,rcm,metis runtime.nproc=4

Without torchrun the command starts its ranks itself. In all three, each rank calls ``run``.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fullgnn.config import Config
from fullgnn.distributed import (
    StopRequest,
    World,
    broadcast_object,
    dry_world,
    from_rank0,
    init_world,
    stop_requests,
)
from fullgnn.engine import (
    Job,
    StepRunner,
    TrainState,
    check_deterministic,
    check_optimizer,
    check_preparation,
    check_training_data,
    distribute,
    fit,
    make_learner,
    make_scheme,
    replay_for,
    with_input,
)
from fullgnn.engine.checkpoints import Checkpoints, restore
from fullgnn.engine.command import TrainingCommand
from fullgnn.engine.job import told
from fullgnn.engine.kept_graph import check_place, keep_graph, with_kept_graph
from fullgnn.engine.outputs import end_if_stopped, epoch_outputs, write_predictions, write_to
from fullgnn.engine.planner import planner_of
from fullgnn.engine.resume import check_run_dir, finished_before, finished_record, open_folder
from fullgnn.engine.summary import closing_table, codec_of, comparison_table, log_inexact, make_record
from fullgnn.prepare.facts import NodeFacts
from fullgnn.prepare.process import HostWork, own_process_of_rank0
from fullgnn.prepare.source import prepared_graph
from fullgnn.storage.record import RunFolder, RunRecord
from fullgnn.tasks import log_default_metric
from fullgnn.telemetry.events import summary_writer
from fullgnn.telemetry.log import setup_logging
from fullgnn.telemetry.meter import Cost, Meter

log = logging.getLogger("fullgnn.train")  # also when this file is __main__


@dataclass(frozen=True)
class Caller:
    """What the caller of a run wants of it beside its files. By default this is a process that does nothing else."""

    stop_requests: Callable[[], AbstractContextManager[StopRequest]] = stop_requests
    trained: Callable[[torch.nn.Module], object] = lambda model: None
    """Gets the model, with the parameters of the best epoch, after a training that has ended."""


def run(cfg: Config, caller: Caller | None = None) -> RunRecord:
    """Run one training. Every rank of the job that torchrun's environment describes calls it.

    Args:
        cfg: the same on every rank; only rank 0 uses the folder ``run_dir`` and the files of the dataset.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    if cfg.world_size is not None:
        with dry_world(cfg.runtime, cfg.rank, cfg.world_size) as world:
            setup_logging(0)
            return run_on(world, cfg, caller=caller)
    with own_process_of_rank0(cfg.runtime.timeout_s) as work, init_world(cfg.runtime) as world:
        setup_logging(world.rank)
        return run_on(world, cfg, work, caller)


def run_on(world: World, cfg: Config, work: HostWork | None = None, caller: Caller | None = None) -> RunRecord:
    """Run one training in a ``world`` that has been joined already.

    Args:
        work: on rank 0, where the whole graph is loaded and prepared; None: in this process.
    """
    if (finished := finished_before(cfg)) is not None:
        return finished
    caller = caller or Caller()
    meter = Meter(world.device)
    checkpoint = check_run(world, cfg)
    with meter.interval("setup"):
        ready = set_up_run(world, cfg, work or HostWork(), meter, checkpoint)
    if ready.finished is None:
        setup = meter.take()
        record = _train(world, ready, checkpoint, meter, setup, caller)
    else:
        record = ready.finished
    if ready.state.best is not None:
        ready.state.model.load_state_dict(ready.state.best.model)
    caller.trained(ready.state.model)
    return record


def _train(
    world: World, ready: "Ready", checkpoint: Path | None, meter: Meter, setup: Cost, caller: Caller
) -> RunRecord:
    """Open the run folder, train, and report."""
    loaded, ready = ready.cfg, replace(ready, cfg=with_kept_graph(ready.cfg))

    def open_run_folder() -> RunFolder:
        folder = open_folder(ready.cfg, checkpoint, ready.state.epoch)
        keep_graph(loaded, ready.cfg)
        return folder

    with ExitStack() as stack:
        folder = from_rank0(open_run_folder)
        if folder is not None:
            stack.callback(folder.close)
        request = stack.enter_context(caller.stop_requests())
        return train_and_report(world, ready, folder, meter, setup, request)


def train_and_report(
    world: World, ready: "Ready", folder: RunFolder | None, meter: Meter, setup: Cost, request: StopRequest
) -> RunRecord:
    """Train, and write what the run leaves. Every rank calls it.

    Args:
        folder: on rank 0.
        setup: cost of this rank before the first epoch.

    Raises:
        TrainingStopped: a signal has asked a rank to stop, and a checkpoint has been written.
    """
    cfg, job, state = ready.cfg, ready.job, ready.state
    statistics = job.preparation.statistics if job.preparation is not None else None
    if statistics is not None:
        write_to(folder, lambda folder: folder.write_structure(vars(statistics.structure)))
    runner = StepRunner(state, job, meter, replay_for(cfg.runtime.cuda_graph, world))
    learnt = job.preparation.codec_state if job.preparation is not None else None
    checkpoints = Checkpoints(cfg, world, job.scheme, ready.facts, learnt)
    with epoch_outputs(world, cfg, folder, state.epoch + 1, request) as outputs:
        result = fit(runner, cfg.train, outputs, checkpoints, request)
    end_if_stopped(cfg, state, result, request)
    record = replace(make_record(cfg, world, job, setup, result, ready.resumed_after), predicted=ready.predicted)
    if cfg.train.save_predictions:
        write_predictions(job, result, folder, cfg.train.prediction_table)
    write_to(folder, lambda folder: folder.write_record(record))
    if folder is not None:
        comparison = "" if record.predicted is None else f"\n{comparison_table(record)}"
        log.info("\n%s%s\n%s", closing_table(record, cfg.train.table == "full"), comparison, folder.path)
    return record


def check_run(world: World, cfg: Config) -> Path | None:
    """Refuse what can be refused before anything is loaded. Every rank calls it.

    Returns:
        on rank 0, the checkpoint from which the run goes on; None if it begins anew, and on other ranks.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    check_preparation(cfg)
    check_optimizer(cfg)
    check_deterministic(cfg, world.device)
    if cfg.train.tensorboard:
        from_rank0(summary_writer)
    checkpoint = from_rank0(lambda: check_run_dir(cfg))
    from_rank0(lambda: check_place(cfg, checkpoint))
    from_rank0(lambda: check_training_data(cfg))
    return checkpoint


@dataclass(frozen=True)
class Ready:
    """A run before its first epoch."""

    cfg: Config  # has a scheme, also with scheme=auto
    job: Job
    facts: NodeFacts
    state: TrainState
    predicted: dict[str, Any] | None  # what the planner predicts; None: it has not chosen the scheme
    resumed_after: int | None  # see ``RunRecord``
    finished: RunRecord | None  # what the run has left already, if nothing is left to train


def set_up_run(world: World, cfg: Config, work: HostWork, meter: Meter, checkpoint: Path | None) -> Ready:
    """Prepare the graph, read this rank's part of it, build the model, and load the ``checkpoint`` of rank 0.

    Every rank calls it.
    """
    planner = planner_of(cfg, world)
    cfg = planner.with_scheme(cfg, world, work)
    scheme = make_scheme(cfg, world, meter)
    with prepared_graph(cfg, world, scheme.num_parts, work, to_train=True, told=told(cfg)) as prepared:
        facts = prepared.facts.nodes
        learner = make_learner(cfg, facts, world.device)
        log_default_metric(cfg.task, learner.task)
        cfg = planner.with_fetch(cfg, world, scheme, prepared, learner.optimizations)
        job = distribute(cfg, world, scheme, learner, prepared)
        if (codec := codec_of(cfg, prepared.facts)) is not None:
            log_inexact(codec)
        predicted = planner.predicted(cfg, world, job, prepared)
    job = with_input(job, cfg, world)
    state = TrainState(job.model, cfg)
    if not broadcast_object([checkpoint is not None])[0]:
        return Ready(cfg, job, facts, state, predicted, None, None)
    restore(checkpoint, state, job.graph.block.source_id, facts.fingerprint)
    log.info("resumes after epoch %d of %s", state.epoch, checkpoint)
    (finished,) = broadcast_object(from_rank0(lambda: [finished_record(cfg, state)]))
    return Ready(cfg, job, facts, state, predicted, state.epoch, finished)


COMMAND = TrainingCommand("fullgnn.train", "config", run)
start, main = COMMAND.start, COMMAND.main


if __name__ == "__main__":
    main()
