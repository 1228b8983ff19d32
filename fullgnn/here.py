"""Run ``train_graph`` in the process that calls it, or say why it needs processes of its own.

A new process imports everything anew, which takes seconds. A run of one rank needs none, and takes place here.
"""

import logging
import multiprocessing
import os
import sys
import threading
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch
import torch.distributed as dist

from fullgnn.config import Config
from fullgnn.distributed import default_nproc, world_here
from fullgnn.distributed.guest import RequestContext, as_guest, signals_of_guest
from fullgnn.distributed.launch import environment
from fullgnn.engine.run_folder import finished_run
from fullgnn.errors import ConfigError, TrainingStopped, message_of
from fullgnn.given_model import GivenModel
from fullgnn.storage.record import RunRecord, read_record
from fullgnn.telemetry.machine import too_little
from fullgnn.train import COMMAND, Caller, run_on

log = logging.getLogger(__name__)

_here = threading.Lock()
"""Held while a run takes place in this process: there may be one at a time."""


def start(cfg: Config, overrides: list[str], given: GivenModel | None = None, only_here: str = "") -> RunRecord:
    """Run one training, here or in other processes, and return its record.

    Args:
        overrides: the command-line arguments with which a new process composes ``cfg``.
        given: the model, if it was given as an object.
        only_here: why no other process can run it, and what to do about it; empty: others can.

    Raises:
        FullGNNError: a user error.
    """
    if given is not None:
        only_here = only_here or given.why_only_here
    why = "another thread of this process trains: let it end before"
    if _here.acquire(blocking=False):
        try:
            if not (why := why_elsewhere(cfg)):
                return run_here(cfg, given)
        finally:
            _here.release()
    if only_here:
        raise ConfigError(f"{only_here}; or train in this process, which cannot be since {why}")
    # A script's own folder is not on the path of python -m, and the run may name modules of the user's.
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    with environment({"PYTHONPATH": path}):
        return COMMAND.start(cfg, overrides)


def why_elsewhere(cfg: Config) -> str:
    """Why the run of ``cfg`` cannot take place in this process, and what would change that; empty: it can."""
    nproc = default_nproc(cfg.runtime)
    if nproc != 1:
        given = (
            f"runtime.nproc={nproc}" if cfg.runtime.nproc is not None else f"there is a rank for each of {nproc} GPUs"
        )
        return f"{given}: set runtime.nproc=1"
    if cfg.runtime.dry_run:
        return "it is a dry run: leave out runtime.dry_run"
    if dist.is_initialized():
        return "torch.distributed is in use here: call torch.distributed.destroy_process_group() before"
    if isinstance(multiprocessing.current_process(), ForkProcess):
        return "this process is a fork, in which threads of its parent are missing: start it by spawn"
    if cfg.runtime.deterministic and torch.cuda.is_initialized():
        return "runtime.deterministic needs settings that CUDA has read before: train before CUDA is used"
    return ""


def run_here(cfg: Config, given: GivenModel | None = None) -> RunRecord:
    """Run one training in this process, which is then as it was.

    Raises:
        FullGNNError: a user error.
        KeyboardInterrupt, SystemExit: a signal has asked to stop; a training has written a checkpoint before.
    """
    with signals_of_guest() as stop_requests, as_guest(cfg.runtime, cfg.seed):
        record = _record_of(cfg, given, stop_requests)
    assert record is not None  # otherwise a signal was recorded, and the block has raised
    return record


def _record_of(cfg: Config, given: GivenModel | None, stop_requests: RequestContext) -> RunRecord | None:
    """The record of the run; None: a signal has stopped it. What the run holds is free when this returns."""
    try:
        if (finished := finished_run(cfg)) is not None:
            return finished
        if given is not None:
            given.check(cfg)
        caller = Caller(stop_requests) if given is None else Caller(stop_requests, given.take)
        with world_here(cfg.runtime) as world:
            run_on(world, cfg, caller=caller)
        return read_record(Path(cfg.run_dir))
    except TrainingStopped as stopped:
        log.info("%s", message_of(stopped))
        return None
    except Exception as error:
        if (shortage := too_little(error, "the work of this process")) is not None:
            raise shortage from error
        raise
