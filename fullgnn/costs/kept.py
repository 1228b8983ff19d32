"""Planned jobs of datasets, which are kept: the same plan needs the graph once.

What is kept of a job are the numbers that were counted: a table of its block rows for each product.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from fullgnn.config import Config
from fullgnn.costs.statistics import GraphStatistics, PlannedJob, counted_job, job_of_counts
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.prepare.source import Preparation, codec_context
from fullgnn.schemes.product_layout import RowDistribution
from fullgnn.storage.cache import Cache
from fullgnn.storage.text import parse_json

KIND = "plan"
"""Folder, in the cache, of planned jobs."""

FORMAT = 3
"""Increase it when what is counted changes, or how it is kept."""


def key_of_job(cfg: Config, world_size: int, near_bytes: int, cache: Cache) -> str:
    """The key of a job on a dataset; empty if the dataset does not name its files, or nothing is kept.

    Args:
        near_bytes: see ``Hardware``; the cache for which the order of the nodes was judged.
    """
    num_parts = world_size // cfg.scheme["replication"]
    graph = Preparation(cfg, num_parts, codec_context=codec_context(cfg)).key_of_files(cache)
    if not graph:
        return ""
    return cache.key(
        plan_format=FORMAT,
        graph=graph,
        world_size=world_size,
        near_bytes=near_bytes,
        **{key: getattr(cfg, key) for key in ("scheme", "model", "task", "normalization", "self_loops")},
        optimizations=asdict(cfg.optimizations),
        dtype=cfg.runtime.dtype,
    )


def kept_or_counted_job(
    cfg: Config, size: int, near_bytes: int, cache: Cache, arrange: Callable[[], tuple[PreparedGraph, float]]
) -> PlannedJob:
    """The job of ``size`` ranks that was kept, else the one that is counted now. It is kept unless it finds links.

    Args:
        near_bytes: see ``key_of_job``.
        arrange: returns the prepared graph and its ``locality``.
    """
    key = key_of_job(cfg, size, near_bytes, cache)
    job = cache.load(KIND, key, lambda arrays: _job_of(cfg, size, arrays)) if key else None
    if job is None:
        job = counted_job(cfg, size, *arrange())
        if key and job.links is None:
            cache.store(KIND, key, _arrays_of(job))
    return job


def _job_of(cfg: Config, world_size: int, arrays: Mapping[str, Any]) -> PlannedJob:
    graph = GraphStatistics(**parse_json(str(arrays["graph"]), "graph"))
    kinds: dict[str, dict[str, Any]] = {"rows": {}, "nnz": {}, "halo": {}}
    for name, array in arrays.items():
        kind, is_of_product, product = name.partition(".")
        if is_of_product:
            kinds[kind][product] = RowDistribution(array) if kind == "rows" else array
    return job_of_counts(cfg, world_size, graph, kinds["rows"], kinds["nnz"], kinds["halo"])


def _arrays_of(job: PlannedJob) -> dict[str, np.ndarray]:
    arrays = {"graph": np.array(json.dumps(asdict(job.graph)))}
    for name, product in job.products.items():
        arrays |= {} if product.halo is None else {f"halo.{name}": product.halo}
        if not name.endswith("_t"):
            arrays |= {f"rows.{name}": product.out_rows.bounds, f"nnz.{name}": product.nnz}
    return arrays
