"""GraphSAGE with the maximum over the neighbours against all pairs of nodes, in float64 with torch's own autograd."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.errors import ConfigError
from fullgnn.nn import SAGEConv
from tests.cases import config, dense_graph, layout_overrides
from tests.nn.message_conv import blocks, features

KINDS = ["weighted", "isolated", "directed", "tiny"]
LAYOUTS = [(1, 1), (2, 2), (3, 1), (4, 2), (6, 3)]  # with 2 replicas of 1 part, a rank has no stage


def layer() -> SAGEConv:
    return SAGEConv(5, 4, torch.Generator().manual_seed(2), "max").double()


def weighed(y: Tensor, ids: Tensor) -> Tensor:
    return (y * ((ids[:, None] + torch.arange(4) - 9) / 8)).sum()


def dense(conv: SAGEConv, x: Tensor, adj: np.ndarray) -> Tensor:
    """The layer for all nodes; of equal numbers, the one of the lowest id counts."""
    there = torch.from_numpy(adj != 0)[:, :, None]
    messages = torch.from_numpy(adj)[:, :, None] * x
    hidden = torch.where(there, messages, -torch.inf).detach()
    top = hidden.amax(1, keepdim=True)
    winner = torch.where(hidden == top, torch.arange(len(x))[None, :, None], len(x)).amin(1, keepdim=True)
    largest = torch.where(there.any(1), messages.gather(1, winner.clamp(max=len(x) - 1))[:, 0], 0)
    return largest @ conv.neighbors.weight + conv.neighbors.bias + x @ conv.root.weight


def computed(world: World, cfg: Config, kind: str) -> list[dict[str, Any]]:
    """Results and gradients for features that differ and that tie, over all rows and over the rows with loss."""
    conv, results = layer(), []
    for block in blocks(world, cfg, kind, conv).values():
        for ties in (False, True):
            x = features(len(dense_graph(kind).adj), ties)[block.source_id].requires_grad_()
            y = conv(x, block)
            gradients = torch.autograd.grad(weighed(y, block.own_id), [x, *conv.parameters()])
            results.append({"ids": block.own_id, "sources": block.source_id, "y": y.detach(), "gradients": gradients})
    return results


@pytest.mark.sample(6)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("split", ["true", "false"])
def test_the_maximum_and_all_gradients_are_exact(
    ranks, world_size: int, replication: int, split: str, every_case: bool
) -> None:
    options = ["runtime.dtype=float64", "reorder=rcm", "reorder.cluster_size=3", f"scheme.split_rows={split}"]
    cfg = config(*layout_overrides(replication), *options)
    for kind in KINDS if every_case else KINDS[:2]:
        graph, conv = dense_graph(kind), layer()
        outcomes = ranks(world_size)(computed, cfg, kind)
        kept = [torch.arange(len(graph.adj)), torch.from_numpy(np.flatnonzero(graph.train_mask))]
        for number, (rows, ties) in enumerate((rows, ties) for rows in kept for ties in (False, True)):
            x = features(len(graph.adj), ties).requires_grad_()
            exact = dense(conv, x, graph.adj)
            of_x, *of_parameters = torch.autograd.grad(weighed(exact[rows], rows), [x, *conv.parameters()])
            of_ranks = [rank[number] for rank in outcomes]
            sums = [torch.zeros_like(gradient) for gradient in of_parameters]
            for place, rank in enumerate(of_ranks):
                torch.testing.assert_close(rank["y"], exact.detach()[rank["ids"]], rtol=1e-12, atol=1e-12)
                torch.testing.assert_close(rank["gradients"][0], of_x[rank["sources"]], rtol=1e-11, atol=1e-11)
                if split == "true" or place % replication == 0:  # replicas with the same rows count once
                    for total, gradient in zip(sums, rank["gradients"][1:], strict=True):
                        total += gradient
            for total, gradient in zip(sums, of_parameters):
                torch.testing.assert_close(total, gradient, rtol=1e-11, atol=1e-11)


def test_another_aggregation_is_named() -> None:
    with pytest.raises(ConfigError, match="model.aggregation=median is not known: choose one of mean, max"):
        SAGEConv(5, 4, torch.Generator(), "median")
