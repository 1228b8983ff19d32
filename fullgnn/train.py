"""Train a GNN on a whole graph over any number of processes.

    python -m fullgnn.train runtime.nproc=2 scheme=1d dataset=digits
    torchrun --nproc-per-node 4 -m fullgnn.train scheme=1.5d scheme.replication=2 reorder=rcm
    python -m fullgnn.train -m scheme=1d,1.5d reorder=none,rcm,metis runtime.nproc=4

Without torchrun the command starts its ranks itself. In all three, each rank calls ``run``.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fullgnn.config import Config
from fullgnn.distributed import (
    StopRequest,
    World,
    broadcast_object,
    from_rank0,
    init_world,
    stop_requests,
)
from fullgnn.engine.checkpoints import Checkpoints, progress_of, restore
from fullgnn.engine.checks import check_deterministic, check_preparation, check_training_data, replay_for
from fullgnn.engine.command import TrainingCommand
from fullgnn.engine.fit import Steps, fit
from fullgnn.engine.optimizers import check_optimizer
from fullgnn.engine.run import planner_of, set_up
from fullgnn.engine.run_folder import (
    check_place,
    check_run_dir,
    end_if_stopped,
    epoch_outputs,
    finished_before,
    finished_record,
    keep_graph,
    kept_dataset,
    open_folder,
    write_to,
)
from fullgnn.engine.step_runner import StepRunner
from fullgnn.engine.summary import codec_of, log_inexact, make_record
from fullgnn.prepare.process import PreparationWorker, own_process_of_rank0
from fullgnn.storage.record import RunFolder, RunRecord
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
        from fullgnn.distributed import dry_world

        with dry_world(cfg.runtime, cfg.rank, cfg.world_size) as world:
            setup_logging(0)
            return run_on(world, cfg, caller=caller)
    with own_process_of_rank0(cfg.runtime.timeout_s) as worker, init_world(cfg.runtime) as world:
        setup_logging(world.rank)
        return run_on(world, cfg, worker, caller)


def run_on(
    world: World, cfg: Config, worker: PreparationWorker | None = None, caller: Caller | None = None
) -> RunRecord:
    """Run one training in a ``world`` that has been joined already.

    Args:
        worker: on rank 0, where the whole graph is loaded and prepared; None: in this process.

    Raises:
        TrainingStopped: a signal has asked a rank to stop, and a checkpoint has been written.
    """

    def full_batch(meter: Meter) -> StepRunner:
        """Set up the steps on the whole graph."""
        run = set_up(cfg, world, meter, worker=worker, planner=planner_of(cfg, world), trains=True)
        if (codec := codec_of(cfg, run.facts)) is not None:
            log_inexact(codec)
        return StepRunner(run, replay_for(cfg.runtime.cuda_graph, world))

    return train(world, cfg, full_batch, caller or Caller())


def train(world: World, cfg: Config, make_steps: Callable[[Meter], Steps], caller: Caller) -> RunRecord:
    """Set up, train and report, on the whole graph or on samples of it. Every rank calls it.

    Args:
        make_steps: sets up the steps of the training, whose cost the meter counts.

    Raises:
        TrainingStopped: a signal has asked a rank to stop, and a checkpoint has been written.
    """
    if (finished := finished_before(cfg)) is not None:
        return finished
    checkpoint, meter = check_run(world, cfg), Meter(world.device)
    dataset = kept_dataset(cfg)
    with meter.interval("setup"):
        steps = make_steps(meter)
    with closing(steps):
        with meter.interval("setup"):
            resumed_after, record = go_on(steps, checkpoint)
        if record is None:
            record = train_and_report(steps, dataset, checkpoint, meter.take(), resumed_after, caller)
    run = steps.run
    if run.state.best is not None:
        run.model.load_state_dict(run.state.best.model)
    caller.trained(run.model)
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
        from fullgnn.telemetry.events import summary_writer

        from_rank0(summary_writer)
    checkpoint = from_rank0(lambda: check_run_dir(cfg))
    from_rank0(lambda: check_place(cfg, checkpoint))
    from_rank0(lambda: check_training_data(cfg))
    return checkpoint


def go_on(steps: Steps, checkpoint: Path | None) -> tuple[int | None, RunRecord | None]:
    """Load the ``checkpoint`` of rank 0, if there is one. Every rank calls it.

    Returns:
        ``RunRecord.resumed_after``; and what the run has left already, if nothing is left to train.
    """
    if not broadcast_object([checkpoint is not None])[0]:
        return None, None
    run = steps.run
    restore(checkpoint, run.state, steps.row_id, run.nodes.fingerprint)
    steps.check_resumed()
    log.info("resumes after %s of %s", progress_of(run.state), checkpoint)
    (finished,) = broadcast_object(from_rank0(lambda: [finished_record(run.cfg, run.state)]))
    return run.state.epoch, finished


def train_and_report(
    steps: Steps,
    dataset: dict[str, Any],
    checkpoint: Path | None,
    setup: Cost,
    resumed_after: int | None,
    caller: Caller,
) -> RunRecord:
    """Open the run folder, train, and write what the run leaves. Every rank calls it.

    Args:
        dataset: the dataset as the files of the run name it, see ``kept_dataset``.
        checkpoint: on rank 0, what the run goes on from; None: it begins anew.
        setup: cost of this rank before the first epoch.
        resumed_after: see ``RunRecord``.
    """
    run, state, world = steps.run, steps.run.state, steps.run.world
    cfg = replace(run.cfg, dataset=dataset)

    def open_run_folder() -> RunFolder:
        folder = open_folder(cfg, checkpoint, state.epoch, state.batches.count)
        keep_graph(run.cfg.dataset, cfg)
        return folder

    with ExitStack() as stack:
        folder = from_rank0(open_run_folder)
        if folder is not None:
            stack.callback(folder.close)
        request = stack.enter_context(caller.stop_requests())
        checkpoints = Checkpoints(cfg, world, run.scheme, run.nodes, run.codec_state)
        with epoch_outputs(world, cfg, folder, state.epoch + 1, request) as outputs:
            result = fit(steps, outputs, checkpoints, request)
        end_if_stopped(cfg, state, result, request)
        record = steps.complete(make_record(steps.full, setup, result, resumed_after), result)
        if (statistics := steps.full.statistics) is not None:
            write_to(folder, lambda folder: folder.write_structure(vars(statistics.structure)))
        if cfg.train.save_predictions:
            from fullgnn.engine.prediction_table import write_predictions

            write_predictions(steps.full, result, folder)
        write_to(folder, lambda folder: folder.write_record(record))
        if folder is not None:
            log.info("\n%s\n%s", steps.closing_table(record), folder.path)
        return record


COMMAND = TrainingCommand("fullgnn.train", "config", run)
start, main = COMMAND.start, COMMAND.main


if __name__ == "__main__":
    main()
