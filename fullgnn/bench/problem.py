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
