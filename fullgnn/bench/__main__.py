"""Measure one operation. Read downward.

    python -m fullgnn.bench op=spmm graph=products-mini widths=[16,64] threads=2
    python -m fullgnn.bench op=epoch presets=[full,hetu] nproc=2 threads=1
    torchrun --nproc-per-node 2 -m fullgnn.bench op=collectives

Without torchrun the command starts its ranks itself, each of them this same command. ``conf/bench.yaml`` explains
every key.
"""

import logging
import os
import re
import sys

from fullgnn.bench import collectives, epoch, reorder, spmm
from fullgnn.bench.config import BenchConfig, load_bench, preset_config, presets, run_config
from fullgnn.bench.environment import check_threads, environment, load_before, restart_unless, variables
from fullgnn.bench.record import check_folder, make_record, make_table, write
from fullgnn.config import conf_dir
from fullgnn.config.overrides import quote
from fullgnn.distributed import from_rank0, init_world, launch_workers, report_failure, under_torchrun
from fullgnn.distributed.command import fail
from fullgnn.errors import ConfigError, FullGNNError
from fullgnn.telemetry.logger import setup_logging

OPERATIONS = {"spmm": spmm.run, "epoch": epoch.run, "collectives": collectives.run, "reorder": reorder.run}

log = logging.getLogger("fullgnn.bench")


def run(cfg: BenchConfig) -> None:
    """One benchmark, called on every rank of the job that torchrun's environment describes."""
    with init_world(run_config(cfg).runtime) as world:
        setup_logging(world.rank)
        from_rank0(lambda: check_folder(cfg))
        load = from_rank0(load_before)
        outcome = OPERATIONS[cfg.op](cfg, world)
        check_threads(cfg, world.local_size)
        if world.rank == 0:
            record = make_record(cfg, world, outcome) | {"load_before": load}
            table = make_table(record, outcome.columns)
            write(cfg, record, table)
            log.info("\n%s\n%s", table, cfg.out)


def start(cfg: BenchConfig, arguments: list[str]) -> None:
    """Start the ranks on this machine, with what must be in the environment before Python starts."""
    run_cfg = run_config(cfg)
    if cfg.op == "epoch":
        for preset in cfg.presets or presets():
            preset_config(cfg, preset, hidden=1)  # refuses a mistake now
    kept = [argument for argument in arguments if not argument.startswith("out=")]
    with environment(variables(cfg, cfg.nproc)):
        launch_workers(["-m", "fullgnn.bench", *kept, f"out={_value(cfg.out)}"], cfg.nproc, run_cfg.runtime)


def _value(text: str) -> str:
    """``text`` for Hydra's command line, quoted only where it must be, since records show it."""
    return text if re.fullmatch(r"[\w./-]+", text) else quote(text)


def main() -> None:
    """Run the command line; a user's mistake ends it with one line and status 1, a defect with its traceback."""
    setup_logging(int(os.environ.get("RANK", 0)))
    arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        print(f"{__doc__}\n{(conf_dir() / 'bench.yaml').read_text()}")
        return
    try:
        if flags := [argument for argument in arguments if argument.startswith("-")]:
            raise ConfigError(f"{flags[0]} is not known: give key=value, or --help for the keys")
        if under_torchrun():
            cfg = load_bench(*arguments, f"nproc={os.environ['WORLD_SIZE']}")  # its count holds
            restart_unless(variables(cfg, int(os.environ["LOCAL_WORLD_SIZE"])))
            run(cfg)
        else:
            cfg = load_bench(*arguments)
            start(cfg, arguments)
    except FullGNNError as error:
        fail(error)
    except Exception as error:
        if under_torchrun():
            report_failure(error)
        raise


if __name__ == "__main__":
    main()
