"""Prepare a graph for later runs: load, partition, order and cut it once, and keep it in a cache folder.

    python -m fullgnn.prepare dataset=products-like reorder=rcm runtime.nproc=8 runtime.cache_dir=CACHE
    python -m fullgnn.train   dataset=products-like reorder=rcm runtime.nproc=8 runtime.cache_dir=CACHE

The keys are those of the run. A run with the same dataset, partition, order and number of block rows begins at once,
whatever its model is. runtime.nproc is the number of all ranks of the run, also of one on several machines. A run with
a cache folder prepares its graph itself if this command has not done it.
"""

import logging
import os

import torch

from fullgnn.config import Config
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import check_tasks, default_nproc
from fullgnn.distributed.command import run_command
from fullgnn.errors import ConfigError
from fullgnn.graph.datasets import check_dataset
from fullgnn.graph.remarks import say
from fullgnn.partition.facts import edge_cut
from fullgnn.partition.folder import open_folder
from fullgnn.prepare.source import Places, Preparation, codec_context
from fullgnn.schemes.base import CHOOSE_SCHEME
from fullgnn.schemes.options import SchemeOptions
from fullgnn.telemetry.screen import percent

log = logging.getLogger("fullgnn.prepare")


def run(arguments: list[str]) -> None:
    """Prepare the graph of the run that the ``arguments`` of the command line describe, and say where it is.

    Raises:
        FullGNNError: a user error.
    """
    cfg = load_config(compose(*arguments))
    check_tasks(cfg.runtime, one_process=True)
    if cfg.runtime.cache_dir is None:
        raise ConfigError("a prepared graph needs a folder: set runtime.cache_dir=FOLDER here and in the runs")
    check_dataset(cfg.dataset)
    torch.set_num_threads(cfg.runtime.threads or len(os.sched_getaffinity(0)))
    with Places() as places:
        path, _ = Preparation(cfg, num_parts_of(cfg), codec_context=codec_context(cfg)).in_folder(places.new())
        facts = open_folder(path).facts
        kept = path.is_relative_to(os.path.abspath(os.path.expanduser(cfg.runtime.cache_dir)))
    say(facts.nodes.name, facts.remarks)
    methods = facts.methods
    if not kept:
        raise ConfigError(
            f"partition={cfg.partition['name']}, reorder={cfg.reorder.name} are not available here, and"
            f" {methods.partition}, {methods.reorder} took their place: such a graph is not kept"
        )
    log.info(
        "%s: %d nodes, %d non-zeros, %d block rows (%s, %s), edge cut %s\nloaded in %.1f s, prepared in %.1f s\n%s",
        facts.nodes.name,
        facts.num_nodes,
        facts.num_edges,
        facts.num_parts,
        methods.partition,
        methods.reorder,
        percent(edge_cut(facts, self_loops=False)),
        facts.load_time_s,
        facts.prepare_time_s,
        path,
    )


def num_parts_of(cfg: Config) -> int:
    """The number of block rows of a run of ``cfg``.

    Raises:
        ConfigError: it is not known before the run, or the replication does not divide the number of ranks.
    """
    if cfg.scheme["name"] == "auto":
        raise ConfigError(f"scheme=auto chooses the number of block rows when it runs: {CHOOSE_SCHEME}")
    num_ranks = default_nproc(cfg.runtime)
    return SchemeOptions.of(cfg.scheme).grid(num_ranks).num_parts if "replication" in cfg.scheme else num_ranks


def main() -> None:
    """Run the command line; a user error ends it with one line and status 1, a bug with its traceback."""
    run_command(run, lambda: __doc__ or "")


if __name__ == "__main__":
    main()
