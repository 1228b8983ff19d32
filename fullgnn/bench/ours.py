"""Our trainings and products, as the benchmark calls them."""

import itertools
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine.checks import replay_for
from fullgnn.engine.run import set_up
from fullgnn.engine.step_runner import StepRunner
from fullgnn.graph import Graph
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.telemetry.meter import Meter


class Epochs:
    """The training epochs of a run of ``cfg`` from given first weights; every rank of ``world`` makes them.

    A call launches one epoch; what it returns waits for the loss before its update, the same on every rank, and reads
    it.

    Args:
        graph: the whole graph on rank 0, which replaces ``cfg.dataset``; None elsewhere.
        weights: (in, out) first weights of the layers; empty: the model keeps its own.
        prepared: the graph in its place, ready to be distributed.
    """

    def __init__(
        self,
        cfg: Config,
        graph: Graph | None,
        world: World,
        weights: list[Tensor],
        prepared: PreparedGraph | None = None,
    ):
        self._run = set_up(cfg, world, Meter(world.device), graph, prepared=prepared)
        self._runner = StepRunner(self._run, replay_for(cfg.runtime.cuda_graph, world))
        self._numbers = itertools.count(1)
        if weights:
            set_weights(self._run.model, weights)

    def __call__(self) -> Callable[[], float]:
        launched = self._runner(next(self._numbers))
        return lambda: launched.results.read()[0]

    def details(self) -> dict[str, Any]:
        """What the run has decided: its optimizations, its kernel, and whether its epochs are replayed."""
        own = {"kernel": self._run.scheme.kernel_name, "cuda_graph": self._runner.outcome}
        return {"settings": asdict(self._run.optimizations) | {"scheme": self._run.cfg.scheme["name"], **own}, **own}


@torch.no_grad()
def set_weights(model: torch.nn.Module, weights: list[Tensor]) -> None:
    """Put ``weights`` into the matrices of ``model``, or of a stack of matrices, in order, and 0 into its biases."""
    remaining = iter(weights)
    for parameter in model.parameters():
        if parameter.dim() < 2:
            parameter.zero_()
        for matrix in [parameter] if parameter.dim() == 2 else parameter if parameter.dim() == 3 else []:
            matrix.copy_(next(remaining))
    assert next(remaining, None) is None
