"""What is measured: one graph, the same for every method."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import eye_array
from torch import Tensor

from fullgnn.bench.config import BenchConfig, hidden_of, run_config
from fullgnn.bench.models import MODELS
from fullgnn.config import Config, build
from fullgnn.errors import UnsupportedError
from fullgnn.graph import Graph, load_dataset
from fullgnn.graph.workloads import WORKLOADS, load_workload
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.nn import NodeEmbedding


@dataclass(frozen=True, eq=False)
class Problem:
    """An undirected graph without weights, and A + I: no two methods can differ in their self-loops."""

    graph: Graph
    hidden: int
    indptr: Tensor  # (num_nodes + 1,) int32, of A + I
    indices: Tensor  # (nnz,) int32, sorted within a row
    features: Tensor  # (num_nodes, num_features) float32
    labels: Tensor  # (num_nodes,) int64
    train_index: Tensor  # (num_train_nodes,) int64
    batch_size: int | None = None  # draws of a step of a model that finds links; None: one step an epoch

    @property
    def is_bipartite(self) -> bool:
        """Whether the nodes are users and items."""
        return self.graph.num_users is not None

    @property
    def nnz(self) -> int:
        return self.indices.numel()

    @property
    def targets(self) -> Tensor:
        """(nnz,) int64, the row of each entry of A + I."""
        nodes = torch.arange(self.graph.num_nodes, device=self.indptr.device)
        return nodes.repeat_interleave(self.indptr.diff().long())

    @property
    def without_loops(self) -> "Problem":
        """The same problem with the adjacency A of the graph in the place of A + I."""
        pattern = (torch.tensor(ids, dtype=torch.int32) for ids in (self.graph.indptr, self.graph.indices))
        indptr, indices = (ids.to(self.indptr.device) for ids in pattern)
        return replace(self, indptr=indptr, indices=indices)

    @property
    def block(self) -> LocalCSR:
        """The pattern of A + I."""
        return LocalCSR(self.indptr, self.indices, None, self.graph.num_nodes, self.graph.num_nodes)

    @property
    def widths(self) -> list[int]:
        """Sizes of the layers of the model: features, hidden, classes."""
        return [self.graph.num_features, self.hidden, self.graph.num_classes]

    def statistics(self) -> dict[str, int | str]:
        """The fields of ``problem`` in ``record.json``."""
        keys = ("name", "num_nodes", "num_edges", "nnz", "num_features", "num_classes", "hidden")
        return {key: getattr(self if key in ("nnz", "hidden") else self.graph, key) for key in keys}


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
    pattern = adj.indptr.astype(np.int32), adj.indices.astype(np.int32)
    of_nodes = graph.features.astype(np.float32), graph.labels.copy(), np.flatnonzero(graph.train_mask)
    return Problem(graph, hidden, *(torch.from_numpy(array).to(device) for array in (*pattern, *of_nodes)))


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
    return [table.weight.detach().to(problem.indices.device)]


def first_weights(widths: list[int], seed: int, model: str = "gcn") -> list[Tensor]:
    """The weight matrices of ``model``, one of ``MODELS``, from which every method starts; the biases are 0."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(a, b, generator=generator) * (2 / (a + b)) ** 0.5 for a, b in MODELS[model].shapes(*widths)]
