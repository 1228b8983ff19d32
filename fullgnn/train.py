"""Train a GNN on a whole graph over any number of processes.

    python -m fullgnn.train runtime.nproc=2 scheme=1d dataset=digits
    torchrun --nproc-per-node 4 -m fullgnn.train scheme=1.5d scheme.replication=2 reorder=rcm
    python -m fullgnn.train -m scheme=1d,1.5d reorder=none,rcm,metis runtime.nproc=4

Without torchrun the command starts its ranks itself. In all three, each rank calls ``run``.
"""

import logging
import os
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from fullgnn.config import Config, conf_dir
from fullgnn.config.compose import explain, is_user_error, load_config
from fullgnn.config.overrides import defer_keys_of_swept_groups, quote, with_current_names, worker_arguments
from fullgnn.costs.auto import planned, predicted_run, with_fetch
from fullgnn.distributed import (
    World,
    broadcast_object,
    can_fork,
    default_nproc,
    dry_world,
    fork_workers,
    from_rank0,
    init_world,
    launch_workers,
    report_bug,
    stop_requests,
    under_torchrun,
)
from fullgnn.distributed.command import fail, run_as_rank
from fullgnn.distributed.orphan import end_with_launcher
from fullgnn.distributed.stop import use_default_handlers
from fullgnn.engine import (
    StepRunner,
    TrainState,
    check_deterministic,
    check_optimizer,
    check_preparation,
    distribute,
    fit,
    load_on_rank0,
    make_learner,
    make_scheme,
    predict,
    prepare_on_rank0,
    replay_for,
    with_input,
)
from fullgnn.engine.checkpoints import AUTO, NEVER, Checkpoints, checkpoint_to_resume, restore
from fullgnn.engine.summary import closing_table, comparison_table, make_record
from fullgnn.errors import ConfigError, FullGNNError, TrainingStopped
from fullgnn.storage.folder import check_folder
from fullgnn.storage.record import RunFolder, RunRecord, read_record
from fullgnn.telemetry.events import EventFiles, summary_writer
from fullgnn.telemetry.logger import setup_logging
from fullgnn.telemetry.meter import Meter
from fullgnn.telemetry.progress import Progress

log = logging.getLogger("fullgnn.train")  # also when this file is __main__


def run(cfg: Config) -> RunRecord:
    """Run one training. Every rank of the job that torchrun's environment describes calls it.

    Args:
        cfg: the same on every rank; only rank 0 uses the folder ``run_dir`` and the files of the dataset.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    joined = init_world(cfg.runtime) if cfg.world_size is None else dry_world(cfg.runtime, cfg.rank, cfg.world_size)
    with joined as world:
        setup_logging(0 if world.dry else world.rank)
        return run_on(world, cfg)


def run_on(world: World, cfg: Config) -> RunRecord:
    """Run one training in a ``world`` that has been joined already."""
    meter = Meter(world.device)
    check_preparation(cfg)
    check_optimizer(cfg)
    check_deterministic(cfg, world.device)
    checkpoint = from_rank0(lambda: check_run_dir(cfg))
    if cfg.train.tensorboard:
        from_rank0(summary_writer)
    cfg, graph, hardware = planned(cfg, world)
    scheme = make_scheme(cfg, world, meter)
    with meter.phase("setup"):
        graph, facts = load_on_rank0(cfg, graph)
        learner = make_learner(cfg, facts, world.device)
        prepared = prepare_on_rank0(cfg, scheme, learner.needs, graph)
        cfg = with_fetch(cfg, world, scheme, prepared, hardware)
        job = distribute(cfg, world, scheme, learner, prepared)
        predicted = None if hardware is None else predicted_run(cfg, job, prepared, world, hardware)
        del prepared, graph  # frees the whole graph on rank 0
        job = with_input(job, cfg, world)
        state = TrainState(job.model, cfg)
        resumes = broadcast_object([checkpoint is not None])[0]
        if resumes:
            restore(checkpoint, state, job, facts.fingerprint)
            log.info("resumes after epoch %d of %s", state.epoch, checkpoint)
    setup = meter.take()
    finished = broadcast_object(from_rank0(lambda: [finished_record(cfg, state)]))[0] if resumes else None
    if finished is not None:
        log.info("%s holds a finished run of %d epochs: nothing is left to train", cfg.run_dir, finished.epochs)
        return finished

    folder = from_rank0(lambda: open_folder(cfg, checkpoint, state.epoch))
    if folder is not None and job.structure is not None:
        folder.write_structure(asdict(job.structure))
    first = state.epoch + 1
    events = from_rank0(lambda: EventFiles(Path(cfg.run_dir), first)) if cfg.train.tensorboard else None
    progress = Progress(cfg.train.epochs, visible=world.rank == 0 or world.dry, first=first)
    runner = StepRunner(state, job, meter, replay_for(cfg.runtime.cuda_graph, world))
    checkpoints = Checkpoints(cfg, world, job, facts)
    outputs = [output for output in (progress, folder, events) if output is not None]
    with stop_requests() as request:
        result = fit(runner, cfg.train, outputs, checkpoints, request)
        progress.close()
        if events is not None:
            events.close()
        if result.stopped:
            stop = request.signal or signal.SIGTERM
            raise TrainingStopped(how_to_resume(cfg, state.epoch, result.unwritten), stop)
    record = replace(make_record(cfg, world, job, setup, result, first - 1 if resumes else None), predicted=predicted)
    if cfg.train.save_predictions and result.best is not None:
        job.model.load_state_dict(result.best.model)
        output = scheme.gather(predict(job.model, job.graph))
        if folder is not None and output is not None:
            folder.write_predictions(job.task.prediction(output).numpy(), output.numpy())
    if folder is not None:
        folder.write_record(record)
        comparison = "" if record.predicted is None else f"\n{comparison_table(record)}"
        log.info("\n%s%s\n%s", closing_table(record), comparison, folder.path)
    return record


def check_run_dir(cfg: Config) -> Path | None:
    """Find the checkpoint to resume, and refuse a run folder that holds another run. Called before anything is loaded.

    Raises:
        ConfigError, DataError: the folder holds another run, or there is no checkpoint that fits ``cfg``.
    """
    checkpoint = checkpoint_to_resume(cfg)
    inside = checkpoint is None or checkpoint.parent.parent == Path(cfg.run_dir).absolute()
    check_folder(cfg.run_dir, cfg.overwrite, resuming=cfg.resume != NEVER and inside)
    return checkpoint


def open_folder(cfg: Config, checkpoint: Path | None, epoch: int) -> RunFolder:
    """The run folder, with the epochs of the run that is resumed after ``epoch``."""
    resolved = OmegaConf.to_yaml(OmegaConf.structured(cfg))
    return RunFolder(cfg.run_dir, resolved, cfg.overwrite, None if cfg.resume == NEVER else epoch, checkpoint)


def finished_run(cfg: Config) -> RunRecord | None:
    """With ``resume=auto``, the record in the run folder, if a run of this very configuration has finished there."""
    folder = Path(cfg.run_dir)
    if cfg.resume != AUTO or not all((folder / name).is_file() for name in ("config.yaml", "record.json")):
        return None
    both = OmegaConf.load(folder / "config.yaml"), OmegaConf.structured(cfg)
    settings = [{**OmegaConf.to_container(one), "resume": AUTO, "run_dir": ""} for one in both]  # type: ignore[dict-item]
    if settings[0] != settings[1]:
        return None
    log.info("%s holds this run already, which has finished", cfg.run_dir)
    return read_record(folder)


def finished_record(cfg: Config, state: TrainState) -> RunRecord | None:
    """The record in the run folder, if that run has finished and nothing is left to train; None otherwise."""
    has_record = (Path(cfg.run_dir) / "record.json").is_file()
    return read_record(Path(cfg.run_dir)) if has_record and state.is_finished(cfg.train) else None


def how_to_resume(cfg: Config, epoch: int, unwritten: str) -> str:
    """The last line of a run that was asked to stop."""
    if cfg.world_size is not None:
        return f"stopped at epoch {epoch} of a dry run"
    if unwritten:
        return f"stopped at epoch {epoch}, without a checkpoint of it: {unwritten}"
    return f"stopped at epoch {epoch}; resume with: resume=auto run_dir={quote(os.path.abspath(cfg.run_dir))}"


def start(cfg: Config, overrides: list[str], fork: bool = False) -> RunRecord:
    """Start the ranks of one job on this machine, wait for them, and read their record.

    Args:
        overrides: the command-line arguments with which a new process composes ``cfg``.
        fork: whether the ranks are forks of this process; see ``can_fork``.
    """
    check_preparation(cfg)
    check_optimizer(cfg)
    if (finished := finished_run(cfg)) is not None:
        return finished
    check_run_dir(cfg)
    nproc = 1 if cfg.runtime.dry_run else default_nproc(cfg.runtime)
    if fork:
        fork_workers(run_as_rank, run, cfg, nproc=nproc, runtime=cfg.runtime)
    else:
        launch_workers(["-m", "fullgnn.train", *overrides], nproc, cfg.runtime)
    return read_record(Path(cfg.run_dir))


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")
def _job(composed: DictConfig) -> RunRecord | Exception:
    """Run one Hydra job: under torchrun, the run of this rank; otherwise, start a distributed job.

    A user error ends the command. In a sweep, the error is returned for the table instead, and the next job runs.
    """
    launcher = HydraConfig.get()
    sweep = launcher.mode == RunMode.MULTIRUN
    try:
        if under_torchrun():
            return run(load_config(composed))
        if sweep:
            composed.run_dir = launcher.runtime.output_dir
        cfg = load_config(composed)
        cfg.run_dir = os.path.abspath(cfg.run_dir)
        return start(cfg, worker_arguments(launcher, cfg.run_dir), fork=can_fork())
    except FullGNNError as error:
        return error if sweep else fail(error)
    except Exception as error:  # a bug
        if under_torchrun():
            report_bug(error)
        if not sweep:
            raise
        log.exception("job %s failed", launcher.job.num)
        return error


def main() -> None:
    """Run the command line; a user error ends it with one line and status 1, a bug with its traceback."""
    setup_logging(int(os.environ.get("RANK", 0)))
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra passes errors on to the handlers below
    sys.argv[1:] = defer_keys_of_swept_groups(with_current_names(sys.argv[1:]))
    if under_torchrun():
        use_default_handlers()  # a signal ends the rank silently, outside of stop_requests()
        end_with_launcher()
    else:
        torch.set_num_threads(1)  # this process only starts the ranks; see can_fork
    try:
        _job()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        if is_user_error(error):
            fail(ConfigError(explain(error)))
        raise


if __name__ == "__main__":
    main()
