"""The graphs that targets run on: the real one where it is found, else its look-alike, shrunk.

Shrinking the nodes at the real mean degree multiplies the density nnz / n^2, until every tile counts as dense and H
fits into any cache. A target that depends on either gives ``sizes.<dataset>.density``, a multiple of the real density,
and the mean degree falls with the nodes.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fullgnn.config import build
from fullgnn.config.compose import compose, load_config
from fullgnn.config.overrides import quote
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph, load_dataset
from fullgnn.reproduce.config import TargetConfig
from fullgnn.storage.cache import Cache

_ARRAYS = ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask")
_CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class FullSize:
    """A graph of the paper at full size, from ``conf/dataset/``."""

    num_nodes: int
    nnz: int  # both directions of each edge, and a self-loop for each node
    num_features: int
    num_classes: int

    @property
    def density(self) -> float:
        return self.nnz / self.num_nodes**2


@dataclass(frozen=True, eq=False)
class Case:
    """A graph that a target runs on."""

    dataset: str  # choice of ``dataset`` that it is, or stands in for
    title: str  # what the paper calls it
    graph: Graph
    real: bool
    scale: float
    degree_scale: float
    hidden: int
    full: FullSize
    paper_cache_bytes: int
    overrides: list[str]  # of a run on it

    @property
    def nnz(self) -> int:
        """Non-zeros of A + I, which is what is multiplied, where no self-loop is stored."""
        return self.graph.num_edges + self.graph.num_nodes

    @property
    def density(self) -> float:
        return self.nnz / self.graph.num_nodes**2

    @property
    def paper_cache_share(self) -> float:
        """The share of the rows of H, float32 and ``hidden`` wide, that the paper's cache holds at full size."""
        return min(1.0, self.paper_cache_bytes / (self.full.num_nodes * self.hidden * 4))

    @property
    def modelled_cache_rows(self) -> int:
        """Rows of H that are the same share of this graph."""
        return max(1, round(self.paper_cache_share * self.graph.num_nodes))

    def facts(self, device: torch.device) -> dict[str, Any]:
        """What every output says of it."""
        cache_bytes = cache_capacity(device)
        return {
            "graph": self.title,
            "source": "real" if self.real else f"look-alike ({self.dataset})",
            "scale": self.scale,
            "degree_scale": self.degree_scale,
            "num_nodes": self.graph.num_nodes,
            "nnz": self.nnz,
            "mean_degree": self.nnz / self.graph.num_nodes,
            "density": self.density,
            "real_density": self.full.density,
            "density_ratio": self.density / self.full.density,
            "h_bytes": self.graph.num_nodes * self.hidden * 4,
            "cache_bytes": cache_bytes,
            "modelled_cache_rows": self.modelled_cache_rows,
            "modelled_cache_share": self.modelled_cache_rows / self.graph.num_nodes,
        }


def cases(cfg: TargetConfig, features: bool = True) -> list[Case]:
    """The graphs that ``cfg`` chooses; each is read or made once a command, whichever targets share it.

    Args:
        features: with the features of the model; without, one column stands for them, which is all that a target
            needs that multiplies a dense matrix of its own.
    """
    return [case(cfg, name, features) for name in cfg.chosen]


def case(cfg: TargetConfig, dataset: str, features: bool = True) -> Case:
    """One graph of :func:`cases`."""
    known, size = cfg.graphs[dataset], cfg.sizes[dataset]
    path = _real_path(cfg.data_root, known.file)
    if path is not None:
        scale = degree_scale = 1.0
        overrides = ["dataset=npz", f"dataset.path={quote(str(path))}"]
    else:
        scale = size.scale if cfg.scale is None else cfg.scale
        degree_scale = 1.0 if size.density is None else degree_scale_for(size.density, scale, full_size(dataset))
        overrides = [f"dataset={dataset}", f"dataset.scale={scale!r}", f"dataset.degree_scale={degree_scale!r}"]
    narrow = [] if features or path is not None else ["dataset.num_features=1"]
    graph = _load((*overrides, *narrow), None if path is not None else cfg.cache_dir)
    full = full_size(dataset)
    return Case(
        dataset,
        known.title,
        graph,
        path is not None,
        scale,
        degree_scale,
        known.hidden,
        full,
        cfg.paper_cache_bytes,
        overrides,
    )


def degree_scale_for(density: float, scale: float, full: FullSize) -> float:
    """The ``dataset.degree_scale`` with which A + I is at most ``density`` times as dense as at full size.

    Raises:
        ConfigError: so small a graph would have no edges.
    """
    row = full.nnz / full.num_nodes  # non-zeros, the diagonal's included, which does not shrink
    degree_scale = min(1.0, (density * scale * row - 1) / (row - 1))
    if degree_scale <= 0:
        raise ConfigError(f"scale={scale:g} leaves no edges at {density:g} times the real density: raise scale")
    return degree_scale


@functools.cache
def full_size(dataset: str) -> FullSize:
    """The sizes that a look-alike has at full size."""
    node = compose(f"dataset={dataset}").dataset
    return FullSize(node.num_nodes, node.num_edges, node.num_features, node.num_classes)


def order(case: Case, name: str, cfg: TargetConfig) -> np.ndarray:
    """(num_nodes,) the permutation of ``reorder=name`` for the whole graph of ``case``.

    Raises:
        MetisError: of ``reorder=metis``, where pymetis is missing.
    """
    return _order(case.graph, name, cfg.seed, cfg.cache_dir)


def cache_capacity(device: torch.device) -> int | None:
    """Bytes of the last cache before the memory of ``device``: L2 of a GPU, the last level of a CPU; None: unknown."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).L2_cache_size
    found = {}
    for index in _CPU_CACHES.glob("index*"):
        level, size = ((index / name).read_text().strip() for name in ("level", "size"))
        found[int(level)] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]]
    return found[max(found)] if found else None


def _real_path(data_root: str | None, file: str) -> Path | None:
    """``data_root/<file>.npz`` where it is a file."""
    path = None if data_root is None else (Path(data_root).expanduser() / f"{file}.npz").absolute()
    return path if path is not None and path.is_file() else None


@functools.lru_cache(maxsize=8)
def _load(overrides: tuple[str, ...], cache_dir: str | None) -> Graph:
    """The dataset of a run with ``overrides``, from ``cache_dir`` or for it."""
    node = load_config(compose(*overrides)).dataset
    cache = Cache(cache_dir)
    key = cache.key(dataset=node)
    stored = cache.load("graph", key)
    if stored is not None:
        num_classes = int(stored.pop("num_classes"))
        return Graph(**stored, num_classes=num_classes, name=str(node["name"]))
    graph = load_dataset(node)
    arrays = {name: getattr(graph, name) for name in _ARRAYS} | {"num_classes": np.array(graph.num_classes)}
    cache.store("graph", key, arrays)
    return graph


@functools.lru_cache(maxsize=32)
def _order(graph: Graph, name: str, seed: int, cache_dir: str | None) -> np.ndarray:
    cfg = load_config(compose(f"reorder={name}"))
    cache = Cache(cache_dir)
    key = cache.key(indptr=graph.indptr, indices=graph.indices, method=cfg.reorder.method, seed=seed)
    stored = cache.load("whole_order", key)
    if stored is not None:
        return stored["perm"]
    perm = build(cfg.reorder.method)(graph.adjacency(np.float32), seed)
    cache.store("whole_order", key, {"perm": perm})
    return perm
