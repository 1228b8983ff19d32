"""Plan a run before a machine is rented: which options fit in memory, and which of them is fastest.

    python -m fullgnn.plan dataset=reddit-like hardware=h200x8 nproc=1,2,4,8,16
    python -m fullgnn.plan num_nodes=111059956 num_edges=3200000000 num_features=128 num_classes=172 hardware=a100x8
    python -m fullgnn.plan dataset=cora hardware=auto nproc=1,2 orders=none,rcm exchanges=auto,broadcast
    python -m fullgnn.plan scaling=true num_nodes=111059956 num_edges=3200000000 num_features=128 num_classes=172

A dataset is loaded and counted once, and the counts are kept; a graph given by its numbers is taken to be random. Other
keys are those of the run. hardware=auto is measured once; hardware.remeasure=true measures it again.
"""

import functools
import logging
import os
import shlex
from collections.abc import Callable
from dataclasses import asdict, replace

import torch

from fullgnn.config import RuntimeConfig
from fullgnn.config.compose import compose, load_config
from fullgnn.config.keys import CONFIG_FLAGS, config_folders, help_with_keys
from fullgnn.costs.config import load_plan, run_keys
from fullgnn.costs.hardware import DEFAULT_CACHE, Hardware, NeededPart, load_hardware, warn_if_busy
from fullgnn.costs.measure import needed_part
from fullgnn.costs.page import SPARSE_FEATURES, page, scaling_page
from fullgnn.costs.search import Search, best
from fullgnn.costs.statistics import check_plannable
from fullgnn.distributed import check_tasks
from fullgnn.distributed.command import run_command
from fullgnn.engine.run import may_multiply_sparse
from fullgnn.errors import ConfigError
from fullgnn.graph import load_dataset
from fullgnn.storage.cache import Cache
from fullgnn.storage.folder import make_folder, write_text, writing_to
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.screen import screen_width

log = logging.getLogger("fullgnn.plan")


def run(arguments: list[str]) -> None:
    """Plan what the ``arguments`` of the command line describe, print the page, and write it and its numbers."""
    command = shlex.join(["python", "-m", "fullgnn.plan", *arguments])
    folders, arguments = config_folders(arguments)
    plan, runs, graph = load_plan(arguments, folders)
    cfg = runs[0]
    check_tasks(cfg.runtime, one_process=True)
    folder, of_run = make_folder(plan.out), run_keys(arguments)
    check_plannable(cfg)
    load = functools.cache(lambda: load_dataset(cfg.dataset))
    hardware_for = profiles(plan.hardware, cfg.runtime, plan.remeasure, lambda: needed_part(cfg, graph or load()))
    cache = Cache(DEFAULT_CACHE if cfg.runtime.cache_dir is None else cfg.runtime.cache_dir)
    search = Search(runs, graph or load, hardware_for, cache)
    if plan.scaling:
        options = search.scaling()
        page_of = functools.partial(scaling_page, options, hardware_for(1), command)
    else:
        options = search.options(plan.nproc, plan.exchanges, plan.replications)
        if not options:
            raise ConfigError(f"replications={plan.replications} divide none of nproc={plan.nproc}")
        named = best(options) or search.smallest_that_fits(max(plan.nproc))
        keys = [*(f"--config-dir={own}" for own in folders), *of_run]
        page_of = functools.partial(page, options, named, hardware_for(max(plan.nproc)), command, keys)
    note = SPARSE_FEATURES if may_multiply_sparse(load_config(compose(*of_run, folders=folders))) else ""
    rows = [asdict(option) | {"epoch_time_ms": option.prediction.epoch_time_ms} for option in options]
    log.info("\n%s", page_of(screen=screen_width(), note=note))
    with writing_to("out", plan.out):
        write_text(folder / "plan.md", page_of(note=note) + "\n")
        write_text(folder / "plan.json", strict_json(rows, indent=2) + "\n")
    log.info("%s", os.path.abspath(folder))


def profiles(name: str, runtime: RuntimeConfig, remeasure: bool, needed: NeededPart) -> Callable[[int], Hardware]:
    """The profile ``name`` for any number of ranks.

    ``auto`` is measured with as many ranks as there are cores or GPUs, at most. If there are more ranks, each is taken
    to be as fast and as well connected as those measured, and to have an equal part of the memory.

    Args:
        remeasure: whether ``auto`` is measured now, also if a profile is kept.
        needed: the part of the machine that the graph needs.
    """
    if name != "auto":
        return functools.cache(lambda world_size: load_hardware(name, runtime))
    num_gpus = torch.cuda.device_count() if runtime.device != "cpu" else 0
    places = num_gpus or len(os.sched_getaffinity(0))

    @functools.cache
    def measured(num_ranks: int) -> Hardware:
        profile = load_hardware(name, runtime, num_ranks, remeasure, needed)
        warn_if_busy(profile, "hardware.remeasure=true")
        return profile

    def hardware_for(world_size: int) -> Hardware:
        profile = measured(min(world_size, places))
        total = profile.memory_bytes * profile.ranks_per_node
        return replace(profile, ranks_per_node=world_size, memory_bytes=max(1, total // world_size))

    return hardware_for


if __name__ == "__main__":
    run_command(run, lambda: help_with_keys(__doc__, "plan"), CONFIG_FLAGS)
