"""The graphs of the targets: the real one where its file is found, otherwise its look-alike, shrunk.

Shrinking the nodes at the real mean degree multiplies the density nnz / n^2, until every tile counts as dense and H
fits into any cache. A target that depends on either sets ``sizes.<dataset>.density``, a multiple of the real density;
then the mean degree falls with the number of nodes.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from fullgnn.bench.papers.config import Keys
from fullgnn.config.compose import compose, load_config
from fullgnn.config.overrides import quote
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.graph.datasets import load_cached
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.machine import cache_bytes


@dataclass(frozen=True)
class GraphSize:
    """The sizes of a graph and of A + I, the matrix of the products."""

    num_nodes: int
    nnz: int  # both directions of each edge, and a self-loop for each node
    num_features: int
    num_classes: int

    @property
    def density(self) -> float:
        return self.nnz / self.num_nodes**2

    @classmethod
    def of(cls, graph: Graph) -> "GraphSize":
        """The sizes of a graph without self-loops."""
        return cls(graph.num_nodes, graph.num_edges + graph.num_nodes, graph.num_features, graph.num_classes)

    @classmethod
    def published(cls, node: DictConfig) -> "GraphSize":
        """The sizes of the graph that the dataset ``node`` of a run imitates."""
        return cls(node.num_nodes, node.num_edges, node.num_features, node.num_classes)


@dataclass(frozen=True, eq=False)
class GraphCase:
    """A graph that a target runs on."""

    dataset: str  # choice of ``dataset`` whose look-alike it is, or whose real graph
    title: str  # its name in the paper
    graph: Graph
    real: bool
    scale: float
    degree_scale: float
    hidden: int
    full: GraphSize
    paper_cache_bytes: int | None = None  # None: no cache is modelled

    @property
    def size(self) -> GraphSize:
        """The sizes of ``graph``, which has no self-loops."""
        return GraphSize.of(self.graph)

    @property
    def modelled_cache_rows(self) -> int:
        """The part of the rows of this graph's H, float32 and ``hidden`` wide, that the paper's cache holds of them at
        full size."""
        assert self.paper_cache_bytes is not None
        share = min(1.0, self.paper_cache_bytes / (self.full.num_nodes * self.hidden * 4))
        return max(1, round(share * self.graph.num_nodes))

    def facts(self, device: torch.device) -> dict[str, Any]:
        """Return what page and record say about the graph."""
        size, full = self.size, self.full
        facts = {
            "graph": self.title,
            "source": "real" if self.real else f"look-alike ({self.dataset})",
            "scale": self.scale,
            "degree_scale": self.degree_scale,
            "num_nodes": size.num_nodes,
            "nnz": size.nnz,
            "mean_degree": size.nnz / size.num_nodes,
            "density": size.density,
            "real_density": full.density,
            "density_ratio": size.density / full.density,
            "h_bytes": size.num_nodes * self.hidden * 4,
            "cache_bytes": cache_bytes(device),
        }
        if self.paper_cache_bytes is not None:
            rows = self.modelled_cache_rows
            facts |= {"modelled_cache_rows": rows, "modelled_cache_share": rows / size.num_nodes}
        return facts


def cases(cfg: Keys, features: bool = True, data: Sequence[str] = ()) -> list[GraphCase]:
    """Find or make the graphs that ``cfg`` chooses; targets of one command share them.

    Args:
        features: False gives a look-alike a single feature column, which is enough for a target that multiplies a
            dense matrix of its own.
        data: overrides of a look-alike.
    """
    return [case(cfg, name, features, data) for name in cfg.chosen]


def case(cfg: Keys, dataset: str, features: bool = True, data: Sequence[str] = ()) -> GraphCase:
    """Find or make one graph of :func:`cases`."""
    known, size, full = cfg.graphs[dataset], cfg.sizes[dataset], full_size(dataset)
    path = None if cfg.data_root is None else (Path(cfg.data_root).expanduser() / f"{known.file}.npz").absolute()
    real, scale, degree_scale = path is not None and path.is_file(), 1.0, 1.0
    if path is not None and real:
        graph = load(*in_file(path))
    else:
        scale = size.scale if cfg.scale is None else cfg.scale
        overrides = [f"dataset={dataset}", f"dataset.scale={scale!r}", *data]
        if size.density is not None:
            degree_scale = degree_scale_for(size.density, scale, full)
            overrides.append(f"dataset.degree_scale={degree_scale!r}")
        graph = load(*overrides, *([] if features else ["dataset.num_features=1"]), cache_dir=cfg.cache_dir)
    return GraphCase(dataset, known.title, graph, real, scale, degree_scale, known.hidden, full, cfg.paper_cache_bytes)


def given_case(dataset: str, title: str, graph: Graph, node: DictConfig, hidden: int) -> GraphCase:
    """The case of a ``graph`` that a run has loaded by its dataset ``node``.

    A generated graph has the sizes of the graph that it imitates beside its own.
    """
    if "degree_scale" not in node:
        return GraphCase(dataset, title, graph, True, 1.0, 1.0, hidden, GraphSize.of(graph))
    full = GraphSize.published(node)
    return GraphCase(dataset, title, graph, False, node.scale, node.degree_scale, hidden, full)


def degree_scale_for(density: float, scale: float, full: GraphSize) -> float:
    """Compute the ``dataset.degree_scale`` with which A + I is at most ``density`` times as dense as at full size.

    Raises:
        ConfigError: so small a graph would have no edges.
    """
    row = full.nnz / full.num_nodes  # non-zeros of a row, with the one on the diagonal, which does not shrink
    degree_scale = min(1.0, (density * scale * row - 1) / (row - 1))
    if degree_scale <= 0:
        raise ConfigError(f"scale={scale:g} leaves no edges at {density:g} times the real density: raise scale")
    return degree_scale


@functools.cache
def full_size(dataset: str) -> GraphSize:
    """Return the sizes that a look-alike has at full size."""
    return GraphSize.published(compose(f"dataset={dataset}").dataset)


def configured(*overrides: str, name: str = "config") -> Any:
    """The checked configuration of a run; ``name``: "minibatch" of one by batches."""
    return load_config(compose(*overrides, name=name))


composed_once = functools.cache(configured)
"""``configured``, for a target that asks for the same again and again: composing takes as long as an epoch of a small
graph. Callers must not change what they get."""


def in_file(path: Path) -> list[str]:
    """Overrides of a run that choose the graph in the .npz ``path``."""
    return ["dataset=npz", f"dataset.path={quote(str(path))}"]


@functools.lru_cache(maxsize=8)
def load(*overrides: str, cache_dir: str | None = None) -> Graph:
    """Load the dataset of a run with ``overrides``; ``cache_dir`` keeps it for later commands."""
    return load_cached(configured(*overrides).dataset, Cache(cache_dir))
