"""The trainings of a look-alike: by our presets, and by the peers of ``fullgnn/bench/peers``.

All train a two-layer GCN with Adam from the same weights on the same graph. This module needs Hydra.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.bench.config import load_bench, preset_config
from fullgnn.bench.ours import Epochs
from fullgnn.bench.peers import pyg, torch_sparse
from fullgnn.bench.peers.training import launcher
from fullgnn.bench.problem import Problem, first_weights
from fullgnn.config.overrides import quote
from fullgnn.distributed import world_of_one
from fullgnn.engine.run import Run, build_model, set_up
from fullgnn.graph import Graph
from fullgnn.graph.generate_on_device import RandomGraph
from fullgnn.graph.lookalikes import COMMON, Lookalike
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.nn import set_spmm_order
from fullgnn.partition import Partition
from fullgnn.partition.facts import NodeFacts
from fullgnn.partition.partition import UsedMethods
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.arrange import cut
from fullgnn.reorder.two_level import NodeOrder
from fullgnn.schemes.options import num_parts
from fullgnn.telemetry.meter import Meter

Step = Callable[[], Callable[[], float]]
"""Launches one epoch; what it returns waits for the loss before the update, and reads it."""

Settings = Callable[[], dict[str, Any]]
"""The settings of a training, which are known after its epochs."""

Start = Callable[[float], tuple[Step, Settings]]
"""Given the rate of dropout on the hidden layer, a new training from the first weights."""

LATER = {
    "full, not replayed": "runtime.cuda_graph=never",
    "full, A H0 on the host": "optimizations.offload=always",
}
"""``full`` with a key of a run changed, to see what the key is worth."""

OURS = ("full", "hetu", *LATER)
"""Our presets: choices of ``conf/experiment``, and those of ``LATER``."""

_PEERS: dict[str, tuple[Callable[..., torch.nn.Module], dict[str, Any]]] = {
    "naive": (
        partial(torch_sparse.gcn, multiply=torch_sparse.symmetric, order="(AH)W"),
        {"multiplies": "(A H) W", "adjacency": "torch.sparse_csr, int32, with values"},
    ),
    "PyG GCNConv, torch CSR": (partial(pyg.model, pyg.GCN, form=pyg.torch_csr), {"adjacency": "csr", "cached": True}),
    "PyG GCNConv, EdgeIndex": (
        partial(pyg.model, pyg.GCN, form=pyg.sorted_edge_index),
        {"adjacency": "edge_index", "cached": True},
    ),
}
"""The model of a peer, and its settings."""

PEERS = tuple(_PEERS)


def make_problem(graph: RandomGraph, csr: LocalCSR, perm: Tensor, shape: Lookalike) -> Problem:
    """What is trained on a look-alike: features are the centre of the node's class, which is its community, plus noise.

    The training nodes are drawn at random. The tensors of the problem are on the device; its ``graph`` has the nodes
    alone, without edges.

    Args:
        csr, perm: the pattern of A + I in the order ``perm``.
    """
    n, device = csr.num_rows, perm.device
    generator = torch.Generator(device).manual_seed(0)
    labels = graph.community[perm] % shape.num_classes
    centre = torch.randn(shape.num_classes, shape.num_features, device=device, generator=generator)
    centre /= centre.norm(dim=1, keepdim=True)
    features = torch.randn(n, shape.num_features, device=device, generator=generator)
    features += centre[labels]
    train_mask = torch.rand(n, device=device, generator=generator) < COMMON["train_fraction"]
    indptr, indices, nobody = np.zeros(n + 1, np.int64), np.empty(0, np.int32), np.zeros(n, bool)
    host_features, host_labels, host_mask = (tensor.cpu().numpy() for tensor in (features, labels, train_mask))
    nodes = Graph(indptr, indices, host_features, host_labels, host_mask, nobody, nobody, num_classes=len(centre))
    return Problem(nodes, shape.hidden, csr.indptr, csr.indices, features, labels, train_mask.nonzero().squeeze(1))


@contextmanager
def started(preset: str, problem: Problem, cache_dir: str) -> Iterator[Start]:
    """One of ``OURS`` or ``PEERS``, ready to be trained at any rate of dropout, for the task of ``fullgnn.bench``.

    Args:
        cache_dir: where the kernel that was found to be fastest is remembered.
    """
    if preset in PEERS:
        yield partial(_peer, preset, problem)
        return
    bench = load_bench(f"device={problem.features.device.type}", "backend=gloo")
    own = ["scheme.replication=1", "self_loops=false"]  # the adjacency of a problem has its self-loops already
    bench = replace(bench, overrides=[*own, f"runtime.cache_dir={quote(cache_dir)}"])
    cfg = preset_config(bench, f"{preset.split(',')[0]} {LATER.get(preset, '')}", problem.hidden)
    with world_of_one(cfg.runtime) as world:
        parts = num_parts(cfg.scheme, world.size)
        run = set_up(cfg, world, Meter(world.device), prepared=_prepared(problem, parts))
        yield partial(_ours, run, problem)


def _peer(name: str, problem: Problem, dropout: float) -> tuple[Step, Settings]:
    make, settings = _PEERS[name]
    model = make(problem, first_weights(problem.widths, 0), dropout=dropout)
    launch = launcher(model, problem)
    return lambda: launch().item, lambda: settings


def _ours(run: Run, problem: Problem, dropout: float) -> tuple[Step, Settings]:
    """The graph is sharded, and A H0 computed, once for all rates of dropout."""
    of_rate, cfg = copy(run), replace(run.cfg, model={**run.cfg.model, "dropout": dropout})
    of_rate.model = build_model(cfg, run.nodes.num_features, run.task.num_outputs, run.world.device)
    set_spmm_order(of_rate.model, run.optimizations.spmm_order)
    epochs = Epochs(of_rate, first_weights(problem.widths, 0))

    def settings() -> dict[str, Any]:
        applied = {**asdict(run.optimizations), "scheme": cfg.scheme["name"]}
        return applied | {"kernel": run.scheme.kernel_name, "cuda_graph": epochs.runner.outcome}

    return epochs.launch, settings


def _prepared(problem: Problem, num_parts: int) -> PreparedGraph:
    """The graph in its own order, without the host's work on a hundred million entries to find out about them."""
    n, structure = problem.num_nodes, (problem.indptr.cpu().numpy(), problem.indices.cpu().numpy())
    graph = replace(problem.graph, indptr=structure[0], indices=structure[1])
    order = NodeOrder(np.arange(n), Partition.equal(n, num_parts), UsedMethods("contiguous", "none", num_parts))
    return cut(graph, order, NodeFacts.of(graph))
