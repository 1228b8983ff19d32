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


def attention(
    problem: Problem,
    weights: list[Tensor],
    layer: Callable[[int, int, int], torch.nn.Module],
    heads: Tensor,
    matrices_of: Callable[[Any], list[Tensor]],
    call: Callable[[Any, Tensor], Tensor],
) -> Peer:
    """Two layers of attention, with ELU between them; the last one has one head.

    Args:
        layer: (columns, columns of a head of the result, heads) -> a convolution.
        heads: (heads, columns of a head), among the weights of the first layer.
        matrices_of, call: as ``two_layers`` takes them.
    """
    num_heads, per_head = heads.shape
    convs = [
        layer(problem.features.shape[1], per_head, num_heads),
        layer(num_heads * per_head, weights[3].shape[1], 1),
    ]
    return two_layers(problem, weights, convs, matrices_of, call, activation=F.elu)


def gcnii(
    problem: Problem,
    weights: list[Tensor],
    convs: Iterable[torch.nn.Module],
    convolve: Callable[[Any, Tensor, Tensor], Tensor],
) -> Peer:
    """Layers of GCNII between two dense layers.

    Args:
        convolve: (convolution, h, the first h) -> the next h, before its ReLU.
    """

    def call(modules: Any, x: Tensor) -> Tensor:
        first, *layers, last = modules
        h = initial = F.relu(first(x))
        for layer in layers:
            h = F.relu(convolve(layer, h, initial))
        return last(h)

    def matrices(modules: Any) -> list[Tensor]:
        first, *layers, last = modules
        return [first.weight.T, *(layer.weight1 for layer in layers), last.weight.T]

    dense = [torch.nn.Linear(*weights[0].shape), torch.nn.Linear(*weights[-1].shape)]
    return Peer(problem, weights, [dense[0], *convs, dense[1]], matrices, call)


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
