"""The fields of a run's record about its sampling."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fullgnn.config import MinibatchConfig
from fullgnn.distributed import all_gather_objects
from fullgnn.engine.fit import FitResult
from fullgnn.engine.summary import best_metric_row, in_title, memory_row, memory_rows, metric_rows
from fullgnn.sampling.loader import Loader
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.meter import Cost
from fullgnn.telemetry.screen import folded, format_table, num_bytes, shares

STEPS = ("cache", "sample", "gather", "pack", "wait", "load", "forward", "backward", "comm", "update")
"""The steps of an epoch, in order: which rows stay on the device, and then those of each batch. With workers, the
first three of a batch are their time, and ``wait`` is what a rank waits for them."""

IN_WORKERS = ("sample", "gather", "pack")
"""The steps that workers do, if there are any."""

COUNTS = ("sampled_edges", "input_rows", "hits", "fetched_bytes", "filled_bytes")


def sampling_summary(cfg: MinibatchConfig, loader: Loader, result: FitResult) -> dict[str, Any]:
    """The field ``sampling`` of ``RunRecord``. Every rank calls it and gets the same.

    Times are those of the busiest rank, the median over the epochs after the first.
    """
    costs = [record.cost for record in result.epochs[1:] or result.epochs] or [Cost()]
    ranks = all_gather_objects({step: _median(cost.time_ms.get(step, 0.0) for cost in costs) for step in STEPS})
    counts = all_gather_objects({name: _median(cost.counts.get(name, 0) for cost in costs) for name in COUNTS})
    busiest = max(ranks, key=lambda times: sum(times.values()))
    total = {name: sum(of_rank[name] for of_rank in counts) for name in COUNTS}
    return {
        "sampler": dict(cfg.sampler),
        "cache": dict(cfg.cache),
        "codec": dict(cfg.codec),
        "batch_size": cfg.loader.batch_size,
        "num_batches": loader.num_batches,
        "time_ms": busiest,
        "sampled_edges": total["sampled_edges"],
        "input_rows": total["input_rows"],
        "hit_rate": total["hits"] / total["input_rows"] if total["input_rows"] else None,
        "fetched_bytes": total["fetched_bytes"],
        "filled_bytes": total["filled_bytes"],
        "sampled_edges_per_s": total["sampled_edges"] / (busiest["sample"] / 1e3) if busiest["sample"] else None,
    }


def sampling_table(record: RunRecord, full: bool = False) -> str:
    """What a run of sampled training cost, and its metrics on the full graph.

    Args:
        full: whether it has all measurements, not only the eight that describe a run.
    """
    sampling, median = record.sampling, record.epoch_time_ms["median"]
    assert sampling is not None
    title = (
        f"{record.dataset}, {record.num_nodes} nodes, {record.num_edges} edges; {record.model},"
        f" {sampling['sampler']['name']}, p={record.world_size}; evaluated on the full graph{in_title(record)}"
    )
    epoch = (f"epoch, median of {max(1, record.epochs - 1)}", f"{median:.2f} ms")
    times = _parts(sampling["time_ms"], median)
    if not full:
        phases = _phases(times)
        short = [epoch, *((f"  {phase}", share) for phase, share in zip(phases, shares([*phases.values()])))]
        short += [("batches of an epoch", str(sampling["num_batches"])), memory_row(record), *best_metric_row(record)]
        return folded(title) + "\n" + format_table(("", "value"), short)
    elsewhere = {step: ms for step, ms in sampling["time_ms"].items() if ms and step not in times}
    rows: list[Sequence[str]] = [
        (*epoch, ""),
        *(
            (f"  {step}", f"{ms:.2f} ms", share)
            for (step, ms), share in zip(times.items(), shares([*times.values()]))
            if ms
        ),
        *((f"{step}, in the workers meanwhile", f"{ms:.2f} ms", "") for step, ms in elsewhere.items()),
        ("batches of an epoch", str(sampling["num_batches"]), ""),
        ("drawn edges of an epoch", f"{sampling['sampled_edges']:.0f}", ""),
        ("rows of features that were read", f"{sampling['input_rows']:.0f}", ""),
        *_cache_rows(sampling),
        ("features that were fetched from the host", num_bytes(int(sampling["fetched_bytes"])), ""),
        *memory_rows(record),
        *metric_rows(record),
    ]
    return folded(title) + "\n" + format_table(("", "value", "share"), rows)


def _cache_rows(sampling: Mapping[str, Any]) -> list[Sequence[str]]:
    """How often the cache had the row that was read, and what it took to change its content."""
    rate, filled = sampling.get("hit_rate"), sampling.get("filled_bytes")
    if not rate:
        return []
    rows: list[Sequence[str]] = [("rows that were on the device", f"{100 * rate:.1f} %", "")]
    return rows + ([("features that the cache changed", num_bytes(int(filled)), "")] if filled else [])


def _parts(time_ms: Mapping[str, float], epoch_ms: float) -> dict[str, float]:
    """The steps of an epoch, and ``other``. Those of the workers are no part of an epoch, which waits for them."""
    steps = [step for step in STEPS if not (time_ms["wait"] and step in IN_WORKERS)]
    parts = {step: time_ms.get(step, 0.0) for step in steps}
    return parts | {"other": max(0.0, epoch_ms - sum(parts.values()))}


def _phases(parts: Mapping[str, float]) -> dict[str, float]:
    """The ``parts`` of an epoch, joined to four."""
    phases = {
        "waiting for batches" if parts.get("wait") else "making batches": ("cache", *IN_WORKERS, "wait", "load"),
        "forward and backward": ("forward", "backward"),
        "communication": ("comm",),
        "update and other": ("update", "other"),
    }
    return {phase: sum(parts.get(step, 0.0) for step in steps) for phase, steps in phases.items()}


def _median(numbers: Iterable[float]) -> float:
    return float(np.median(list(numbers)))
