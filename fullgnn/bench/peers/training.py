"""What the trainings of all peers share: a model of two layers, and its epochs as libraries' examples write them."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.problem import Problem

Models = dict[str, dict[str, Callable[..., torch.nn.Module]]]
"""Model, one of ``bench.models.MODELS`` -> method -> its maker (problem, weights) -> a module () -> logits."""


class TwoLayers(torch.nn.Module):
    """Two convolutions of a library, an activation and dropout between them; () -> (num_nodes, num_classes) logits.

    Args:
        convs: modules of the library, whose biases are 0.
        matrices_of: the weight matrices of a module, as views; those of all modules start from ``weights``.
        call: (module, h) -> the next h.
        dropout: rate on the hidden layer.
        activation: of the hidden layer.
    """

    def __init__(
        self,
        problem: Problem,
        weights: list[Tensor],
        convs: Iterable[torch.nn.Module],
        matrices_of: Callable[[Any], list[Tensor]] = lambda conv: [conv.weight],
        call: Callable[[Any, Tensor], Tensor] = lambda conv, h: conv(h),
        dropout: float = 0.0,
        activation: Callable[[Tensor], Tensor] = F.relu,
    ):
        super().__init__()
        self.features, self.call, self.dropout, self.activation = problem.features, call, dropout, activation
        self.convs = torch.nn.ModuleList(convs).to(problem.features.device)
        with torch.no_grad():
            own = [matrix for conv in self.convs for matrix in matrices_of(conv)]
            for matrix, weight in zip(own, weights, strict=True):
                matrix.copy_(weight)

    def forward(self) -> Tensor:
        first, second = self.convs
        return self.call(second, F.dropout(self.activation(self.call(first, self.features)), self.dropout))


def trainer(model: torch.nn.Module, problem: Problem) -> Callable[[], float]:
    """One epoch a call, which returns the loss before the update; see :func:`launcher`."""
    launch = launcher(model, problem)
    return lambda: launch().item()


def launcher(model: torch.nn.Module, problem: Problem) -> Callable[[], Tensor]:
    """One epoch of ``model`` a call: forward, mean cross-entropy of the training nodes, backward, Adam.

    A call returns the loss, on the device, and does not wait for it. ``index_select`` takes a third of the time of
    ``logits[mask]`` and computes the same.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    target = problem.labels[problem.train_index]

    def launch() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model().index_select(0, problem.train_index), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return launch
