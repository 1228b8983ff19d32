"""What will fit, and what will be fast, before a machine is rented. Read downward.

    python -m fullgnn.plan dataset=reddit-like hardware=h200x8 nproc=1,2,4,8,16
    python -m fullgnn.plan num_nodes=111059956 num_edges=3200000000 num_features=128 num_classes=172 hardware=a100x8
    python -m fullgnn.plan dataset=cora hardware=auto nproc=1,2 orders=none,rcm exchanges=auto,broadcast
    python -m fullgnn.plan scaling=true num_nodes=111059956 num_edges=3200000000 num_features=128 num_classes=172

A dataset is loaded and counted; a graph given by its numbers is taken to be random. Other keys are those of the run.
"""

import logging
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch

from fullgnn.config import Config, conf_dir
from fullgnn.errors import ConfigError, FullGNNError
from fullgnn.plan.config import PlanConfig, load_plan
from fullgnn.plan.hardware import Hardware, load_hardware
from fullgnn.plan.page import page, scaling_page
from fullgnn.plan.scaling import scaling
from fullgnn.plan.search import Option, Source, best, from_dataset, from_numbers, options, smallest_that_fits
from fullgnn.plan.statistics import GraphStatistics
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.logger import setup_logging

log = logging.getLogger("fullgnn.plan")


def run(plan: PlanConfig, runs: dict[tuple[str, str], Config], graph: GraphStatistics | None, command: str) -> None:
    """Plan, print and write."""
    cfg = next(iter(runs.values()))
    hardware_for = profiles(plan.hardware, cfg)
    near_bytes = min(hardware_for(min(plan.nproc)).gather)
    source: Source = from_numbers(graph) if graph is not None else from_dataset(cfg, near_bytes)
    if plan.scaling:
        found = scaling(runs, source, hardware_for)
        text = scaling_page(found, hardware_for(1), command)
    else:
        found = list(options(runs, source, hardware_for, plan.nproc, plan.exchanges, plan.replications))
        if not found:
            raise ConfigError(f"replications={plan.replications} divide none of nproc={plan.nproc}")
        chosen = best(found)
        fallback = None if chosen else smallest_that_fits(runs, source, hardware_for, max(plan.nproc))
        text = page(found, chosen, fallback, hardware_for(max(plan.nproc)), command)
    write(Path(plan.out), found, text)
    log.info("\n%s\n%s", text, os.path.abspath(plan.out))


def profiles(name: str, cfg: Config) -> Callable[[int], Hardware]:
    """The profile for a number of ranks. ``auto`` is measured with at most as many as there are cores or GPUs; of more
    ranks, each is taken to be as fast and as well connected, with its share of the memory."""
    known: dict[int, Hardware] = {}

    def hardware_for(world_size: int) -> Hardware:
        if name != "auto":
            return known.setdefault(0, load_hardware(name, cfg.runtime))
        measured = min(world_size, places(cfg))
        if measured not in known:
            known[measured] = load_hardware(name, cfg.runtime, measured)
        found = known[measured]
        total = found.memory_bytes * found.ranks_per_node
        return replace(found, ranks_per_node=world_size, memory_bytes=max(1, total // world_size))

    return hardware_for


def places(cfg: Config) -> int:
    """Ranks that this machine can run at full speed."""
    num_gpus = torch.cuda.device_count() if cfg.runtime.device != "cpu" else 0
    return num_gpus or len(os.sched_getaffinity(0))


def write(folder: Path, found: list[Option], text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.md").write_text(text + "\n")
        rows = [asdict(option) | {"epoch_time_ms": option.prediction.epoch_time_ms} for option in found]
        (folder / "plan.json").write_text(strict_json(rows, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"out={folder} cannot be written ({error.strerror}): choose another folder") from error


def main() -> None:
    """Run the command line; a user's mistake ends it with one line and status 1."""
    setup_logging(0)
    arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        print(f"{__doc__}\n{(conf_dir() / 'plan.yaml').read_text()}")
        return
    try:
        if flags := [argument for argument in arguments if argument.startswith("-")]:
            raise ConfigError(f"{flags[0]} is not known: give key=value, or --help for the keys")
        run(*load_plan(arguments), command=shlex.join(["python", "-m", "fullgnn.plan", *arguments]))
    except FullGNNError as error:
        log.error("%s", " ".join(str(error).split()))
        sys.exit(1)


if __name__ == "__main__":
    main()
