"""What the record of a run says of its sampling."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fullgnn.config import MinibatchConfig
from fullgnn.distributed import all_gather_objects
from fullgnn.engine import FitResult
from fullgnn.sampling.loader import Loader
from fullgnn.telemetry.meter import Cost

STEPS = ("sample", "gather", "pack", "wait", "load", "forward", "backward", "comm", "update")
"""The steps of a batch, in order. With workers, the first three are their time, and ``wait`` is what a rank waits for
them."""


def sampling_summary(cfg: MinibatchConfig, loader: Loader, result: FitResult) -> dict[str, Any]:
    """The field ``sampling`` of ``RunRecord``. Every rank calls it and gets the same.

    Times are those of the busiest rank, the median over the epochs after the first.
    """
    costs = [record.cost for record in result.epochs[1:] or result.epochs] or [Cost()]
    ranks = all_gather_objects({step: _median(cost.time_ms.get(step, 0.0) for cost in costs) for step in STEPS})
    counts = all_gather_objects(
        {name: _median(cost.counts.get(name, 0) for cost in costs) for name in ("sampled_edges", "input_rows")}
    )
    busiest = max(ranks, key=lambda times: sum(times.values()))
    edges = sum(one["sampled_edges"] for one in counts)
    return {
        "sampler": dict(cfg.sampler),
        "batch_size": cfg.loader.batch_size,
        "num_batches": loader.num_batches,
        "time_ms": busiest,
        "sampled_edges": edges,
        "input_rows": sum(one["input_rows"] for one in counts),
        "sampled_edges_per_s": edges / (busiest["sample"] / 1e3) if busiest["sample"] else None,
    }


def _median(numbers: Iterable[float]) -> float:
    return float(np.median(list(numbers)))
