"""The training of every peer, as the examples of their libraries write it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.problem import Problem


def trainer(parameters: Iterable[Tensor], forward: Callable[[], Tensor], problem: Problem) -> Callable[[], float]:
    """One epoch a call, which returns the loss before the update; see :func:`launcher`."""
    launch = launcher(parameters, forward, problem)
    return lambda: launch().item()


def launcher(parameters: Iterable[Tensor], forward: Callable[[], Tensor], problem: Problem) -> Callable[[], Tensor]:
    """One epoch a call: forward, mean cross-entropy of the training nodes, backward, Adam.

    A call returns the loss, on the device, and does not wait for it. ``index_select`` takes a third of the time of
    ``logits[mask]`` and computes the same.
    """
    optimizer = torch.optim.Adam(list(parameters), lr=0.01)
    target = problem.labels[problem.train_index]

    def launch() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward().index_select(0, problem.train_index), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return launch


def train_convs(
    convs: Sequence[Any],
    weight_of: Callable[[Any], Tensor],
    call: Callable[[Any, Tensor], Tensor],
    problem: Problem,
    weights: list[Tensor],
    dropout: float = 0.0,
    train: Callable[..., Callable[[], Any]] = trainer,
) -> Callable[[], Any]:
    """The training, by ``train``, of two convolution modules of a library with ReLU between them.

    Args:
        weight_of: the (in, out) weight of a module, as a view; it starts from ``weights``.
        call: (module, h) -> the next h.
        dropout: rate on the hidden layer.
    """
    first, second = modules = torch.nn.ModuleList(convs).to(problem.features.device)
    with torch.no_grad():
        for conv, weight in zip(modules, weights):
            weight_of(conv).copy_(weight)

    def forward() -> Tensor:
        return call(second, F.dropout(F.relu(call(first, problem.features)), dropout))

    return train(modules.parameters(), forward, problem)
