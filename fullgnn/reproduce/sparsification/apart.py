"""Trainings that are measured in processes of their own: the graph in a folder, which they map, and their overrides."""

from pathlib import Path
from typing import Any

from fullgnn.graph import Graph
from fullgnn.reproduce.graphs import Case
from fullgnn.reproduce.sparsification.config import Config, batch_size
from fullgnn.storage.arrays import map_npy, write_npy

ARRAYS = ("indptr", "indices", "labels", "train_mask", "val_mask", "test_mask", "features")


def write_graph(graph: Graph, folder: Path) -> None:
    """Write the arrays of ``graph`` to ``folder``."""
    for name in ARRAYS:
        write_npy(folder / f"{name}.npy", getattr(graph, name))


def map_graph(folder: Path, num_classes: int) -> Graph:
    """The graph that ``write_graph`` has written to ``folder``. Its arrays stay in the files until they are read."""
    arrays: dict[str, Any] = {name: map_npy(folder / f"{name}.npy", read_only=True) for name in ARRAYS}
    return Graph(**arrays, num_classes=num_classes, name="graph")


def full_batch_keys(cfg: Config, one: Case) -> list[str]:
    """Overrides of a full-batch training of GraphSAGE on the graph of ``one``."""
    return [
        "model=sage",
        f"model.num_layers={len(cfg.fanouts)}",
        f"model.hidden_channels={one.hidden}",
        "model.dropout=0",
        "model.input_dropout=0",
        f"seed={cfg.seed}",
        "runtime.device=cpu",
        f"runtime.threads={cfg.threads or 1}",
    ]


def sampled_keys(cfg: Config, one: Case) -> list[str]:
    """Overrides of a sampled training of the same model."""
    return [
        *full_batch_keys(cfg, one),
        f"sampler.fanouts=[{','.join(map(str, cfg.fanouts))}]",
        f"loader.batch_size={batch_size(cfg, one)}",
    ]


def codec_keys(cfg: Config, one: Case) -> list[str]:
    """Overrides of the paper's codec."""
    return ["codec=topk", f"codec.k={cfg.kinds[one.dataset].k}"]
