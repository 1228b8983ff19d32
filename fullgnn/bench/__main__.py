"""Measure one operation.

    python -m fullgnn.bench op=spmm graph=products-mini 'widths=[16,64]' threads=2
    python -m fullgnn.bench op=epoch 'presets=[full,hetu]' nproc=2 threads=1
    python -m fullgnn.bench op=sampling graph=products-mini 'fanouts=[15,10,5]'
    torchrun --nproc-per-node 2 -m fullgnn.bench op=collectives
    python -m fullgnn.bench op=products graph=reddit-like device=cuda

Without torchrun the command starts its ranks itself, each of them this same command. ``conf/bench.yaml`` explains
every key.
"""

import logging
import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from fullgnn.bench import config
from fullgnn.bench.config import BenchConfig, load_bench, run_config
from fullgnn.bench.harness import Outcome, Results
from fullgnn.bench.process import check_threads, restart_unless, variables
from fullgnn.bench.record import keep
from fullgnn.config.keys import help_with_keys
from fullgnn.config.overrides import quote
from fullgnn.distributed import World, check_tasks, from_rank0, init_world, launch_workers, under_torchrun
from fullgnn.distributed.command import run_command
from fullgnn.distributed.launch import environment
from fullgnn.kernels.support import tuning
from fullgnn.kernels.support.tuning import read_tuning
from fullgnn.storage.folder import make_folder
from fullgnn.telemetry.machine import warn_if_busy

log = logging.getLogger("fullgnn.bench")


def run(arguments: list[str]) -> None:
    """The command: a rank of a job runs the benchmark; elsewhere the job is started."""
    if under_torchrun():
        cfg = load_bench(*arguments, f"nproc={os.environ['WORLD_SIZE']}")  # torchrun's count holds
        restart_unless(variables(cfg, int(os.environ["LOCAL_WORLD_SIZE"])))
        run_rank(cfg)
    else:
        start(load_bench(*arguments), arguments)


def start(cfg: BenchConfig, arguments: list[str]) -> None:
    """Start the ranks on this machine, in an environment that libraries read when Python starts."""
    check_tasks(None)
    for preset in (cfg.presets or config.presets()) if cfg.op == "epoch" else ():
        config.preset_config(cfg, preset, hidden=1)  # refuses a user error before anything is started
    for preset in (cfg.presets or (config.DEFAULT_PRESET,)) if cfg.op == "minibatch" else ():
        config.minibatch_config(cfg, cfg.nproc, preset)
    kept = [argument for argument in arguments if not argument.startswith("out=")]
    out = cfg.out if re.fullmatch(r"[\w./-]+", cfg.out) else quote(cfg.out)  # records show it: quoted only if needed
    with environment(variables(cfg, cfg.nproc)):
        launch_workers(["-m", "fullgnn.bench", *kept, f"out={out}"], cfg.nproc, run_config(cfg).runtime)


def run_rank(cfg: BenchConfig) -> None:
    """One benchmark, called on every rank of the job that torchrun's environment describes."""
    if cfg.tuning is not None:
        tuning.use(read_tuning(Path(cfg.tuning)))
    with init_world(run_config(cfg).runtime) as world:
        from_rank0(lambda: make_folder(cfg.out))
        load, table = from_rank0(warn_if_busy), ""
        outcome = Outcome()
        for part in operation(cfg)(cfg, world):
            outcome.add(part)
            table = from_rank0(lambda: keep(cfg, world, outcome, load)) or ""
        check_threads(cfg, world.local_size)
        from_rank0(lambda: log.info("\n%s\n%s", table, cfg.out))


def operation(cfg: BenchConfig) -> Callable[[BenchConfig, World], Results]:
    """The function that measures ``cfg.op``."""
    module, _, function = config.OPERATIONS[cfg.op].rpartition(".")
    return getattr(import_module(f"fullgnn.bench.{module}"), function)


if __name__ == "__main__":
    run_command(run, lambda: help_with_keys(__doc__, "bench"))
