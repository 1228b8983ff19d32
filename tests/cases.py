"""The graphs and layouts that every distributed test runs over."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
import yaml
from omegaconf import DictConfig, OmegaConf
from scipy.sparse import csr_array

from fullgnn.config import Config, MinibatchConfig
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import World
from fullgnn.graph import Graph
from fullgnn.graph.labels import LabelFacts
from fullgnn.prepare.source import Preparation, prepared_graph
from fullgnn.schemes.base import BlockRequest, Scheme, ShardedGraph
from fullgnn.tasks import MultiClass
from fullgnn.telemetry.meter import EpochRecord

GROUPS = (
    *"dataset model task scheme partition reorder kernel optimizations experiment optimizer schedule".split(),
    *"sampler cache codec".split(),
)
"""Groups of the configuration whose choices tests give."""
LAYOUTS = [(1, 1), (2, 1), (2, 2), (3, 1), (4, 1), (4, 2), (6, 2), (6, 3), (8, 2), (8, 4)]
"""(processes, replication)."""


NUM_CLASSES = 3


@dataclass(frozen=True)
class DenseGraph:
    """A tiny graph in the dense form that the oracle reads; ``adj[i, j]`` != 0 means that i reads from j."""

    adj: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    train_mask: np.ndarray
    val_mask: np.ndarray
    sparse: bool = False

    def graph(self) -> Graph:
        return Graph.from_scipy(
            csr_array(self.adj),
            features=csr_array(self.features) if self.sparse else self.features,
            labels=self.labels,
            train_mask=self.train_mask,
            val_mask=self.val_mask,
            num_classes=NUM_CLASSES,
        )


def dense_graph(kind: str) -> DenseGraph:
    """One of ``symmetric``, ``directed``, ``weighted`` (and directed), ``isolated`` (nodes without edges), ``tiny``
    (3 nodes), ``corner`` (one training node, the last) and ``words`` (directed, with sparse features)."""
    rng = np.random.default_rng(7)
    num_nodes = 3 if kind == "tiny" else 29
    adj = (rng.random((num_nodes, num_nodes)) < 0.2).astype(np.float64)
    if kind in ("symmetric", "isolated", "corner", "tiny"):
        adj = np.maximum(adj, adj.T)
    if kind == "weighted":
        adj *= rng.integers(1, 9, adj.shape) / 8
    if kind == "isolated":
        for node in (0, 11, 28):
            adj[node] = adj[:, node] = 0
    train = np.zeros(num_nodes, bool)
    train[{"corner": [num_nodes - 1], "tiny": [0]}.get(kind, [0, 1, 2, 3, 4, 5, 20])] = True
    val = ~train & (np.arange(num_nodes) % 2 == 0)
    features, labels = rng.standard_normal((num_nodes, 5)), rng.integers(0, NUM_CLASSES, num_nodes)
    if kind == "words":
        features = rng.standard_normal((num_nodes, 23)) * (rng.random((num_nodes, 23)) < 0.2)
        features[[4, 17]] = features[:, [0, 9]] = 0
    return DenseGraph(adj, features, labels, train, val, kind == "words")


@dataclass(frozen=True)
class Calling:
    """An output of ``fit`` that calls a function with each record."""

    add_epoch: Callable[[EpochRecord], object]


def sharded(world: World, cfg: Config, scheme: Scheme, request: BlockRequest, graph: Graph) -> ShardedGraph:
    """This rank's part of ``graph``, in the dtype of ``cfg``. Every rank calls it."""
    request = replace(request, dtype=getattr(torch, cfg.runtime.dtype))
    preparation = Preparation(cfg, scheme.num_parts, graph if world.rank == 0 else None)
    with prepared_graph(preparation, world) as prepared:
        return scheme.shard(prepared, request)


def multi_class(graph: ShardedGraph) -> MultiClass:
    """The task of a graph with one class a node, as ``task=node_classification`` builds it."""
    return MultiClass(LabelFacts(graph.num_classes, num_train=graph.num_split_nodes[0]))


def config(*overrides: str, name: str = "config") -> Config:
    """The default configuration with ``overrides``, checked. Hydra composes only the group choices, once each."""
    choices = tuple(override for override in overrides if override.partition("=")[0] in GROUPS)
    cfg = _composed(choices, name).copy()
    for override in overrides:
        if override not in choices:
            key, _, value = override.partition("=")
            OmegaConf.update(cfg, key, yaml.safe_load(value))
    return load_config(cfg)


@functools.cache
def _composed(choices: tuple[str, ...], name: str) -> DictConfig:
    return compose(*choices, name=name)


def minibatch_config(*overrides: str) -> MinibatchConfig:
    """The default configuration of sampled training with ``overrides``, checked."""
    cfg = config(*overrides, name="minibatch")
    assert isinstance(cfg, MinibatchConfig)
    return cfg


def layout_overrides(replication: int) -> list[str]:
    return ["scheme=1d"] if replication == 1 else ["scheme=1.5d", f"scheme.replication={replication}"]
