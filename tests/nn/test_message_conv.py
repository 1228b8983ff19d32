"""A user's own message against all pairs of nodes, computed densely in float64 with torch's own autograd."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.nn import MessageConv, message_conv
from tests.cases import config, dense_graph, layout_overrides
from tests.nn.message_conv import blocks, features

KINDS = ["directed", "weighted", "isolated", "tiny"]
LAYOUTS = [(1, 1), (2, 1), (2, 2), (3, 1), (4, 2), (6, 3), (8, 2)]


class Gated(MessageConv):
    """tanh(x_j W + x_i V) times a number for each edge, which parameters and the weight of the edge decide."""

    def __init__(self, aggregation: str, self_loops: bool = False, width: int = 5):
        super().__init__(aggregation, self_loops)
        generator = torch.Generator().manual_seed(5)
        self.source, self.target, self.gate = (
            torch.nn.Parameter(torch.randn(*shape, generator=generator, dtype=torch.float64))
            for shape in ((width, 4), (width, 4), (1,))
        )

    def message(self, x_source: Tensor, x_target: Tensor, edge_value: Tensor | None) -> Tensor:
        value = self.gate if edge_value is None else self.gate * edge_value.sum(1, keepdim=True)
        return torch.tanh(x_source @ self.source + x_target @ self.target) * value


def dense(conv: MessageConv, x: Tensor, adj: np.ndarray, values: Tensor | None) -> Tensor:
    """(n, F) result, from the messages of all n x n pairs.

    Args:
        values: (n, n, V) values of the edges; None: the edges have none.
    """
    n = len(adj)
    there = torch.from_numpy(adj != 0)
    target, source = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    of_pairs = None if values is None else values.flatten(0, 1)
    messages = conv.message(x[source.flatten()], x[target.flatten()], of_pairs).unflatten(0, (n, n))
    count = there.sum(1, keepdim=True).clamp(min=1)
    if conv.aggregation != "max":
        total = (messages * there[:, :, None]).sum(1)
        return total / count if conv.aggregation == "mean" else total
    hidden = torch.where(there[:, :, None], messages, -torch.inf)
    largest = hidden.amax(1, keepdim=True)
    winner = torch.where(hidden == largest, source[:, :, None], n).amin(1, keepdim=True)  # ties: the lowest id
    chosen = messages.gather(1, winner.clamp(max=n - 1))[:, 0]
    return torch.where(there.any(1, keepdim=True), chosen, 0)


def convolved(world: World, cfg: Config, kind: str, cases: list[tuple[str, bool, bool]]) -> list[dict[str, Any]]:
    """Results and gradients of a layer, for (aggregation, self-loops, whole numbers), over all rows and loss rows."""
    before, message_conv.CHUNK_EDGES = message_conv.CHUNK_EDGES, 7  # a few chunks in each stage
    facts = []
    try:
        for aggregation, self_loops, whole in cases:
            conv = Gated(aggregation, self_loops)
            for block in blocks(world, cfg, kind, conv).values():
                x = features(len(dense_graph(kind).adj), whole)[block.source_id].requires_grad_()
                y = conv(x, block)
                weigh = (block.own_id[:, None] + torch.arange(4) - 9) / 8
                gradients = torch.autograd.grad((y * weigh).sum(), [x, *conv.parameters()])
                facts.append({"ids": block.own_id, "sources": block.source_id, "y": y.detach(), "gradients": gradients})
    finally:
        message_conv.CHUNK_EDGES = before
    return facts


@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("split", ["true", "false"])
@pytest.mark.sample(14)
def test_messages_and_all_gradients_are_exact(ranks, world_size: int, replication: int, split: str) -> None:
    cases = [
        (aggregation, loops, whole)
        for aggregation in ("sum", "mean", "max")
        for loops, whole in ((False, True), (True, False))
    ]
    options = ["runtime.dtype=float64", "reorder=rcm", "reorder.cluster_size=3", f"scheme.split_rows={split}"]
    cfg = config(*layout_overrides(replication), *options)
    for kind in KINDS[(LAYOUTS.index((world_size, replication)) + (split == "true")) % 2 :: 2]:
        graph = dense_graph(kind)
        outcomes = ranks(world_size)(convolved, cfg, kind, cases)
        for number, (aggregation, loops, whole) in enumerate(cases):
            adj = graph.adj.copy()
            if loops:
                np.fill_diagonal(adj, 1)
            values = torch.from_numpy(adj)[:, :, None] if kind == "weighted" else None
            for position, rows in enumerate((np.ones(len(adj), bool), graph.train_mask)):
                conv, x = Gated(aggregation, loops), features(len(adj), whole).requires_grad_()
                exact = dense(conv, x, adj, values)
                weigh = (torch.arange(len(adj))[:, None] + torch.arange(4) - 9) / 8
                kept = torch.from_numpy(rows)[:, None]
                of_x, *of_parameters = torch.autograd.grad((exact * weigh * kept).sum(), [x, *conv.parameters()])
                of_ranks = [rank[2 * number + position] for rank in outcomes]
                sums = [torch.zeros_like(gradient) for gradient in of_parameters]
                for place, rank in enumerate(of_ranks):
                    torch.testing.assert_close(rank["y"], exact.detach()[rank["ids"]], rtol=1e-12, atol=1e-12)
                    torch.testing.assert_close(rank["gradients"][0], of_x[rank["sources"]], rtol=1e-11, atol=1e-11)
                    if split == "true" or place % replication == 0:  # replicas with the same rows count once
                        for total, gradient in zip(sums, rank["gradients"][1:]):
                            total += gradient
                for total, gradient in zip(sums, of_parameters):
                    torch.testing.assert_close(total, gradient, rtol=1e-11, atol=1e-11)


def with_values(world: World, cfg: Config) -> list[dict[str, Any]]:
    """Edge values of two columns, which are a function of the edge's ids, and their gradients."""
    conv = Gated("mean")
    block = blocks(world, cfg, "directed", conv)["all"]
    x = features(29, False)[block.source_id].requires_grad_()
    values, ends = [], []
    for stage, sources in zip(block.stages(conv.edge_set), block.stage_source_id):
        target = block.target_id.repeat_interleave(stage.csr.indptr.diff().long())
        ends.append((target, sources[stage.csr.indices.long()]))
        values.append(value_of(*ends[-1]).requires_grad_())
    y = conv(x, block, values)
    weigh = (block.own_id[:, None] + torch.arange(4) - 9) / 8
    of_x, *of_values = torch.autograd.grad((y * weigh).sum(), [x, *values])
    return [{"ids": block.own_id, "y": y.detach(), "of_x": of_x, "ends": ends, "of_values": of_values}]


def value_of(target: Tensor, source: Tensor) -> Tensor:
    return torch.stack([(3 * target + source) % 7 / 4, (target + 5 * source) % 5 / 4 - 0.5], dim=-1).double()


@pytest.mark.sample(2)
@pytest.mark.parametrize(("world_size", "replication"), [(1, 1), (3, 1), (4, 2), (2, 2)])
def test_values_of_edges_have_gradients(ranks, world_size: int, replication: int) -> None:
    cfg = config(*layout_overrides(replication), "runtime.dtype=float64")
    adj, conv, x = dense_graph("directed").adj, Gated("mean"), features(29, False).requires_grad_()
    target, source = torch.meshgrid(torch.arange(29), torch.arange(29), indexing="ij")
    values = value_of(target, source).requires_grad_()
    exact = dense(conv, x, adj, values)
    weigh = (torch.arange(29)[:, None] + torch.arange(4) - 9) / 8
    of_x, of_values = torch.autograd.grad((exact * weigh).sum(), [x, values])
    for (rank,) in ranks(world_size)(with_values, cfg):
        torch.testing.assert_close(rank["y"], exact.detach()[rank["ids"]], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(rank["of_x"], of_x[rank["ids"]], rtol=1e-11, atol=1e-11)
        for (targets, sources), gradient in zip(rank["ends"], rank["of_values"], strict=True):
            torch.testing.assert_close(gradient, of_values[targets, sources], rtol=1e-11, atol=1e-11)


def refused(world: World, cfg: Config) -> str:
    conv = Gated("sum")
    block = blocks(world, cfg, "directed", conv)["all"]
    values = [torch.ones(stage.csr.nnz, 1).double().requires_grad_() for stage in block.stages(conv.edge_set)]
    try:
        conv(torch.zeros(len(block.source_id), 5).double(), block, values)
    except UnsupportedError as error:
        return str(error)
    return ""


def test_what_is_not_supported_is_named(ranks) -> None:
    with pytest.raises(ConfigError, match="aggregation=median is not known: choose one of sum, mean, max"):
        Gated("median")
    cfg = config(*layout_overrides(2), "runtime.dtype=float64", "scheme.split_rows=false")
    for world_size in (4, 2):  # of two, one rank has no stage
        assert all("set scheme.split_rows=true" in line for line in ranks(world_size)(refused, cfg))
