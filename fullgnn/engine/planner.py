"""What a run may leave open: its scheme, and how rows arrive. A planner decides it."""

from typing import Any

from fullgnn.config import Config, OptimizationConfig, build
from fullgnn.distributed import World
from fullgnn.engine.job import Job
from fullgnn.prepare.prepared import PreparedGraph
from fullgnn.prepare.process import HostWork
from fullgnn.schemes.base import Scheme

COSTS = "fullgnn.costs.auto.CostPlanner"
"""The planner that predicts what each choice costs."""


class Planner:
    """Decides nothing, since nothing is open. Every rank calls its methods, and gets the same results."""

    def with_scheme(self, cfg: Config, world: World, work: HostWork) -> Config:
        """``cfg`` with a scheme.

        Args:
            work: on rank 0, where the whole graph is looked at.
        """
        return cfg

    def with_fetch(
        self, cfg: Config, world: World, scheme: Scheme, prepared: PreparedGraph, optimizations: OptimizationConfig
    ) -> Config:
        """``cfg`` with how rows arrive, see ``SchemeOptions.fetch``; the choice is also set on ``scheme``.

        Args:
            optimizations: those that the model supports on this graph.

        Raises:
            ConfigError: a GPU has too little memory for the run; the same on every rank.
        """
        return cfg

    def predicted(self, cfg: Config, world: World, job: Job, prepared: PreparedGraph) -> dict[str, Any] | None:
        """``RunRecord.predicted`` of a run, from its own blocks; None: nothing was predicted."""
        return None


def planner_of(cfg: Config, world: World) -> Planner:
    """The planner of a run. That of ``costs/`` is loaded only where something is open: with ``scheme=auto``, and on
    GPUs, where it decides how rows arrive."""
    is_open = cfg.scheme["name"] == "auto" or world.device.type == "cuda"
    return build({"_target_": COSTS}) if is_open else Planner()
