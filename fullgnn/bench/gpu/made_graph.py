"""Look-alikes that are made on the device: their size is chosen, and they are made and ordered."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.harness import Budget, attempt
from fullgnn.bench.problem import Problem
from fullgnn.graph import Graph
from fullgnn.graph.generate_on_device import RandomGraph
from fullgnn.graph.lookalikes import COMMON, LOOKALIKES, TOYS, Lookalike, generate
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.spmm.tiles import DENSITY_BINS, tile_density
from fullgnn.partition import Partition
from fullgnn.partition.facts import NodeFacts
from fullgnn.partition.partition import UsedMethods
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.arrange import cut
from fullgnn.reorder.two_level import NodeOrder
from fullgnn.telemetry.machine import available_memory
from fullgnn.telemetry.timing import wall_ms

SCALES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
"""Sizes of a graph that are tried, largest first."""

PROBE_SCALE = 0.05
METIS_S_PER_ENTRY = 1.3e-6
"""Seconds that METIS takes for a stored entry, on one core."""

_METIS_SHARE = 0.2  # of the time that is left
_SCALE_SHARE = 0.5  # of the time that is left, for what grows with the graph
_MEMORY_SHARE = 0.7  # of what is free on the device


@dataclass(frozen=True, eq=False)
class MadeGraph:
    """A look-alike on the device."""

    shape: Lookalike
    graph: RandomGraph  # under shuffled ids
    perm: Tensor  # (num_nodes,) int64, the order
    block: LocalCSR  # the pattern of A + I in this order
    facts: dict[str, Any]  # for the record


def make_graph(
    cfg: BenchConfig,
    budget: Budget,
    device: torch.device,
    prepare: Callable[[LocalCSR], object] = lambda block: None,
    host_s_per_entry: float = 0.0,
) -> MadeGraph:
    """The graph that ``cfg`` names, of the scale that it asks for, or of the largest that fits memory and time.

    Args:
        prepare: prepares a small block as often as the operation does; its time counts where the size is chosen.
        host_s_per_entry: seconds that the operation spends on the host for each entry of the graph.
    """
    shape, facts = {**LOOKALIKES, **TOYS}[cfg.graph], dict[str, Any](name=cfg.graph)

    def set_up() -> None:
        small = generate(shape, PROBE_SCALE, 1, device)
        prepare(small.csr(small.perm))

    scale = cfg.scale or (1.0 if cfg.graph in TOYS else None)
    if scale is None:
        set_up()  # compiles the kernels
        whole_s = wall_ms(set_up, device) / 1e3 / PROBE_SCALE + host_s_per_entry * shape.num_edges
        allowed_s, memory = _SCALE_SHARE * budget.left, _MEMORY_SHARE * available_memory(device)
        scale = largest_scale(lambda scale: scale * whole_s <= allowed_s and num_bytes(shape, scale) <= memory)
        facts["scale_reason"] = f"{scale * whole_s:.0f} s predicted for set-up, {allowed_s:.0f} s allowed"
    graphs = list[RandomGraph]()
    generate_s = wall_ms(lambda: graphs.append(generate(shape, scale, 0, device)), device) / 1e3
    graph = graphs.pop()
    perm, ordered = _order(graph, _METIS_SHARE * budget.left)
    block = graph.csr(perm)
    facts |= {"scale": scale, "generate_s": generate_s, **ordered, "num_nodes": block.num_rows, "nnz": block.nnz}
    facts |= {"longest_row": int(block.indptr.diff().max()), "tile_density": densities(block)}
    return MadeGraph(shape, graph, perm, block, facts)


def make_problem(made: MadeGraph) -> Problem:
    """What is trained on a look-alike: features are the centre of the node's class, which is its community, plus noise.

    The training nodes are drawn at random. The edges of the graph are those of A + I.
    """
    shape, block, device = made.shape, made.block, made.perm.device
    n, generator = block.num_rows, torch.Generator(device).manual_seed(0)
    labels = made.graph.community[made.perm] % shape.num_classes
    centre = torch.randn(shape.num_classes, shape.num_features, device=device, generator=generator)
    centre /= centre.norm(dim=1, keepdim=True)
    features = torch.randn(n, shape.num_features, device=device, generator=generator)
    features += centre[labels]
    train_mask = torch.rand(n, device=device, generator=generator) < COMMON["train_fraction"]
    tensors, nobody = (block.indptr, block.indices, features, labels, train_mask), np.zeros(n, bool)
    indptr, indices, *of_nodes = (tensor.cpu().numpy() for tensor in tensors)
    graph = Graph(indptr, indices, of_nodes[0], of_nodes[1], of_nodes[2], nobody, nobody, num_classes=len(centre))
    train_index = train_mask.nonzero().squeeze(1)
    return Problem(graph, shape.hidden, block, features, labels, train_index)


def prepared(graph: Graph, num_parts: int) -> PreparedGraph:
    """The graph in its own order, without the host's work on a hundred million entries to find out about them."""
    n, methods = graph.num_nodes, UsedMethods("contiguous", "none", num_parts)
    return cut(graph, NodeOrder(np.arange(n), Partition.equal(n, num_parts), methods), NodeFacts.of(graph))


def densities(block: LocalCSR) -> str:
    """Shares of the entries in tiles of 32 x 32, by how full a tile is."""
    shares = tile_density(block.indptr, block.indices, block.num_cols)
    return ", ".join(f"{percent} %: {share:.3f}" for percent, share in zip(DENSITY_BINS, shares))


def largest_scale(fits: Callable[[float], bool]) -> float:
    """The first of ``SCALES`` that fits, or the last."""
    return next((scale for scale in SCALES if fits(scale)), SCALES[-1])


def num_bytes(shape: Lookalike, scale: float) -> float:
    """Device memory that a graph and its training need at most: keys being sorted, kernels, features."""
    num_nodes, num_entries = shape.scaled(scale)
    return 130.0 * num_entries + 4.0 * num_nodes * (4 * shape.num_features + 8 * shape.hidden)


def _order(graph: RandomGraph, allowed_s: float) -> tuple[Tensor, dict[str, Any]]:
    """METIS where it is there and quick enough; otherwise the order in which the communities were made."""
    predicted_s = METIS_S_PER_ENTRY * 2 * len(graph.pairs)

    def metis_order() -> Tensor:
        """What ``reorder=metis`` finds in a run with the seed 0."""
        from fullgnn.reorder import metis

        block = graph.csr()
        indptr, indices = block.indptr.cpu().numpy(), block.indices.cpu().numpy()
        adj = csr_array((np.ones(block.nnz, np.int8), indices, indptr), shape=(block.num_rows,) * 2)
        return torch.from_numpy(metis(adj, 0)).to(block.indptr.device)

    perm: Tensor | None = None
    reason: str | None = f"METIS would take about {predicted_s:.0f} s, and {allowed_s:.0f} s are allowed"
    if find_spec("pymetis") is None:
        reason = "METIS (pymetis) is not installed"
    elif predicted_s <= allowed_s:
        perm, metis_s, reason = attempt(metis_order)
    if perm is not None:
        return perm, {"order": "metis", "metis_s": metis_s}
    return graph.perm, {"order": "the generator's communities", "order_reason": reason}
