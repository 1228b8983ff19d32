"""What the trainings of all peers share, and PyTorch's own sparse tensors.

Models are made of a library's layers, and epochs are as libraries' examples write them. The sparse tensors are CSR with
int32 indices, which MKL takes as they are and int64 costs more.
"""

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.config import DEPTH, LIGHT_LAYERS
from fullgnn.bench.problem import Problem
from fullgnn.graph.links import train_pairs

LaunchEpoch = Callable[[], Callable[[], float]]
"""Launches one epoch; what it returns waits for the loss before the update, and reads it."""

Modules = Iterable[torch.nn.Module]
Convolve = Callable[..., Tensor]
"""(convolution, or all modules, h, more) -> the next h."""

Maker = Callable[..., torch.nn.Module]
Models = dict[str, dict[str, Maker]]
"""Model, one of ``bench.config.MODELS`` -> method -> its maker (problem, weights) -> a module () -> logits."""
PlainProduct = Callable[[Tensor], Tensor]
Multiply = Callable[[Tensor, Tensor], Tensor]
"""(adj, x) -> adj @ x, differentiable in x."""


class Peer(torch.nn.Module):
    """A model of modules of a library; () -> (num_nodes, num_classes) logits.

    Args:
        convs: modules of the library; their biases become 0.
        matrices: the weight matrices of all modules, which start from ``weights``: the path of each, from the list of
            the modules, with a final ``T`` where it is transposed.
        call: (modules, features) -> logits.
    """

    def __init__(
        self, problem: Problem, weights: list[Tensor], convs: Modules, matrices: Iterable[str], call: Convolve
    ):
        super().__init__()
        self.features, self.call = problem.features, call
        self.convs = torch.nn.ModuleList(convs).to(problem.features.device)
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() < 2:
                    parameter.zero_()
            for path, weight in zip(matrices, weights, strict=True):
                attrgetter(path)(self.convs).view_as(weight).copy_(weight)  # those of heads have one more dimension

    def forward(self) -> Tensor:
        return self.call(self.convs, self.features)


def stacked(
    layer: "PeerLayer", library: Any, problem: Problem, weights: list[Tensor], call: Convolve, dropout: float = 0.0
) -> Peer:
    """Convolutions, as many as there are weights for, with an activation and dropout between them.

    Args:
        library: its module of layers.
        dropout: rate on the hidden layers.
    """
    activation, size = F.elu if layer.attends else F.relu, len(layer.matrices)
    convs = [layer.make(library, *weights[begin : begin + size]) for begin in range(0, len(weights), size)]

    def forward(convs: Any, h: Tensor) -> Tensor:
        for turn, conv in enumerate(convs):
            h = call(conv, F.dropout(activation(h), dropout) if turn else h)
        return h

    return Peer(problem, weights, convs, [f"{i}.{path}" for i in range(len(convs)) for path in layer.matrices], forward)


def after_mlp(layer: "PeerLayer", library: Any, problem: Problem, weights: list[Tensor], call: Convolve) -> Peer:
    """Two dense layers, and a convolution without weights."""
    conv, layers = layer.make(library), mlp(*weights)
    return Peer(problem, weights, layers, OF_MLP, lambda layers, x: call(conv, torch.nn.Sequential(*layers)(x)))


def gcnii(layer: "PeerLayer", library: Any, problem: Problem, weights: list[Tensor], call: Convolve) -> Peer:
    """Convolutions between two dense layers, which read the result of the first of them too."""

    def forward(modules: Any, x: Tensor) -> Tensor:
        first, *convs, last = modules
        h = initial = F.relu(first(x))
        for conv in convs:
            h = F.relu(call(conv, h, initial))
        return last(h)

    first, last = (torch.nn.Linear(*weights[end].shape) for end in (0, -1))
    convs = [layer.make(library, first.out_features, number) for number in range(1, DEPTH + 1)]
    matrices = ["0.weight.T", *(f"{number}.weight1" for number in range(1, DEPTH + 1)), f"{DEPTH + 1}.weight.T"]
    return Peer(problem, weights, [first, *convs, last], matrices, forward)


@dataclass(frozen=True)
class PeerLayer:
    """A convolution of a library, of which models are made."""

    make: Maker
    """(the library's module of layers, what ``model`` gives it: the weights of the layer) -> the convolution."""
    matrices: Sequence[str] = ()
    """Paths of its weight matrices, as ``Peer`` takes them from the convolution."""
    loops: bool = True
    """Whether it multiplies by A + I; otherwise by A."""
    attends: bool = False
    """Whether it has heads of attention, whose results lie side by side; ELU is between two such layers."""
    model: Callable[..., Peer] = stacked


def mlp(first: Tensor, second: Tensor) -> torch.nn.Sequential:
    """Two dense layers with the shapes of these weights."""
    return torch.nn.Sequential(torch.nn.Linear(*first.shape), torch.nn.ReLU(), torch.nn.Linear(*second.shape))


OF_MLP = ("0.weight.T", "2.weight.T")
"""Paths of the matrices of ``mlp``."""


def descent(
    model: torch.nn.Module, lr: float = 0.01, weight_decay: float = 0.0
) -> Callable[[Callable[[Any], Tensor]], Tensor]:
    """One update by Adam a call: (a function of the model that computes the loss) -> the loss before, on the device."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)

    def step(loss_of: Callable[[Any], Tensor]) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def launcher(model: torch.nn.Module, problem: Problem) -> LaunchEpoch:
    """One epoch of ``model`` a call, with the mean cross-entropy of the training nodes as its loss.

    What a call returns waits for the loss before the update, and reads it. ``index_select`` takes a third of the time
    of ``logits[mask]`` and computes the same.
    """
    step, index = descent(model), problem.train_index
    target = problem.labels[index]
    return lambda: step(lambda model: F.cross_entropy(model().index_select(0, index), target)).item


def trainer(model: torch.nn.Module, problem: Problem) -> Callable[[], float]:
    """One epoch a call, which returns the loss before the update; see :func:`launcher`."""
    launch = launcher(model, problem)
    return lambda: launch()()


def link_launcher(model: torch.nn.Module, problem: Problem) -> LaunchEpoch:
    """One epoch of ``model``, () -> (num_nodes, channels), a call; what it returns reads the mean loss of its steps.

    Each training pair is drawn once an epoch, in steps of ``problem.batch_size``, with one other candidate, which may
    be joined with the owner of the pair: to look that up would take more time. In a graph of users and items the loss
    is that of Bayesian personalised ranking, in others the binary cross-entropy.
    """
    step, graph, device = descent(model), problem.graph, problem.features.device
    pairs = torch.from_numpy(train_pairs(graph)[0]).to(device)
    num_pairs, lowest = pairs.shape[1], graph.num_users or 0
    batch_size = problem.batch_size or num_pairs

    def loss_of(model: torch.nn.Module, pairs: Tensor) -> Tensor:
        output, other = model(), torch.randint(lowest, graph.num_nodes, (pairs.shape[1],), device=device)
        rows, positive, negative = (F.embedding(ids, output) for ids in (*pairs, other))
        high, low = (rows * positive).sum(1), (rows * negative).sum(1)
        if graph.num_users is not None:
            return F.softplus(low - high).mean()
        return (F.softplus(-high) + F.softplus(low)).mean() / 2

    def epoch() -> Callable[[], float]:
        order = torch.randperm(num_pairs, device=device) if batch_size < num_pairs else None
        batches = [pairs] if order is None else [pairs[:, some] for some in order.split(batch_size)]
        return torch.stack([step(functools.partial(loss_of, pairs=batch)) for batch in batches]).mean().item

    return epoch


def csr(problem: Problem, values: Tensor) -> Tensor:
    """(n, n) torch CSR of A + I with ``values``, (nnz,)."""
    block = problem.block
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # "beta state", "invariant checks"
        return torch.sparse_csr_tensor(block.indptr, block.indices, values, (block.num_rows, block.num_cols))


def unweighted(problem: Problem) -> Tensor:
    """A + I, all entries 1."""
    return csr(problem, torch.ones(problem.block.nnz, device=problem.features.device))


def normalized(problem: Problem) -> Tensor:
    """D^-1/2 (A + I) D^-1/2."""
    degree = problem.block.indptr.diff()
    scale = degree.float().rsqrt()
    return csr(problem, scale.repeat_interleave(degree.long()) * scale[problem.block.indices.long()])


class _Symmetric(torch.autograd.Function):
    """Y = A X for A = A^T: the gradient is the same product, which autograd cannot know."""

    @staticmethod
    def forward(ctx: Any, adj: Tensor, x: Tensor) -> Tensor:
        ctx.adj = adj
        return adj @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.adj @ grad


symmetric: Multiply = _Symmetric.apply
"""``adj @ x``, differentiable, for a symmetric ``adj``."""


class Conv(torch.nn.Module):
    """A graph convolution by hand; its bias starts at 0.

    Args:
        order: ``(AH)W``, as the formula is read; ``A(HW)``, cheaper where W narrows; ``(AX)W``, where the input is A X,
            which was computed beforehand.
    """

    def __init__(self, shape: torch.Size, adj: Tensor, multiply: Multiply, order: str):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(shape))
        self.bias = torch.nn.Parameter(torch.zeros(shape[1]))
        self.adj, self.multiply, self.order = adj, multiply, order

    def forward(self, h: Tensor) -> Tensor:
        if self.order == "A(HW)":
            return self.multiply(self.adj, h @ self.weight) + self.bias
        aggregated = h if self.order == "(AX)W" else self.multiply(self.adj, h)
        return torch.addmm(self.bias, aggregated, self.weight)


def gcn(problem: Problem, weights: list[Tensor], multiply: Multiply, order: str, dropout: float = 0.0) -> Peer:
    """A two-layer GCN.

    Args:
        order: that of both layers, or of the first and of the second; see :class:`Conv`.
    """
    adj, orders = normalized(problem), order.split()
    of_layers = iter((orders[0], orders[-1]))
    layer = PeerLayer(lambda _, weight: Conv(weight.shape, adj, multiply, next(of_layers)), ["weight"])
    model = stacked(layer, None, problem, weights, lambda conv, h: conv(h), dropout)
    if orders[0] == "(AX)W":
        model.features = multiply(adj, problem.features)
    return model


class PlainLightGCN(torch.nn.Module):
    """The mean of the trainable vectors, which start from ``weights``, and of their products with A, which has no
    self-loops; () -> (num_nodes, channels)."""

    def __init__(self, problem: Problem, weights: list[Tensor], multiply: Multiply):
        super().__init__()
        self.table = torch.nn.Parameter(weights[0].clone())
        self.adj, self.multiply = normalized(problem.without_loops), multiply

    def forward(self) -> Tensor:
        powers: list[Tensor] = [self.table]
        for _ in range(LIGHT_LAYERS):
            powers.append(self.multiply(self.adj, powers[-1]))
        return functools.reduce(torch.add, powers) / (LIGHT_LAYERS + 1)


REDUCE = functools.partial(torch.sparse.mm, reduce="sum")
SPMM = {
    "torch CSR @": lambda problem: functools.partial(torch.matmul, unweighted(problem)),
    "torch.sparse.mm sum": lambda problem: functools.partial(REDUCE, unweighted(problem)),
}
MODELS: Models = {
    "gcn": {
        "torch CSR (AH)W": functools.partial(gcn, multiply=torch.matmul, order="(AH)W"),
        "torch CSR A(HW)": functools.partial(gcn, multiply=torch.matmul, order="A(HW)"),
        "torch.sparse.mm sum A(HW)": functools.partial(gcn, multiply=REDUCE, order="A(HW)"),
        "torch CSR (AH)W + own backward": functools.partial(gcn, multiply=symmetric, order="(AH)W"),
        "torch CSR A(HW) + own backward": functools.partial(gcn, multiply=symmetric, order="A(HW)"),
        "torch CSR (AX)W A(HW) + own backward": functools.partial(gcn, multiply=symmetric, order="(AX)W A(HW)"),
    },
    "lightgcn": {
        "torch CSR": functools.partial(PlainLightGCN, multiply=torch.matmul),
        "torch CSR + own backward": functools.partial(PlainLightGCN, multiply=symmetric),
    },
}
