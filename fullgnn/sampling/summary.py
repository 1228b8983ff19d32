"""What the record of a run says of its sampling."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fullgnn.config import MinibatchConfig
from fullgnn.distributed import all_gather_objects
from fullgnn.engine import FitResult
from fullgnn.engine.summary import metric_rows
from fullgnn.sampling.loader import Loader
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.meter import Cost
from fullgnn.telemetry.table import format_table, num_bytes, percent

STEPS = ("sample", "gather", "pack", "wait", "load", "forward", "backward", "comm", "update")
"""The steps of a batch, in order. With workers, the first three are their time, and ``wait`` is what a rank waits for
them."""

COUNTS = ("sampled_edges", "input_rows", "fetched_bytes")


def sampling_summary(cfg: MinibatchConfig, loader: Loader, result: FitResult) -> dict[str, Any]:
    """The field ``sampling`` of ``RunRecord``. Every rank calls it and gets the same.

    Times are those of the busiest rank, the median over the epochs after the first.
    """
    costs = [record.cost for record in result.epochs[1:] or result.epochs] or [Cost()]
    ranks = all_gather_objects({step: _median(cost.time_ms.get(step, 0.0) for cost in costs) for step in STEPS})
    counts = all_gather_objects({name: _median(cost.counts.get(name, 0) for cost in costs) for name in COUNTS})
    busiest = max(ranks, key=lambda times: sum(times.values()))
    edges = sum(one["sampled_edges"] for one in counts)
    return {
        "sampler": dict(cfg.sampler),
        "cache": dict(cfg.cache),
        "codec": dict(cfg.codec),
        "batch_size": cfg.loader.batch_size,
        "num_batches": loader.num_batches,
        "time_ms": busiest,
        "sampled_edges": edges,
        "input_rows": sum(one["input_rows"] for one in counts),
        "fetched_bytes": sum(one["fetched_bytes"] for one in counts),
        "sampled_edges_per_s": edges / (busiest["sample"] / 1e3) if busiest["sample"] else None,
    }


def sampling_table(record: RunRecord) -> str:
    """What a run of sampled training cost, and its metrics on the full graph."""
    found, median = record.sampling, record.epoch_time_ms["median"]
    assert found is not None
    rows: list[Sequence[str]] = [
        (f"epoch, median of {max(1, record.epochs - 1)}", f"{median:.2f} ms", ""),
        *((f"  {step}", f"{ms:.2f} ms", percent(ms / median)) for step, ms in found["time_ms"].items() if ms),
        ("batches of an epoch", str(found["num_batches"]), ""),
        ("drawn edges of an epoch", f"{found['sampled_edges']:.0f}", ""),
        ("rows of features that were read", f"{found['input_rows']:.0f}", ""),
        ("features that were fetched from the host", num_bytes(int(found["fetched_bytes"])), ""),
        *(
            (f"peak memory, rank {rank}", num_bytes(count), "")
            for rank, count in enumerate(record.peak_memory_bytes_per_rank)
        ),
        *metric_rows(record),
    ]
    title = (
        f"{record.dataset}, {record.num_nodes} nodes, {record.num_edges} edges; {record.model},"
        f" {found['sampler']['name']}, p={record.world_size}; evaluated on the full graph"
    )
    return title + "\n" + format_table(("", "value", "share"), rows)


def _median(numbers: Iterable[float]) -> float:
    return float(np.median(list(numbers)))
