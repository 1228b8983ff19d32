"""Train a GNN on samples of a graph, over any number of processes, and evaluate it exactly on the full graph.

    python -m fullgnn.train_minibatch dataset=pubmed 'sampler.fanouts=[25,10]'
    python -m fullgnn.train_minibatch runtime.nproc=2 loader.batch_size=512 train.epochs=5
    torchrun --nproc-per-node 4 -m fullgnn.train_minibatch model=gat

Without torchrun the command starts its ranks itself. In all three, each rank calls ``run``.
"""

import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch

from fullgnn.config import MinibatchConfig
from fullgnn.distributed import World, broadcast_object, from_rank0, init_world, stop_requests
from fullgnn.engine import check_deterministic, check_optimizer, check_preparation, check_training_data
from fullgnn.engine.checkpoints import Checkpoints, progress_of, restore
from fullgnn.engine.command import TrainingCommand
from fullgnn.engine.outputs import end_if_stopped, epoch_outputs, write_predictions, write_to
from fullgnn.engine.resume import check_run_dir, finished_before, finished_record, open_folder
from fullgnn.engine.summary import make_record
from fullgnn.errors import ConfigError
from fullgnn.graph.remarks import noted
from fullgnn.sampling.fit import fit_sampled
from fullgnn.sampling.setup import SampledJob, check_sampled, set_up_sampled
from fullgnn.sampling.summary import sampling_summary, sampling_table
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.events import summary_writer
from fullgnn.telemetry.log import setup_logging
from fullgnn.telemetry.meter import Meter

log = logging.getLogger("fullgnn.train_minibatch")  # also when this file is __main__


def run(cfg: MinibatchConfig) -> RunRecord:
    """Run one training. Every rank of the job that torchrun's environment describes calls it.

    Args:
        cfg: the same on every rank; only rank 0 uses the folder ``run_dir`` and the files of the dataset.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    check_sampled(cfg)
    with init_world(cfg.runtime) as world:
        setup_logging(world.rank)
        return run_on(world, cfg)


def run_on(world: World, cfg: MinibatchConfig) -> RunRecord:
    """Run one training in a ``world`` that has been joined already.

    Raises:
        TrainingStopped: a signal has asked a rank to stop, and a checkpoint has been written.
    """
    if (finished := finished_before(cfg)) is not None:
        return finished
    meter = Meter(world.device)
    check_preparation(cfg)
    check_optimizer(cfg)
    check_deterministic(cfg, world.device)
    if cfg.train.tensorboard:
        from_rank0(summary_writer)
    checkpoint = from_rank0(lambda: check_run_dir(cfg))
    from_rank0(lambda: check_training_data(cfg))
    with meter.interval("setup"):
        job = set_up_sampled(cfg, world, meter)
    with closing(job.training.loader):
        with meter.interval("setup"):
            resumes, finished = go_on(world, cfg, job, checkpoint)
        if finished is not None:
            return finished
        return train_and_report(world, cfg, job, checkpoint, meter, job.training.state.epoch if resumes else None)


def go_on(
    world: World, cfg: MinibatchConfig, job: SampledJob, checkpoint: Path | None
) -> tuple[bool, RunRecord | None]:
    """Load the ``checkpoint`` of rank 0, if there is one. Every rank calls it.

    Returns:
        whether there is one; and what the run has left already, if nothing is left to train.
    """
    if not broadcast_object([checkpoint is not None])[0]:
        return False, None
    state = job.training.state
    no_rows = torch.empty(0, dtype=torch.int64)  # no parameter is sharded
    restore(checkpoint, state, no_rows, job.facts.fingerprint)
    if state.batches.count and state.batches.num_parts != job.training.loader.num_parts:
        raise ConfigError(
            f"resume: the checkpoint is in the midst of an epoch whose training nodes were divided among"
            f" {state.batches.num_parts} processes (loader.split=pagraph): go on with as many, or from a checkpoint at"
            " the end of an epoch"
        )
    log.info("resumes after %s of %s", progress_of(state), checkpoint)
    (finished,) = broadcast_object(from_rank0(lambda: [finished_record(cfg, state)]))
    return True, finished


def train_and_report(
    world: World,
    cfg: MinibatchConfig,
    job: SampledJob,
    checkpoint: Path | None,
    meter: Meter,
    resumed_after: int | None,
) -> RunRecord:
    """Train, and write what the run leaves. Every rank calls it.

    Args:
        checkpoint: on rank 0, what the run goes on from; None: it begins anew.
        resumed_after: see ``RunRecord``.

    Raises:
        TrainingStopped: a signal has asked a rank to stop, and a checkpoint has been written.
    """
    state, setup = job.training.state, meter.take()
    folder = from_rank0(lambda: open_folder(cfg, checkpoint, state.epoch, state.batches.count))
    checkpoints = Checkpoints(cfg, world, job.scheme, job.facts, job.codec_state)
    with stop_requests() as request, epoch_outputs(world, cfg, folder, state.epoch + 1, request) as outputs:
        result = fit_sampled(job.training, cfg.train, job.full_graph.measure, outputs, checkpoints, request)
    end_if_stopped(cfg, state, result, request)
    full = job.full_graph.job
    record = make_record(cfg, world, full, setup, result, resumed_after)
    remarks = noted(record.remarks, job.sampler_remarks)
    record = replace(record, sampling=sampling_summary(cfg, job.training.loader, result), remarks=remarks)
    if job.codec is not None:
        record = replace(record, codec=job.codec)
    statistics = full.preparation.statistics if full.preparation is not None else None
    if statistics is not None:
        write_to(folder, lambda folder: folder.write_structure(vars(statistics.structure)))
    if cfg.train.save_predictions:
        write_predictions(full, result, folder, cfg.train.prediction_table)
    write_to(folder, lambda folder: folder.write_record(record))
    if folder is not None:
        log.info("\n%s\n%s", sampling_table(record, cfg.train.table == "full"), folder.path)
    return record


COMMAND = TrainingCommand("fullgnn.train_minibatch", "minibatch", run)
start, main = COMMAND.start, COMMAND.main


if __name__ == "__main__":
    main()
