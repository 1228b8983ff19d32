"""Planned jobs of datasets, which are kept: the same plan needs the graph once.

What is kept of a job are the numbers that were counted: a table of its block rows for each product.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from fullgnn.config import Config
from fullgnn.costs.layout import PlannedLayout
from fullgnn.costs.statistics import GraphStatistics, PlannedJob
from fullgnn.engine.run import told
from fullgnn.prepare.source import Preparation
from fullgnn.schemes.options import SchemeOptions
from fullgnn.schemes.pieces import Pieces
from fullgnn.schemes.product_layout import RowDistribution
from fullgnn.storage.cache import Cache
from fullgnn.storage.text import parse_json

KIND = "plan"
"""Folder, in the cache, of planned jobs."""

FORMAT = 2
"""Increase it when what is counted changes, or how it is kept."""


def key_of_job(cfg: Config, world_size: int, near_bytes: int, cache: Cache) -> str:
    """The key of a job on a dataset; empty if the dataset does not name its files, or nothing is kept.

    Args:
        near_bytes: see ``Hardware``; the cache for which the order of the nodes was judged.
    """
    graph = Preparation(cfg, world_size // cfg.scheme["replication"], told=told(cfg)).key_of_files(cache)
    if not graph:
        return ""
    return cache.key(
        plan_format=FORMAT,
        graph=graph,
        world_size=world_size,
        near_bytes=near_bytes,
        scheme=cfg.scheme,
        model=cfg.model,
        task=cfg.task,
        normalization=cfg.normalization,
        self_loops=cfg.self_loops,
        optimizations=asdict(cfg.optimizations),
        dtype=cfg.runtime.dtype,
    )


def load_job(cfg: Config, world_size: int, key: str, cache: Cache) -> PlannedJob | None:
    """The job that was kept under ``key``; None if there is none."""
    return cache.load(KIND, key, lambda arrays: _job_of(cfg, world_size, arrays)) if key else None


def _job_of(cfg: Config, world_size: int, arrays: Mapping[str, Any]) -> PlannedJob:
    about = parse_json(str(arrays["about"]), "about")
    products = {
        name: PlannedLayout(
            RowDistribution(arrays[f"{name}.in_rows"]),
            RowDistribution(arrays[f"{name}.out_rows"]),
            one["stages"],
            one["stage_order"],
            arrays[f"{name}.transports"],
            None if one["pieces"] is None else Pieces(**one["pieces"]),
            arrays[f"{name}.nnz"],
            arrays.get(f"{name}.halo"),
        )
        for name, one in about["products"].items()
    }
    grid = SchemeOptions.of(cfg.scheme).grid(world_size)
    return PlannedJob(cfg, GraphStatistics(**about["graph"]), grid, RowDistribution(arrays["rows"]), products)


def keep_job(job: PlannedJob, key: str, cache: Cache) -> None:
    """Keep a job under ``key``. One that finds links is not kept."""
    if not key or job.links is not None:
        return
    arrays, products = {"rows": job.rows.bounds}, dict[str, dict[str, Any]]()
    for name, one in job.products.items():
        products[name] = {
            "stages": one.stages,
            "stage_order": one.stage_order,
            "pieces": None if one.pieces is None else asdict(one.pieces),
        }
        tables = {"in_rows": one.in_rows.bounds, "out_rows": one.out_rows.bounds, "halo": one.halo}
        tables |= {"transports": one.transports, "nnz": one.nnz}
        arrays |= {f"{name}.{key}": table for key, table in tables.items() if table is not None}
    about = json.dumps({"graph": asdict(job.graph), "products": products})
    cache.store(KIND, key, arrays | {"about": np.array(about)})
