"""What the trainings of peers that find links share: LightGCN, and steps as libraries' examples write them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.models import LIGHT_LAYERS
from fullgnn.bench.problem import Problem
from fullgnn.graph.links import train_pairs


class LightGCN(torch.nn.Module):
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


def trainer(model: torch.nn.Module, problem: Problem) -> Callable[[], float]:
    """One epoch of ``model``, () -> (num_nodes, channels), a call, which returns the mean loss of its steps.

    Each training pair is drawn once an epoch, in steps of ``problem.batch_size``, with one other candidate, which may
    be joined with the owner of the pair: to look that up would take more time. In a graph of users and items the loss
    is that of Bayesian personalised ranking, in others the binary cross-entropy.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    graph, device = problem.graph, problem.indices.device
    owners, partners = torch.from_numpy(train_pairs(graph)[0]).to(device)
    num_pairs, lowest = len(owners), graph.num_users or 0
    batch_size = problem.batch_size or num_pairs

    def step(owner: Tensor, partner: Tensor) -> Tensor:
        optimizer.zero_grad()
        output, other = model(), torch.randint(lowest, graph.num_nodes, (len(owner),), device=device)
        rows, positive, negative = (F.embedding(ids, output) for ids in (owner, partner, other))
        high, low = (rows * positive).sum(1), (rows * negative).sum(1)
        if graph.num_users is not None:
            loss = F.softplus(low - high).mean()
        else:
            loss = (F.softplus(-high) + F.softplus(low)).mean() / 2
        loss.backward()
        optimizer.step()
        return loss.detach()

    def epoch() -> float:
        if batch_size >= num_pairs:
            return step(owners, partners).item()
        order = torch.randperm(num_pairs, device=device)
        losses = [step(owners[some], partners[some]) for some in order.split(batch_size)]
        return torch.stack(losses).mean().item()

    return epoch
