"""The training of others: a GCN as its formula is read, with torch's CSR, and PyTorch Geometric's ``GCNConv``."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.gpu.training import LEARNING_RATE, Settings, Start, Step, Training


class _Symmetric(torch.autograd.Function):
    """Y = A X for A = A^T: the gradient is the same product, which autograd cannot know."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, adj: Tensor) -> Tensor:
        ctx.adj = adj
        return adj @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.adj @ grad, None


def naive(training: Training) -> Start:
    """(A H) W in both layers, with torch's CSR: a GCN as its formula is read."""
    n = training.csr.num_nodes
    adj = torch.sparse_csr_tensor(
        training.csr.indptr, training.csr.indices, training.normalized(), (n, n), check_invariants=False
    )
    x = training.nodes.features

    def start(dropout: float) -> tuple[Step, Settings]:
        weights = [torch.nn.Parameter(weight) for weight in training.weights()]
        biases = [torch.nn.Parameter(weight.new_zeros(weight.shape[1])) for weight in weights]

        def forward() -> Tensor:
            h = F.dropout(torch.addmm(biases[0], adj @ x, weights[0]).relu(), dropout)
            return torch.addmm(biases[1], _Symmetric.apply(h, adj), weights[1])

        settings = {"multiplies": "(A H) W", "adjacency": "torch.sparse_csr, int32, with values"}
        return _trainer([*weights, *biases], forward, training), lambda: settings

    return start


def pyg(training: Training, form: str) -> Start:
    """PyG's ``GCNConv`` with its normalisation cached, the adjacency as its guide to speed advises.

    Args:
        form: ``csr`` or ``edge_index``.
    """
    from torch_geometric.nn import GCNConv

    n = training.csr.num_nodes
    adj: Any
    if form == "csr":
        ones = torch.ones(training.csr.nnz, device=training.device)
        adj = torch.sparse_csr_tensor(training.csr.indptr, training.csr.indices, ones, (n, n), check_invariants=False)
    else:
        from torch_geometric import EdgeIndex

        degree = training.csr.indptr.diff().long()
        row = torch.repeat_interleave(torch.arange(n, device=training.device), degree, output_size=training.csr.nnz)
        pair = torch.stack([training.csr.indices.long(), row])
        adj = EdgeIndex(pair, sparse_size=(n, n), sort_order="col", is_undirected=True).fill_cache_()

    def start(dropout: float) -> tuple[Step, Settings]:
        convs: Any = torch.nn.ModuleList(
            GCNConv(*weight.shape, cached=True, add_self_loops=False)
            for weight in training.weights()  # the loops are stored
        ).to(training.device)
        with torch.no_grad():
            for conv, weight in zip(convs, training.weights()):
                conv.lin.weight.copy_(weight.T)

        def forward() -> Tensor:
            return convs[1](F.dropout(convs[0](training.nodes.features, adj).relu(), dropout), adj)

        return _trainer(list(convs.parameters()), forward, training), lambda: {"adjacency": form, "cached": True}

    return start


def _trainer(parameters: list[Tensor], forward: Callable[[], Tensor], training: Training) -> Step:
    """The loop of a GNN script."""
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    index = training.nodes.train_mask.nonzero().squeeze(1)
    target = training.nodes.labels[index]

    def step() -> Callable[[], float]:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward().index_select(0, index), target)
        loss.backward()
        optimizer.step()
        return loss.detach().item

    return step
