"""Run a training from the command line: as a rank of torchrun, as a job with ranks of its own, or as a sweep."""

import inspect
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from fullgnn import startup
from fullgnn.config import Config, conf_dir, target_of
from fullgnn.config.compose import load_config
from fullgnn.config.explain import explain, is_user_error
from fullgnn.config.overrides import SWEEP_REPORT, defer_keys_of_swept_groups, worker_arguments
from fullgnn.config.schema import SCHEMAS
from fullgnn.distributed import (
    can_fork,
    check_tasks,
    default_nproc,
    fork_workers,
    launch_workers,
    under_torchrun,
    warn_of_crowding,
)
from fullgnn.distributed.command import end_command, end_process, fail
from fullgnn.distributed.launch import use_default_handlers
from fullgnn.engine.checks import check_preparation, check_training_data
from fullgnn.engine.optimizers import check_optimizer
from fullgnn.engine.run_folder import check_run_dir, finished_run
from fullgnn.errors import ConfigError, FullGNNError
from fullgnn.startup import end_with_launcher
from fullgnn.storage.record import RunRecord, read_record
from fullgnn.telemetry.log import setup_logging
from fullgnn.telemetry.machine import too_little

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingCommand:
    """A way to train, as the command line calls it.

    Args:
        module: of ``python -m``.
        config_name: the file in ``conf/`` from which a run is composed.
        run: one run on one rank.
    """

    module: str
    config_name: str
    run: Callable[[Any], RunRecord]

    def start(self, cfg: Config, overrides: list[str], fork: bool = False) -> RunRecord:
        """Start the ranks of one job on this machine, wait for them, and read their record.

        Args:
            overrides: the command-line arguments with which a new process composes ``cfg``; a fork needs none.
            fork: whether the ranks are forks of this process; see ``can_fork``.

        Raises:
            FullGNNError: a user error; if it needs no graph to be found, before any rank starts.
        """
        check_tasks(cfg.runtime)
        check_preparation(cfg)
        check_optimizer(cfg)
        if (finished := finished_run(cfg)) is not None:
            return finished
        check_run_dir(cfg, quiet=True)  # rank 0 looks again, and says what it finds
        check_training_data(cfg)
        nproc = 1 if cfg.runtime.dry_run else default_nproc(cfg.runtime)
        warn_of_crowding(nproc, cfg.runtime)
        if fork:
            for node in (cfg.scheme, cfg.kernel):
                target_of(node)  # imported once, for all forks
            fork_workers(self.run, cfg, nproc=nproc, runtime=cfg.runtime)
        else:
            launch_workers(["-m", self.module, *overrides], nproc, cfg.runtime)
        return read_record(Path(cfg.run_dir))

    def help(self) -> str:
        """What ``--help`` prints."""
        from fullgnn.config.help import training_help

        description = getattr(inspect.getmodule(self.run), "__doc__", None) or ""
        return training_help(self.module, self.config_name, description, sys.argv[1:])

    def main(self) -> None:
        """Run the command line, or print the help or the version.

        A user error ends it with one line and status 1, a bug with its traceback.
        """
        setup_logging(int(os.environ.get("RANK", 0)))
        if startup.answers(sys.argv[1:], self.help):
            return
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra passes errors on to the handlers below
        sweeps = not {"-m", "--multirun", "hydra.mode=MULTIRUN"}.isdisjoint(sys.argv)
        if sweeps:
            sys.argv[1:] = [*defer_keys_of_swept_groups(sys.argv[1:]), SWEEP_REPORT]
        if under_torchrun():
            use_default_handlers()  # a signal ends the rank silently, outside of stop_requests()
            end_with_launcher()
        else:
            torch.set_num_threads(1)  # this process only starts the ranks; see can_fork

        job = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=self.config_name)(self._job)
        startup.imported()
        try:
            job()
        except KeyboardInterrupt:
            end_process(128 + signal.SIGINT)
        except Exception as error:
            if is_user_error(error):
                fail(ConfigError(explain(error, SCHEMAS[self.config_name], sweeps)))
            raise

    def _job(self, composed: DictConfig) -> RunRecord | Exception:
        """Run one Hydra job: under torchrun, the run of this rank; otherwise, start a distributed job.

        A user error ends the command. In a sweep, the error is returned for the table instead, and the next job runs.
        """
        launcher = HydraConfig.get()
        sweep = launcher.mode == RunMode.MULTIRUN
        try:
            if under_torchrun():
                return self.run(load_config(composed))
            if sweep:
                composed.run_dir = launcher.runtime.output_dir
            cfg = load_config(composed)
            fork = can_fork()
            return self.start(cfg, [] if fork else worker_arguments(launcher, cfg.run_dir), fork)
        except Exception as error:
            if not sweep:
                end_command(error)
            if isinstance(error, FullGNNError):
                return error
            shortage = too_little(error, "the work of this process")
            if shortage is None:
                log.exception("job %s failed", launcher.job.num)
            return shortage or error
