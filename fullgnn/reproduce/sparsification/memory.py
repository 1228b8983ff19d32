"""Memory of the host, with the codec and without: from the sizes of the whole graph, and measured on a shrunk one."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.config import MinibatchConfig
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import world_of_one
from fullgnn.reproduce.graphs import Case
from fullgnn.reproduce.result import Cell, Result, TableRow, bars
from fullgnn.reproduce.sparsification.apart import ARRAYS, codec_keys, map_graph, sampled_keys, write_graph
from fullgnn.reproduce.sparsification.config import Config, cases
from fullgnn.reproduce.sparsification.fresh import Fresh, call_fresh
from fullgnn.reproduce.sparsification.sizes import ID_BYTES, code_bytes, num_arcs
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.storage.folder import temporary_folder
from fullgnn.telemetry.meter import Meter

GIB = 1 << 30
"""Bytes of what the paper calls a GB: it says that the features of MAG240M are 698 of them."""

COLUMNS = ("full", "sparse", "sparse over full")
ALL, SUBGRAPH, THEIRS, OURS = "features", "features of the sub-graph", "structure, theirs", "structure, ours"
IN_ALL, IN_ALL_SUBGRAPH, HERE, TABLE = (
    "in all",
    "in all, of the sub-graph",
    "a process here",
    "features here",
)


def run(cfg: Config) -> Result:
    """Add up the bytes of the whole graph, and measure processes that train on the shrunk one."""
    found, rows, panels, details = cases(cfg), [], [], {}
    for one in found:
        k, full = cfg.kinds[one.dataset].k, one.full
        row, code = 4 * full.num_features, code_bytes(full.num_features, k)
        structure = 2 * ID_BYTES * num_arcs(full) + ID_BYTES * full.num_nodes
        share = cfg.subgraph_share
        derived: dict[str, tuple[float, float]] = {
            ALL: (full.num_nodes * row, full.num_nodes * code),
            SUBGRAPH: (share * full.num_nodes * row, full.num_nodes * code),
            THEIRS: (structure, structure),
            OURS: (4 * num_arcs(full) + 8 * full.num_nodes,) * 2,
        }
        derived[IN_ALL] = _sum(derived[ALL], derived[THEIRS])
        derived[IN_ALL_SUBGRAPH] = _sum(derived[SUBGRAPH], derived[THEIRS])
        own = [TableRow((one.title, name), _cells(cfg, one, name, pair, "derived")) for name, pair in derived.items()]
        measured = processes(cfg, one)
        pair = measured[0].own_bytes, measured[1].own_bytes
        tables = one.graph.num_nodes * row, one.graph.num_nodes * code
        own.append(TableRow((one.title, TABLE), _cells(cfg, one, TABLE, tables, "derived")))
        own.append(TableRow((one.title, HERE), _cells(cfg, one, HERE, pair, "measured")))
        rows += own
        drawn = [row for row in own if row.labels[1] in (IN_ALL, IN_ALL_SUBGRAPH)]
        panels += bars("{0}, full size, derived", "GiB", drawn, COLUMNS[:2], ("ours", "paper"), group=1)
        details[one.title] = {way: vars(fresh) for way, fresh in zip(COLUMNS, measured)}
    return Result(("graph", "what"), COLUMNS, rows, panels, found, cfg.notes, details)


def _sum(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    return one[0] + other[0], one[1] + other[1]


def _cells(cfg: Config, one: Case, what: str, pair: Sequence[float], origin: Any) -> dict[str, Cell]:
    cells = {
        way: Cell(num_bytes / GIB, cfg.published("memory", graph=one.dataset, what=what, way=way), "GiB", origin)
        for way, num_bytes in zip(COLUMNS, pair)
    }
    return cells | {COLUMNS[2]: Cell(100 * pair[1] / pair[0], unit="%", origin=origin)}


def processes(cfg: Config, one: Case) -> tuple[Fresh, Fresh]:
    """Processes that train on the graph of ``one``, with full features and with compressed ones."""
    threads = cfg.threads or 1
    with temporary_folder() as folder:
        write_graph(one.graph, folder)
        about = folder, one.graph.num_classes
        full, sparse = (
            call_fresh(train, *about, [*sampled_keys(cfg, one), *codec], cfg.batches, threads=threads)
            for codec in ([], codec_keys(cfg, one))
        )
    return full, sparse


def train(folder: Path, num_classes: int, keys: list[str], num_batches: int) -> float:
    """Train so many batches on the graph in ``folder``; returns the last loss.

    The graph and full features are read to memory. Features that a codec compresses are mapped, and are in memory some
    rows at a time.
    """
    run = load_config(compose(*keys, name="minibatch"))
    assert isinstance(run, MinibatchConfig)
    graph = map_graph(folder, num_classes)
    in_memory = ARRAYS if run.codec["name"] == "none" else [name for name in ARRAYS if name != "features"]
    copies: dict[str, Any] = {name: np.array(getattr(graph, name)) for name in in_memory}
    graph = replace(graph, **copies)
    with world_of_one(run.runtime) as world:
        steps = set_up_sampled(run, world, Meter(world.device), graph)
        del graph
        loss = float("nan")
        for batch in itertools.islice(steps.loader.epoch(1), num_batches):
            loss = steps.step(batch).read()[0]
        steps.loader.close()
    return loss
