"""What the trainings of peers that find links share: PlainLightGCN, and steps as libraries' examples write them."""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.models import LIGHT_LAYERS
from fullgnn.bench.peers.training import descent
from fullgnn.bench.problem import Problem
from fullgnn.graph.links import train_pairs


class PlainLightGCN(torch.nn.Module):
    """The mean of the trainable vectors and of their products, by hand; () -> (num_nodes, channels).

    Args:
        table: (num_nodes, channels) first values.
        multiply: h -> A h, differentiable.
    """

    def __init__(self, table: Tensor, multiply: Callable[[Tensor], Tensor]):
        super().__init__()
        self.table, self.multiply = torch.nn.Parameter(table.clone()), multiply

    def forward(self) -> Tensor:
        h: Tensor = self.table
        total = h
        for _ in range(LIGHT_LAYERS):
            h = self.multiply(h)
            total = total + h
        return total / (LIGHT_LAYERS + 1)


def launcher(model: torch.nn.Module, problem: Problem) -> Callable[[], Callable[[], float]]:
    """One epoch of ``model``, () -> (num_nodes, channels), a call; what it returns reads the mean loss of its steps.

    Each training pair is drawn once an epoch, in steps of ``problem.batch_size``, with one other candidate, which may
    be joined with the owner of the pair: to look that up would take more time. In a graph of users and items the loss
    is that of Bayesian personalised ranking, in others the binary cross-entropy.
    """
    step, graph, device = descent(model), problem.graph, problem.indices.device
    pairs = torch.from_numpy(train_pairs(graph)[0]).to(device)
    num_pairs, lowest = pairs.shape[1], graph.num_users or 0
    batch_size = problem.batch_size or num_pairs

    def loss_of(model: torch.nn.Module, pairs: Tensor) -> Tensor:
        output, other = model(), torch.randint(lowest, graph.num_nodes, (pairs.shape[1],), device=device)
        rows, positive, negative = (F.embedding(ids, output) for ids in (*pairs, other))
        high, low = (rows * positive).sum(1), (rows * negative).sum(1)
        if graph.num_users is not None:
            return F.softplus(low - high).mean()
        return (F.softplus(-high) + F.softplus(low)).mean() / 2

    def epoch() -> Callable[[], float]:
        order = torch.randperm(num_pairs, device=device) if batch_size < num_pairs else None
        batches = [pairs] if order is None else [pairs[:, some] for some in order.split(batch_size)]
        return torch.stack([step(functools.partial(loss_of, pairs=batch)) for batch in batches]).mean().item

    return epoch
