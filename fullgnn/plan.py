"""Plan a run before a machine is rented: which options fit in memory, and which of them is fastest.

    python -m fullgnn.plan dataset=reddit-like hardware=h200x8 nproc=1,2,4,8,16
    python -m fullgnn.plan num_nodes=111059956 num_edges=3200000000 num_features=128 num_classes=172 hardware=a100x8
    python -m fullgnn.plan dataset=cora hardware=auto nproc=1,2 orders=none,rcm exchanges=auto,broadcast
    python -m fullgnn.plan scaling=true num_nodes=111059956 num_edges=3200000000 num_features=128 num_classes=172

A dataset is loaded and counted once, and the counts are kept; a graph given by its numbers is taken to be random. Other
keys are those of the run. hardware=auto is measured once; hardware.remeasure=true measures it again.
"""

import functools
import itertools
import logging
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Optional

import torch
from omegaconf import MISSING

from fullgnn.config import Config, RuntimeConfig, keys
from fullgnn.config.compose import compose, load_config
from fullgnn.costs.hardware import DEFAULT_CACHE, Hardware, NeededPart, load_hardware, warn_if_busy
from fullgnn.costs.measure import needed_part
from fullgnn.costs.page import SPARSE_FEATURES, page, scaling_page
from fullgnn.costs.search import Search, best
from fullgnn.costs.statistics import GraphStatistics, check_plannable
from fullgnn.distributed import check_tasks
from fullgnn.distributed.command import run_command
from fullgnn.engine.run import may_multiply_sparse, with_supported_optimizations
from fullgnn.errors import ConfigError
from fullgnn.graph import load_dataset
from fullgnn.graph.labels import LabelFacts
from fullgnn.graph.links import LinkFacts
from fullgnn.schemes.options import CHOICES, is_own
from fullgnn.storage.cache import Cache
from fullgnn.storage.folder import make_folder, write_text, writing_to
from fullgnn.storage.record import strict_json
from fullgnn.tasks import build_task, takes_links
from fullgnn.telemetry.screen import screen_width

log = logging.getLogger("fullgnn.plan")


@dataclass
class PlanConfig:
    """The keys of ``conf/plan.yaml``, which explains them."""

    hardware: str = MISSING
    nproc: list[int] = MISSING
    replications: Optional[list[int]] = MISSING
    exchanges: list[str] = MISSING
    orders: Optional[list[str]] = MISSING
    kernels: Optional[list[str]] = MISSING
    num_nodes: Optional[int] = MISSING
    num_edges: Optional[int] = MISSING
    num_features: Optional[int] = MISSING
    num_classes: Optional[int] = MISSING
    num_train: Optional[int] = MISSING
    num_users: Optional[int] = MISSING
    symmetric: bool = MISSING
    scaling: bool = MISSING
    remeasure: bool = MISSING
    out: str = MISSING


_OWN_KEYS = {field.name for field in fields(PlanConfig)} | {"hardware.remeasure"}
_LISTS = ("nproc", "replications", "exchanges", "orders", "kernels")
_NUMBERS = ("num_nodes", "num_edges", "num_features", "num_classes")


def run(arguments: list[str]) -> None:
    """Plan what the ``arguments`` of the command line describe, print the page, and write it and its numbers."""
    command = shlex.join(["python", "-m", "fullgnn.plan", *arguments])
    folders, arguments = keys.config_folders(arguments)
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
        named_keys = [*(f"--config-dir={own}" for own in folders), *of_run]
        page_of = functools.partial(page, options, named, hardware_for(max(plan.nproc)), command, named_keys)
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


def load_plan(
    arguments: list[str], folders: Sequence[str] = ()
) -> tuple[PlanConfig, list[Config], GraphStatistics | None]:
    """Read the ``arguments`` of the command line.

    Args:
        folders: with YAML files of the user.

    Returns:
        The plan; its runs, one for each order and kernel; and the graph if it is given by its numbers, else None.

    Raises:
        ConfigError: one line that names the key, what is wrong with it and what it may be.
    """
    own = [_listed(argument) for argument in arguments if _key(argument) in _OWN_KEYS]
    # Hydra takes the name of a profile for a choice of the group ``hardware``, and would load that file in its place.
    named = [argument for argument in own if argument.startswith("hardware=")]
    plan = keys.load_keys("plan", PlanConfig, [argument for argument in own if argument not in named])
    if named:
        plan.hardware = named[-1].partition("=")[2]
    _check(plan, folders)
    varied = {"reorder": plan.orders, "kernel": plan.kernels}
    lists = [[f"{group}={name}" for name in dict.fromkeys(names)] for group, names in varied.items() if names]
    others = [argument for argument in run_keys(arguments) if not varied.get(_key(argument))]
    composed = (load_config(compose(*others, *chosen, folders=folders)) for chosen in itertools.product(*lists))
    runs = list(map(with_supported_optimizations, composed))
    _check_run(plan, runs[0])
    if plan.num_nodes is None:
        return plan, runs, None
    if "dataset" in map(_key, others):
        raise ConfigError("dataset=... and num_nodes=... both describe a graph: leave out one of them")
    return plan, runs, _graph(plan, runs[0])


def run_keys(arguments: list[str]) -> list[str]:
    """Return the ``arguments`` that are keys of a run."""
    return [argument for argument in arguments if _key(argument) not in _OWN_KEYS]


def _key(argument: str) -> str:
    return argument.partition("=")[0]


def _listed(argument: str) -> str:
    """``nproc=1,2`` as Hydra writes a list: ``nproc=[1,2]``, and ``hardware.remeasure`` as the key of the file."""
    argument = argument.replace("hardware.remeasure=", "remeasure=", 1)
    key, _, value = argument.partition("=")
    return f"{key}=[{value}]" if key in _LISTS and value and value != "null" and not value.startswith("[") else argument


def _check(plan: PlanConfig, folders: Sequence[str]) -> None:
    for key in ("nproc", "replications"):
        if getattr(plan, key) == []:
            raise ConfigError(f"{key}=[] is empty: give at least one number")
    keys.check_minima(plan, {"nproc": 1, "replications": 1})
    keys.check_choices("exchanges", plan.exchanges, CHOICES["exchange"])
    keys.check_choices("orders", plan.orders or [], keys.choices("reorder", folders))
    keys.check_choices("kernels", plan.kernels or [], keys.choices("kernel", folders))
    if _given(plan) and plan.orders:
        raise ConfigError("orders need a graph to order: give dataset=... in place of its numbers, or leave orders out")


def _given(plan: PlanConfig) -> list[str]:
    """The keys that describe a graph by its numbers."""
    return [key for key in (*_NUMBERS, "num_users") if getattr(plan, key) is not None]


def _check_run(plan: PlanConfig, run: Config) -> None:
    """Refuse numbers that are no graph of the ``run``; of a scheme of the user's own, what is known of 1D and 1.5D
    alone."""
    given, finds_links = _given(plan), takes_links(run.task)
    needed = [key for key in _NUMBERS if not (finds_links and key == "num_classes")]  # task.channels, in its place
    missing = [key for key in needed if key not in given]
    if given and missing:
        problem = f"{given[0]} describes a graph by its numbers, and {missing[0]} is missing"
        raise ConfigError(f"{problem}: give {missing[0]}=...")
    if finds_links and plan.num_classes is not None:
        raise ConfigError(f"num_classes is not read by task={run.task['name']}, whose output has task.channels columns")
    if plan.num_users is not None and not finds_links:
        raise ConfigError("num_users is read by tasks that find links alone: choose task=link_ranking or leave it out")
    if plan.num_users is not None and not 0 < plan.num_users < (plan.num_nodes or 0):
        raise ConfigError(f"num_users={plan.num_users} leaves no user or no item among num_nodes={plan.num_nodes}")
    if not is_own(run.scheme):
        return
    of_own = f"scheme={run.scheme['name']} is planned by running its program"
    if plan.num_nodes is not None:
        raise ConfigError(f"{of_own}, which needs a graph: give dataset=... in place of its numbers")
    if plan.scaling:
        raise ConfigError(f"{of_own} on each rank, and not on up to 1024: leave out scaling=true, and give nproc=...")
    if plan.replications:
        raise ConfigError(f"{of_own}, and replications are those of 1.5D: leave them out")


def _graph(plan: PlanConfig, run: Config) -> GraphStatistics:
    num_nodes, num_edges, num_features, num_classes = (getattr(plan, key) for key in _NUMBERS)
    links = None
    if takes_links(run.task):
        both_directions = plan.symmetric or plan.num_users is not None
        links = LinkFacts(num_nodes, plan.num_users, num_edges // 2 if both_directions else num_edges)
        num_classes = build_task(run.task, LabelFacts(1), links).num_outputs
    nnz, num_train = num_edges + run.self_loops * num_nodes, num_nodes if plan.num_train is None else plan.num_train
    numbers, pattern = (num_nodes, nnz, num_features, num_classes, num_train), run.optimizations.fold_normalization
    return GraphStatistics(*numbers, symmetric=plan.symmetric, pattern=pattern, links=links)


if __name__ == "__main__":
    run_command(run, lambda: keys.help_with_keys(__doc__, "plan"), keys.CONFIG_FLAGS)
