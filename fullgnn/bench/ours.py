"""Our trainings and products, as the benchmark calls them."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from fullgnn.bench.problem import Problem
from fullgnn.config import Config, build
from fullgnn.distributed import World
from fullgnn.engine.checks import replay_for
from fullgnn.engine.run import Run, set_up
from fullgnn.engine.step_runner import StepRunner
from fullgnn.graph import Graph
from fullgnn.telemetry.meter import Meter


class Epochs:
    """The training epochs of a run, from given first weights; called on every rank.

    Args:
        weights: (in, out) first weights of the layers; empty: the model keeps its own.
    """

    def __init__(self, run: Run, weights: list[Tensor]):
        self.runner = StepRunner(run, replay_for(run.cfg.runtime.cuda_graph, run.world))
        self._numbers = itertools.count(1)
        if weights:
            set_weights(run.model, weights)

    def launch(self) -> Callable[[], float]:
        """Launch one epoch; what is returned waits for the loss before its update, and reads it."""
        launched = self.runner(next(self._numbers))
        return lambda: launched.results.read()[0]


def trainer(cfg: Config, graph: Graph | None, world: World, weights: list[Tensor]) -> Callable[[], float]:
    """A training run of ``cfg`` before its first epoch; called on every rank of ``world``.

    Args:
        graph: the whole graph on rank 0, which replaces ``cfg.dataset``; None elsewhere.
        weights: see ``Epochs``.

    Returns:
        one training epoch, which returns the loss before its update, the same on every rank.
    """
    epochs = Epochs(set_up(cfg, world, Meter(world.device), graph), weights)
    return lambda: epochs.launch()()


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


def product(cfg: Config, problem: Problem) -> Callable[[Tensor], Tensor]:
    """x -> (A + I) @ x by ``cfg.kernel``, in float32, all entries of A + I being 1.

    As in training, the result is written where that of the last call of the same width was.
    """
    kernel = build(cfg.kernel)
    prepared = kernel.prepare(problem.block, torch.float32)
    out: dict[int, Tensor] = {}

    def multiply(x: Tensor) -> Tensor:
        y = out.setdefault(x.shape[1], torch.empty_like(x))
        kernel.spmm(prepared, x, y, accumulate=False)
        return y

    return multiply
