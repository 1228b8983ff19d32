"""What is measured: one graph, the same for every method, that is loaded or made on the device.

A look-alike that is made on the device has a size that is chosen, and is ordered there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, eye_array
from torch import Tensor

from fullgnn.bench.config import MODELS, BenchConfig, hidden_of, run_config
from fullgnn.bench.harness import Cases, attempt
from fullgnn.config import Config, build
from fullgnn.errors import UnsupportedError
from fullgnn.graph import Graph, load_dataset
from fullgnn.graph.generate_on_device import RandomGraph
from fullgnn.graph.lookalikes import COMMON, LOOKALIKES, TOYS, Lookalike, generate
from fullgnn.graph.workloads import WORKLOADS, load_workload
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.spmm.tiles import DENSITY_BINS, tile_density
from fullgnn.nn import NodeEmbedding
from fullgnn.partition.facts import NodeFacts
from fullgnn.partition.partition import Partition, UsedMethods
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
class Problem:
    """An undirected graph without weights, and A + I: no two methods can differ in their self-loops."""

    graph: Graph
    hidden: int
    block: LocalCSR  # the pattern of A + I
    features: Tensor  # (num_nodes, num_features) float32
    labels: Tensor  # (num_nodes,) int64
    train_index: Tensor  # (num_train_nodes,) int64
    batch_size: int | None = None  # draws of a step of a model that finds links; None: one step an epoch

    @property
    def pairs(self) -> Tensor:
        """(2, nnz) int64: source and target of each entry of A + I, sorted by target."""
        nodes = torch.arange(self.graph.num_nodes, device=self.features.device)
        return torch.stack([self.block.indices.long(), nodes.repeat_interleave(self.block.indptr.diff().long())])

    @property
    def without_loops(self) -> "Problem":
        """The same problem with the adjacency A of the graph in the place of A + I."""
        return replace(self, block=pattern(self.graph.indptr, self.graph.indices, self.features.device))

    @property
    def widths(self) -> list[int]:
        """Sizes of the layers of the model: features, hidden, classes."""
        return [self.graph.num_features, self.hidden, self.graph.num_classes]

    def statistics(self) -> dict[str, int | str]:
        """The fields of ``problem`` in ``record.json``."""
        before, after = ("name", "num_nodes", "num_edges"), ("num_features", "num_classes")
        first, last = ({key: getattr(self.graph, key) for key in keys} for keys in (before, after))
        return {**first, "nnz": self.block.nnz, **last, "hidden": self.hidden}


def load_graph(cfg: BenchConfig) -> Graph:
    """The graph of ``cfg``, in the order ``cfg.order``.

    Raises:
        UnsupportedError: the graph is directed or weighted, which the methods would treat differently; our sampled
            training alone is measured on any graph.
    """
    graph = load_workload(cfg.graph, cfg.cache_dir) if cfg.graph in WORKLOADS else load_dataset(run_config(cfg).dataset)
    differs = cfg.peers or cfg.op != "minibatch"
    if differs and (graph.weight is not None or not graph.is_symmetric):
        raise UnsupportedError(
            f"graph={cfg.graph} is directed or weighted, and the peers do not agree on that: "
            "take another, or overrides=['dataset.symmetrize=true']"
        )
    if cfg.order != "none":
        graph = graph.permute(whole_graph_order(run_config(cfg, f"reorder={cfg.order}"), graph))
    return graph


def as_problem(cfg: BenchConfig, graph: Graph, device: torch.device) -> Problem:
    """The problem of ``cfg`` on ``device``."""
    return replace(make_problem(graph, hidden_of(cfg), device), batch_size=cfg.batch_size)


def make_problem(graph: Graph, hidden: int, device: torch.device) -> Problem:
    """``graph`` for a model with ``hidden`` columns between its layers."""
    adj = graph.adjacency(bool) + eye_array(graph.num_nodes, dtype=bool, format="csr")  # A + I
    of_nodes = graph.features.astype(np.float32), graph.labels.copy(), np.flatnonzero(graph.train_mask)
    features, labels, train_index = (torch.from_numpy(array).to(device) for array in of_nodes)
    return Problem(graph, hidden, pattern(adj.indptr, adj.indices, device), features, labels, train_index)


def pattern(indptr: np.ndarray, indices: np.ndarray, device: torch.device) -> LocalCSR:
    """The pattern of a square matrix, with int32 ids."""
    rows, columns = (torch.from_numpy(array.astype(np.int32)).to(device) for array in (indptr, indices))
    return LocalCSR(rows, columns, None, len(indptr) - 1, len(indptr) - 1)


def whole_graph_order(cfg: Config, graph: Graph) -> np.ndarray:
    """(num_nodes,) the permutation of ``cfg.reorder`` for the graph as one block."""
    return build(cfg.reorder.method)(graph.adjacency(np.float32), cfg.seed)


def peer_weights(problem: Problem, seed: int, model: str) -> list[Tensor]:
    """The first weights of a peer: those of ``first_weights``, or the trainable vectors of the nodes, as they are in a
    run with ``seed``."""
    if not MODELS[model].finds_links:
        return first_weights(problem.widths, seed, model)
    table = NodeEmbedding(problem.hidden, seed, std=0.1)
    table.place(torch.arange(problem.graph.num_nodes))
    return [table.weight.detach().to(problem.features.device)]


def first_weights(widths: list[int], seed: int, model: str = "gcn") -> list[Tensor]:
    """The weight matrices of ``model``, one of ``MODELS``, from which every method starts; the biases are 0."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(a, b, generator=generator) * (2 / (a + b)) ** 0.5 for a, b in MODELS[model].shapes(*widths)]


@dataclass(frozen=True, eq=False)
class MadeGraph:
    """A look-alike on the device."""

    shape: Lookalike
    graph: RandomGraph  # under shuffled ids
    perm: Tensor  # (num_nodes,) int64, the order
    block: LocalCSR  # the pattern of A + I in this order
    facts: dict[str, Any]  # for the record


def make_graph(
    cfg: BenchConfig, cases: Cases, prepare: Callable[[LocalCSR], object] = lambda block: None, entry_s: float = 0.0
) -> MadeGraph:
    """The graph that ``cfg`` names, of the scale that it asks for, or of the largest that fits memory and time.

    Args:
        prepare: prepares a small block as often as the operation does; its time counts where the size is chosen.
        entry_s: seconds that the operation spends on the host for each entry of the graph.
    """
    shape, facts, device = {**LOOKALIKES, **TOYS}[cfg.graph], dict[str, Any](name=cfg.graph), cases.device

    def set_up() -> None:
        small = generate(shape, PROBE_SCALE, 1, device)
        prepare(small.csr(small.perm))

    scale = cfg.scale or (1.0 if cfg.graph in TOYS else None)
    if scale is None:
        set_up()  # compiles the kernels
        whole_s = wall_ms(set_up, device) / 1e3 / PROBE_SCALE + entry_s * shape.num_edges
        allowed_s, memory = _SCALE_SHARE * cases.budget.left, _MEMORY_SHARE * available_memory(device)
        scale = largest_scale(lambda scale: scale * whole_s <= allowed_s and num_bytes(shape, scale) <= memory)
        facts["scale_reason"] = f"{scale * whole_s:.0f} s predicted for set-up, {allowed_s:.0f} s allowed"
    graphs = list[RandomGraph]()
    generate_s = wall_ms(lambda: graphs.append(generate(shape, scale, 0, device)), device) / 1e3
    graph = graphs.pop()
    perm, ordered = _order(graph, _METIS_SHARE * cases.budget.left)
    block = graph.csr(perm)
    facts |= {"scale": scale, "generate_s": generate_s, **ordered, "num_nodes": block.num_rows, "nnz": block.nnz}
    facts |= {"longest_row": int(block.indptr.diff().max()), "tile_density": densities(block)}
    return MadeGraph(shape, graph, perm, block, facts)


def made_problem(made: MadeGraph) -> Problem:
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
    return Problem(graph, shape.hidden, block, features, labels, train_mask.nonzero().squeeze(1))


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
