"""A layer that computes values of its edges, against all pairs of nodes, in float64 with torch's own autograd."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.graph import EdgeSet
from fullgnn.nn import Contract, EdgeValues
from fullgnn.schemes import Block
from tests.cases import config, dense_graph, layout_overrides
from tests.nn.message_conv import blocks, features

KINDS = ["directed", "isolated", "tiny"]
AGGREGATIONS = ("sum", "mean", "max")
LAYOUTS = [(2, 2), (1, 1), (2, 1), (3, 1), (4, 2), (8, 2), (6, 3)]  # in the first one, a rank has no stage


class Layer(torch.nn.Module):
    """Attention of two heads with a gate on every edge, beside a reduction of the gates."""

    def __init__(self, self_loops: bool, aggregation: str):
        super().__init__()
        self.edge_set, self.aggregation = EdgeSet(self_loops), aggregation
        generator = torch.Generator().manual_seed(3)
        shapes = {"source": (5, 2), "target": (5, 2), "rows": (5, 6), "gate": (1, 2)}
        for name, shape in shapes.items():
            drawn = torch.randn(*shape, generator=generator, dtype=torch.float64)
            self.register_parameter(name, torch.nn.Parameter(drawn))

    def contract(self) -> Contract:
        return Contract(edge_sets=(self.edge_set,))

    def gates(self, source: Tensor, target: Tensor) -> Tensor:
        return self.gate * torch.tanh(source + 2 * target)

    def forward(self, x: Tensor, block: Block) -> Tensor:
        source = EdgeValues.of_sources(block, self.edge_set, x @ self.source)
        target = EdgeValues.of_targets(block, self.edge_set, x @ self.target)
        gates = source.map(self.gates, target)
        weights = source.map(lambda of_source, of_target: 30 * (of_source - of_target), target).softmax()
        attended = weights.map(torch.mul, gates).spmm(x @ self.rows)
        return torch.cat([attended, gates.reduce(self.aggregation)], dim=1)

    def dense(self, x: Tensor, adj: np.ndarray) -> Tensor:
        there = torch.from_numpy(adj != 0)[:, :, None]
        source, target = (x @ self.source)[None], (x @ self.target)[:, None]
        gates = self.gates(source, target)  # (n, n, 2), rows are targets
        logits = torch.where(there, 30 * (source - target), -torch.inf)
        weights = torch.where(there.any(1, keepdim=True), logits, 0).softmax(1) * there
        attended = torch.einsum("ijk,jkd->ikd", weights * gates, (x @ self.rows).unflatten(1, (2, 3))).flatten(1)
        count = there.sum(1).clamp(min=1)
        if self.aggregation == "max":
            largest = torch.where(there, gates, -torch.inf).amax(1)  # no two gates of a target are equal
            return torch.cat([attended, torch.where(there.any(1), largest, 0)], dim=1)
        total = (gates * there).sum(1)
        return torch.cat([attended, total / count if self.aggregation == "mean" else total], dim=1)


def weighed(y: Tensor, ids: Tensor) -> Tensor:
    return (y * ((ids[:, None] + torch.arange(y.shape[1]) - 9) / 8)).sum()


def computed(world: World, cfg: Config, kind: str, cases: list[tuple[bool, str]]) -> list[dict[str, Any]]:
    """Results and gradients of a layer over all rows, and over the rows with loss."""
    results = []
    for case in cases:
        layer = Layer(*case)
        for block in blocks(world, cfg, kind, layer).values():
            x = features(len(dense_graph(kind).adj), False)[block.source_id].requires_grad_()
            y = layer(x, block)
            gradients = torch.autograd.grad(weighed(y, block.own_id), [x, *layer.parameters()])
            results.append({"ids": block.own_id, "sources": block.source_id, "y": y.detach(), "gradients": gradients})
    return results


@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.sample(12)
def test_values_and_all_gradients_are_exact(ranks, world_size: int, replication: int, every_case: bool) -> None:
    cases = [(loops, aggregation) for loops in (False, True) for aggregation in AGGREGATIONS]
    cases = cases if every_case else cases[world_size % 2 :: 2]
    options = ["runtime.dtype=float64", "reorder=rcm", "reorder.cluster_size=3"]
    cfg = config(*layout_overrides(replication), *options)
    ranks(1)(computed, config(*options), KINDS[0], cases)  # so that one process compiles the loops, and not every rank
    for kind in KINDS if every_case else KINDS[:2]:
        graph = dense_graph(kind)
        outcomes = ranks(world_size)(computed, cfg, kind, cases)
        for number, case in enumerate(cases):
            adj = graph.adj.copy()
            if case[0]:
                np.fill_diagonal(adj, 1)
            for position, rows in enumerate((np.ones(len(adj), bool), graph.train_mask)):
                layer, x = Layer(*case), features(len(adj), False).requires_grad_()
                exact, kept = layer.dense(x, adj), torch.from_numpy(np.flatnonzero(rows))
                of_x, *of_parameters = torch.autograd.grad(weighed(exact[kept], kept), [x, *layer.parameters()])
                of_ranks = [rank[2 * number + position] for rank in outcomes]
                for rank in of_ranks:
                    torch.testing.assert_close(rank["y"], exact.detach()[rank["ids"]], rtol=1e-11, atol=1e-11)
                    torch.testing.assert_close(rank["gradients"][0], of_x[rank["sources"]], rtol=1e-10, atol=1e-10)
                for place, gradient in enumerate(of_parameters, 1):
                    total = sum(rank["gradients"][place] for rank in of_ranks)
                    torch.testing.assert_close(total, gradient, rtol=1e-10, atol=1e-10)


def refused(world: World, cfg: Config) -> str:
    layer = Layer(False, "sum")
    block = blocks(world, cfg, "directed", layer)["all"]
    try:
        layer(torch.zeros(len(block.source_id), 5).double(), block)
    except UnsupportedError as error:
        return str(error)
    return ""


def unknown(world: World, cfg: Config) -> str:
    layer = Layer(False, "median")
    block = blocks(world, cfg, "directed", layer)["all"]
    with pytest.raises(ConfigError, match="aggregation=median is not known: choose one of sum, mean, max"):
        layer(torch.zeros(len(block.source_id), 5).double(), block)
    return "refused"


def test_what_is_not_supported_is_named(ranks) -> None:
    cfg = config(*layout_overrides(2), "runtime.dtype=float64", "scheme.split_rows=false")
    assert all("set scheme.split_rows=true" in line for line in ranks(4)(refused, cfg))
    assert ranks(2)(unknown, config("scheme=1d", "runtime.dtype=float64")) == ["refused"] * 2
