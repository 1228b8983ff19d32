"""What the trainings of all peers share: models of a library's layers, and epochs as libraries' examples write them."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.problem import Problem

Models = dict[str, dict[str, Callable[..., torch.nn.Module]]]
"""Model, one of ``bench.models.MODELS`` -> method -> its maker (problem, weights) -> a module () -> logits."""


class Peer(torch.nn.Module):
    """A model of modules of a library; () -> (num_nodes, num_classes) logits.

    Args:
        convs: modules of the library; their biases become 0.
        matrices: the weight matrices of all modules, as views; they start from ``weights``.
        call: (modules, features) -> logits.
    """

    def __init__(
        self,
        problem: Problem,
        weights: list[Tensor],
        convs: Iterable[torch.nn.Module],
        matrices: Callable[[Any], list[Tensor]],
        call: Callable[[Any, Tensor], Tensor],
    ):
        super().__init__()
        self.features, self.call = problem.features, call
        self.convs = torch.nn.ModuleList(convs).to(problem.features.device)
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() < 2:
                    parameter.zero_()
            for matrix, weight in zip(matrices(self.convs), weights, strict=True):
                matrix.copy_(weight)

    def forward(self) -> Tensor:
        return self.call(self.convs, self.features)


def two_layers(
    problem: Problem,
    weights: list[Tensor],
    convs: Iterable[torch.nn.Module],
    matrices_of: Callable[[Any], list[Tensor]] = lambda conv: [conv.weight],
    call: Callable[[Any, Tensor], Tensor] = lambda conv, h: conv(h),
    dropout: float = 0.0,
    activation: Callable[[Tensor], Tensor] = F.relu,
) -> Peer:
    """Two convolutions, an activation and dropout between them.

    Args:
        matrices_of: the weight matrices of one of them.
        call: (convolution, h) -> the next h.
        dropout: rate on the hidden layer.
        activation: of the hidden layer.
    """

    def forward(convs: Any, features: Tensor) -> Tensor:
        first, second = convs
        return call(second, F.dropout(activation(call(first, features)), dropout))

    return Peer(
        problem, weights, convs, lambda convs: [matrix for conv in convs for matrix in matrices_of(conv)], forward
    )


def mlp(first: Tensor, second: Tensor) -> torch.nn.Sequential:
    """Two dense layers with the shapes of these weights."""
    layers = torch.nn.Linear(*first.shape), torch.nn.Linear(*second.shape)
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])


def of_linears(modules: Iterable[Any]) -> list[Tensor]:
    """The matrices (in, out) of ``torch.nn.Linear`` modules."""
    return [module.weight.T for module in modules if isinstance(module, torch.nn.Linear)]


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
