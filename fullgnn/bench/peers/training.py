"""The training of every peer, as the examples of their libraries write it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.problem import Problem


def trainer(parameters: Iterable[Tensor], forward: Callable[[], Tensor], problem: Problem) -> Callable[[], float]:
    """One epoch a call: forward, mean cross-entropy of the training nodes, backward, Adam; it returns the loss.

    ``index_select`` takes a third of the time of ``logits[mask]`` and computes the same.
    """
    optimizer = torch.optim.Adam(list(parameters), lr=0.01)
    target = problem.labels[problem.train_index]

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward().index_select(0, problem.train_index), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def train_convs(
    convs: Sequence[Any],
    weight_of: Callable[[Any], Tensor],
    call: Callable[[Any, Tensor], Tensor],
    problem: Problem,
    weights: list[Tensor],
) -> Callable[[], float]:
    """The training of two convolution modules of a library, with ReLU between them.

    Args:
        weight_of: the (in, out) weight of a module, as a view; it starts from ``weights``.
        call: (module, h) -> the next h.
    """
    first, second = modules = torch.nn.ModuleList(convs).to(problem.features.device)
    with torch.no_grad():
        for conv, weight in zip(modules, weights):
            weight_of(conv).copy_(weight)
    return trainer(modules.parameters(), lambda: call(second, F.relu(call(first, problem.features))), problem)
