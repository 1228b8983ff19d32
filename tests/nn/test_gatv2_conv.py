"""GATv2 against all pairs of nodes, computed densely in float64 with torch's own autograd."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.nn import GATv2Conv
from tests.cases import config, dense_graph, layout_overrides
from tests.nn.message_conv import blocks, features

LAYOUTS = [(1, 1), (2, 2), (3, 1), (4, 2), (6, 3)]  # with 2 replicas of 1 part, a rank has no stage
CASES = [("isolated", True, False, 1.0), ("weighted", False, True, 150.0)]  # graph, concat, self-loops, scale of logits


def layer(concat: bool, self_loops: bool, scale: float) -> GATv2Conv:
    conv = GATv2Conv(5, 6 if concat else 2, torch.Generator().manual_seed(2), 3, concat, 0.2, None, self_loops).double()
    with torch.no_grad():
        conv.att_vector.mul_(scale)
        for number, bias in enumerate((conv.source.bias, conv.target.bias, conv.bias)):
            bias.copy_(torch.randn(len(bias), generator=torch.Generator().manual_seed(number)))
    return conv


def weighed(y: Tensor, ids: Tensor) -> Tensor:
    return (y * ((ids[:, None] + torch.arange(y.shape[1]) - 9) / 8)).sum()


def dense(conv: GATv2Conv, x: Tensor, adj: np.ndarray) -> Tensor:
    there = torch.from_numpy(adj != 0)[:, :, None]
    source, target = ((x @ linear.weight + linear.bias).unflatten(1, (3, 2)) for linear in (conv.source, conv.target))
    ends = source[None] + target[:, None]  # (n, n, 3, 2), rows are targets
    logits = (torch.where(ends > 0, ends, 0.2 * ends) * conv.att_vector).sum(3)
    assert conv.att_vector.abs().max() < 50 or (logits.max() > 80 and logits.min() < -80)
    logits = torch.where(there, logits, -torch.inf)
    weights = torch.where(there.any(1, keepdim=True), logits, 0).softmax(1) * torch.from_numpy(adj)[:, :, None]
    out = torch.einsum("ijk,jkd->ikd", weights, source)
    return (out.flatten(1) if conv.concat else out.mean(1)) + conv.bias


def computed(world: World, cfg: Config, case: tuple[str, bool, bool, float]) -> list[dict[str, Any]]:
    """Results and gradients of a layer over all rows, and over the rows with loss."""
    conv, results = layer(*case[1:]), []
    for block in blocks(world, cfg, case[0], conv).values():
        x = features(len(dense_graph(case[0]).adj), False)[block.source_id].requires_grad_()
        y = conv(x, block)
        gradients = torch.autograd.grad(weighed(y, block.own_id), [x, *conv.parameters()])
        results.append({"ids": block.own_id, "sources": block.source_id, "y": y.detach(), "gradients": gradients})
    return results


@pytest.mark.sample(12)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("split", ["true", "false"])
def test_the_layer_and_all_gradients_are_exact(ranks, world_size: int, replication: int, split: str) -> None:
    options = ["runtime.dtype=float64", "reorder=rcm", "reorder.cluster_size=3", f"scheme.split_rows={split}"]
    cfg = config(*layout_overrides(replication), *options)
    for case in CASES:
        graph, conv = dense_graph(case[0]), layer(*case[1:])
        adj = graph.adj.copy()
        if case[2]:
            np.fill_diagonal(adj, 1)
        outcomes = ranks(world_size)(computed, cfg, case)
        for number, rows in enumerate((np.ones(len(adj), bool), graph.train_mask)):
            x, kept = features(len(adj), False).requires_grad_(), torch.from_numpy(np.flatnonzero(rows))
            exact = dense(conv, x, adj)
            of_x, *of_parameters = torch.autograd.grad(weighed(exact[kept], kept), [x, *conv.parameters()])
            of_ranks = [rank[number] for rank in outcomes]
            sums = [torch.zeros_like(gradient) for gradient in of_parameters]
            for place, rank in enumerate(of_ranks):
                torch.testing.assert_close(rank["y"], exact.detach()[rank["ids"]], rtol=1e-10, atol=1e-10)
                torch.testing.assert_close(rank["gradients"][0], of_x[rank["sources"]], rtol=1e-9, atol=1e-9)
                if split == "true" or place % replication == 0:  # replicas with the same rows count once
                    for total, gradient in zip(sums, rank["gradients"][1:], strict=True):
                        total += gradient
            for total, gradient in zip(sums, of_parameters):
                torch.testing.assert_close(total, gradient, rtol=1e-9, atol=1e-9)
