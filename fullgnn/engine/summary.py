"""Turn the measurements of all ranks into one record and one closing table."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fullgnn.config import Config
from fullgnn.distributed import World, all_gather_objects, broadcast_object
from fullgnn.engine.cuda_graph import EAGER_EPOCHS, REPLAYED
from fullgnn.engine.ending import ended_by
from fullgnn.engine.fit import FitResult
from fullgnn.engine.passes import confusion_of
from fullgnn.engine.run import Run
from fullgnn.engine.state import split_parameters
from fullgnn.partition.facts import GraphFacts, edge_cut
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.machine import git_commit, hardware, peak_process_bytes, versions
from fullgnn.telemetry.meter import Cost
from fullgnn.telemetry.screen import folded, format_table, num_bytes, percent, shares

log = logging.getLogger(__name__)

PHASES = ("spmm", "comm", "dense", "other")
"""The parts of an epoch."""
MAX_HEADING = 40
"""Characters of the name of a profile in a heading."""


@dataclass(frozen=True)
class RankSummary:
    """Costs of one rank: medians over the epochs after the first, and peak memory.

    If epochs were replayed as a CUDA graph, the time ``epoch`` is that of the replayed epochs. Replayed epochs have no
    phases, so the phases are those of the other epochs.
    """

    time_ms: dict[str, float]  # epoch, spmm, comm, dense, other
    epoch_quantiles_ms: tuple[float, float]  # p20, p80
    comm_hidden: float | None  # over the epochs with phases
    bytes_received: dict[str, float]  # per epoch, by collective
    counts: dict[str, int]  # of the last epoch; all epochs have the same
    peak_memory_bytes: int
    peak_tensor_bytes: int


def summarize(result: FitResult) -> RankSummary:
    """The costs of this rank, as medians over the epochs after the first."""
    records = result.epochs[1:] or result.epochs
    costs = [record.cost for record in records] or [Cost()]  # a resumed run may have nothing left to train
    with_phases = [record.cost for record in records if not record.replayed] or [Cost()]
    times = {
        phase: np.array([cost.time_ms.get(phase, 0.0) for cost in with_phases])
        for phase in ("epoch", "spmm", "comm", "other", "flight", "late")
    }
    # Phases are disjoint parts of an epoch. On a GPU each of their times is rounded.
    times["dense"] = np.maximum(0.0, times["epoch"] - times["spmm"] - times["comm"] - times["other"])
    replayed = [record.cost.time_ms["epoch"] for record in records if record.replayed]
    if replayed:
        times["epoch"] = np.array(replayed)
    flight, late = float(times.pop("flight").sum()), float(times.pop("late").sum())
    collectives = sorted({name for cost in costs for name in cost.bytes_received})
    return RankSummary(
        {phase: float(np.median(values)) for phase, values in times.items()},
        (float(np.quantile(times["epoch"], 0.2)), float(np.quantile(times["epoch"], 0.8))),
        1 - late / flight if flight else None,
        {name: float(np.median([cost.bytes_received.get(name, 0) for cost in costs])) for name in collectives},
        costs[-1].counts,
        peak_process_bytes(),
        result.peak_tensor_bytes,
    )


def codec_record(cfg: Config, row_bytes: float, num_columns: int) -> dict[str, Any]:
    """The field ``codec`` of ``RunRecord``, where a codec encodes the features.

    Args:
        row_bytes: of the encoded features of a node, the mean.
        num_columns: of the features that were encoded.
    """
    keys = {key: value for key, value in cfg.codec.items() if not key.startswith("_")}
    ratio = num_columns * np.dtype(cfg.runtime.dtype).itemsize / row_bytes if row_bytes else None
    return {**keys, "row_bytes": row_bytes, "ratio": ratio}


def in_title(record: RunRecord) -> str:
    """What the title of a closing table says of the codec; empty if there is none."""
    return "" if record.codec is None else f"; inexact: codec={record.codec['name']}"


def log_inexact(codec: Mapping[str, Any], what: str = "features") -> None:
    """Log that a run is inexact.

    Args:
        codec: see ``RunRecord``.
    """
    smaller = f", {codec['ratio']:.3g} times smaller" if codec["ratio"] else ""
    log.info(
        "codec=%s: the run is inexact, since it reads %s as the codec keeps them (%.4g bytes a node%s)",
        codec["name"],
        what,
        codec["row_bytes"],
        smaller,
    )


def codec_of(cfg: Config, facts: GraphFacts) -> dict[str, Any] | None:
    """The field ``codec`` of ``RunRecord``, of a prepared graph."""
    if not facts.encoded_dtype:
        return None
    return codec_record(cfg, facts.encoded_bytes / facts.num_nodes, facts.nodes.num_features)


def make_record(run: Run, setup: Cost, result: FitResult, resumed_after: int | None = None) -> RunRecord:
    """Gather the summaries of all ranks into one record. Every rank calls it and gets the same record.

    Args:
        setup: cost of this rank before the first epoch.
        resumed_after: see ``RunRecord``.
    """
    cfg, world, facts, scheme = run.cfg, run.world, run.facts, run.scheme
    ranks = all_gather_objects(summarize(result))
    setups = all_gather_objects(setup)
    busiest = max(ranks, key=lambda rank: rank.time_ms["spmm"])
    received = _by_collective(ranks)
    loads = _of_ranks(scheme.balance.rank_nnz, world)
    metrics = {} if world.dry else _metrics(result)
    confusion, class_names = None if world.dry else confusion_of(run, result.best), facts.nodes.labels.class_names
    return RunRecord(
        dataset=facts.nodes.name,
        num_nodes=facts.num_nodes,
        num_edges=facts.num_edges,
        nnz=facts.nnz(cfg.self_loops),
        symmetric=facts.symmetric,
        num_features=facts.nodes.num_features,
        num_classes=facts.num_classes,
        **asdict(facts.methods),
        prepared=None if run.prepared_folder is None else str(run.prepared_folder),
        edge_cut=edge_cut(facts, cfg.self_loops),
        needed_row_ratio=run.needed_row_ratio,
        tile_density=None if run.statistics is None else run.statistics.tile_density,
        load_time_s=facts.load_time_s,
        prepare_time_s=facts.load_time_s + facts.prepare_time_s,
        model=cfg.model["name"],
        task=cfg.task["name"],
        num_parameters=_num_parameters(run.model, facts.num_nodes),
        scheme=cfg.scheme["name"],
        world_size=world.size,
        dry_run_rank=world.rank if world.dry else None,
        replication=scheme.replication,
        reorder_scope=cfg.reorder.scope,
        kernel=scheme.kernel_name,
        stage_order=cfg.scheme.get("stage_order", ""),
        exchange=cfg.scheme.get("exchange", ""),
        split_rows=cfg.scheme.get("split_rows", False),
        optimizations=asdict(run.optimizations),
        device=world.device.type,
        backend=world.backend,
        dtype=cfg.runtime.dtype,
        threads=torch.get_num_threads(),
        cuda_graph=result.cuda_graph,
        epochs=result.epoch,
        ended_by=ended_by(result.epoch, cfg.train),
        resumed_after=resumed_after,
        epoch_time_ms={
            "median": busiest.time_ms["epoch"],
            "p20": busiest.epoch_quantiles_ms[0],
            "p80": busiest.epoch_quantiles_ms[1],
        },
        spmm_time_ms=busiest.time_ms["spmm"],
        comm_time_ms=busiest.time_ms["comm"],
        dense_time_ms=busiest.time_ms["dense"],
        other_time_ms=busiest.time_ms["other"],
        comm_bytes_per_epoch={name: float(np.mean(values)) for name, values in received.items()},
        comm_bytes_per_epoch_max={name: max(values) for name, values in received.items()},
        comm_hidden=busiest.comm_hidden,
        spmm_columns_per_epoch=busiest.counts.get("spmm_columns", 0),
        spmm_rows_per_epoch=busiest.counts.get("spmm_rows", 0),
        nnz_imbalance=scheme.balance.nnz,
        stage_imbalance=scheme.balance.stage_nnz,
        peak_memory_bytes=max(rank.peak_memory_bytes for rank in ranks),
        peak_memory_bytes_per_rank=[rank.peak_memory_bytes for rank in ranks],
        peak_tensor_bytes=max(rank.peak_tensor_bytes for rank in ranks),
        setup_time_s=max(cost.time_ms["setup"] for cost in setups) / 1e3,
        setup_bytes={name: float(np.mean(values)) for name, values in _by_collective(setups).items()},
        setup_spmm_columns=setup.counts.get("spmm_columns", 0),
        final_loss=None if world.dry or not result.epochs else result.epochs[-1].loss,
        best_epoch=result.best.epoch if result.best else 0,
        metrics=metrics,
        confusion=confusion,
        confusion_classes=None if confusion is None or class_names is None else list(class_names),
        remarks=dict(facts.remarks),
        codec=codec_of(cfg, facts),
        predicted=run.predicted,
        train_accuracy=metrics.get("train_accuracy"),
        val_accuracy=metrics.get("val_accuracy"),
        test_accuracy=metrics.get("test_accuracy"),
        final_test_accuracy=metrics.get("final_test_accuracy"),
        seed=cfg.seed,
        versions=versions(),
        hardware=hardware(world.device),
        git_commit=git_commit(),
        run_dir=broadcast_object(str(Path(cfg.run_dir).absolute())),
        ranks=[
            {
                "time_ms": {phase: rank.time_ms[phase] for phase in ("epoch", *PHASES)},
                "bytes_received": rank.bytes_received,
                "peak_memory_bytes": rank.peak_memory_bytes,
                "peak_tensor_bytes": rank.peak_tensor_bytes,
                "nnz": nnz,
            }
            for rank, nnz in zip(ranks, loads, strict=True)
        ],
    )


def _num_parameters(model: torch.nn.Module, num_nodes: int) -> int:
    """All parameters: those that are replicated once, and sharded ones with a row for each node of the graph."""
    replicated, sharded = split_parameters(model)
    in_rows = sum(parameter.shape[1:].numel() for parameter in sharded)
    return sum(parameter.numel() for parameter in replicated) + num_nodes * in_rows


def _metrics(result: FitResult) -> dict[str, float | None]:
    """The metrics at the best epoch, and those of the test nodes at the last one, as ``final_test_accuracy``."""
    best, last = result.best, result.last
    assert best is not None and last is not None
    final = {f"final_{name}": value for name, value in last.items() if name.startswith("test_")}
    return {**best.metrics, **final}


def _of_ranks(loads: Sequence[int], world: World) -> Sequence[int | None]:
    """The ``loads`` of the ranks that ran; None for each of them if the scheme reports none."""
    if not loads:
        return [None] * (1 if world.dry else world.size)
    return loads[world.rank :][:1] if world.dry else loads


def _by_collective(ranks: Sequence[RankSummary] | Sequence[Cost]) -> dict[str, list[float]]:
    """Bytes that each rank received, by collective."""
    collectives = sorted({name for rank in ranks for name in rank.bytes_received})
    return {name: [float(rank.bytes_received.get(name, 0)) for rank in ranks] for name in collectives}


def closing_table(record: RunRecord, full: bool = False) -> str:
    """The closing table of a run: epoch time, the shares of its phases, traffic, memory and accuracy.

    The phases are parts of their own sum, since the medians of parts need not add up to the median of the whole.

    Args:
        full: whether it has all measurements, not only the eight that describe a run.
    """
    median = record.epoch_time_ms["median"]
    replayed = record.cuda_graph == REPLAYED  # then the phases are those of other epochs, which ran eagerly
    trained = record.epochs - (record.resumed_after or 0)
    measured = trained - EAGER_EPOCHS if replayed else max(1, trained - 1)
    epoch = (f"epoch, median of {measured}{' replayed' if replayed else ''}", f"{median:.2f} ms")
    times = [getattr(record, f"{phase}_time_ms") for phase in PHASES]
    phases = zip(("SpMM", "communication (exposed)", "dense", "other"), times, shares(times))
    if full:
        rows: list[Sequence[str]] = [(*epoch, "")]
        rows += [(f"  {label}", f"{time:.2f} ms", share) for label, time, share in phases]
        rows += [*_measurements(record), *metric_rows(record)]
    else:
        received = num_bytes(sum(record.comm_bytes_per_epoch.values()))
        rows = [epoch, *((f"  {label}", share) for label, _, share in phases)]
        rows += [("received per rank and epoch", received), memory_row(record), *best_metric_row(record)]
    title = (
        f"{record.dataset}, {record.num_nodes} nodes, {record.nnz} non-zeros{'' if record.symmetric else ', directed'};"
        f" {record.model}, {record.scheme}, "
        f"p={record.world_size} r={record.replication}, {record.reorder} ({record.reorder_scope}){in_title(record)}"
    )
    if record.dry_run_rank is not None:
        title = f"rank {record.dry_run_rank} of {record.world_size}, simulated: {title}"
    return folded(title) + "\n" + format_table(("", "value", "share") if full else ("", "value"), rows)


def _measurements(record: RunRecord) -> list[Sequence[str]]:
    """The rows of the full table between the times and the metrics. What is None was not measured."""
    densities = record.tile_density or {}
    return [
        *(
            (f"received per rank and epoch, {name}", num_bytes(count), "")
            for name, count in record.comm_bytes_per_epoch.items()
        ),
        ("SpMM columns per epoch", str(record.spmm_columns_per_epoch), ""),
        ("SpMM rows per epoch", str(record.spmm_rows_per_epoch), ""),
        ("nnz imbalance, max / mean", f"{record.nnz_imbalance:.3f}", ""),
        ("  if every stage waits for all ranks", f"{record.stage_imbalance:.3f}", ""),
        ("edge cut", percent(record.edge_cut), ""),
        ("needed rows", percent(record.needed_row_ratio), ""),
        *((f"non-zeros in 32 x 32 tiles filled {density} %", "", percent(densities[density])) for density in densities),
        *([] if densities else [("non-zeros by density of 32 x 32 tiles", "", "-")]),
        ("communication hidden", percent(record.comm_hidden), ""),
        *memory_rows(record),
        ("peak tensor memory, largest rank", num_bytes(record.peak_tensor_bytes), ""),
    ]


def memory_rows(record: RunRecord) -> list[Sequence[str]]:
    """The peak memory of every process."""
    first = record.dry_run_rank or 0
    return [
        (f"peak memory, rank {rank}", num_bytes(count), "")
        for rank, count in enumerate(record.peak_memory_bytes_per_rank, first)
    ]


def memory_row(record: RunRecord) -> tuple[str, str]:
    """The memory that limits the size of a run: of tensors on a GPU and in a dry run, of the process on a CPU."""
    if record.dry_run_rank is not None:
        return f"peak tensor memory, rank {record.dry_run_rank}", num_bytes(record.peak_tensor_bytes)
    if record.device != "cpu":
        return "peak GPU memory, largest rank", num_bytes(record.peak_tensor_bytes)
    return "peak memory, largest rank", num_bytes(record.peak_memory_bytes)


def best_metric_row(record: RunRecord) -> list[tuple[str, str]]:
    """The first metric of the test nodes, or else of the validation nodes, at the best epoch; none in a dry run."""
    if record.dry_run_rank is not None:
        return []
    name = _metric_names(record)[0]
    test, val = (record.metrics.get(f"{split}_{name}") for split in ("test", "val"))
    split, value = ("validation", val) if test is None and val is not None else ("test", test)
    how = "" if val is None else " (best validation)"
    return [(f"{split} {name} at epoch {record.best_epoch}{how}", _metric(name, value))]


def metric_rows(record: RunRecord) -> list[Sequence[str]]:
    """The metrics at the best epoch; none in a dry run."""
    rows: list[Sequence[str]] = []
    for number, name in enumerate(_metric_names(record) if record.dry_run_rank is None else []):
        train, val, test = (_metric(name, record.metrics.get(f"{split}_{name}")) for split in ("train", "val", "test"))
        rows.append((f"{name} at epoch {record.best_epoch}: train", train, ""))
        rows += [("  validation (best)" if number == 0 else "  validation", val, ""), ("  test", test, "")]
    return rows


def _metric_names(record: RunRecord) -> list[str]:
    return [name.removeprefix("val_") for name in record.metrics if name.startswith("val_")] or ["accuracy"]


def _metric(name: str, value: float | None) -> str:
    return percent(value) if name == "accuracy" else _number(value)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def comparison_table(record: RunRecord) -> str:
    """What was predicted for a run beside what was measured, and their ratio."""
    predicted = record.predicted
    assert predicted is not None
    planned_bytes, received_bytes = predicted["comm_bytes_per_epoch"], record.comm_bytes_per_epoch
    times = {"epoch": (predicted["epoch_time_ms"], record.epoch_time_ms["median"])}
    times |= {f"  {phase}": (ms, getattr(record, f"{phase}_time_ms")) for phase, ms in predicted["time_ms"].items()}
    sizes = {
        f"received per rank and epoch, {name}": (planned_bytes.get(name, 0), received_bytes.get(name, 0))
        for name in sorted({*planned_bytes, *received_bytes})
    }
    sizes["peak tensor memory"] = predicted["peak_tensor_bytes"], record.peak_tensor_bytes
    rows = [
        [title, show(expected), show(measured), f"{expected / measured:.2f}" if measured else "-"]
        for pairs, show in ((times, "{:.2f} ms".format), (sizes, num_bytes))
        for title, (expected, measured) in pairs.items()
    ]
    by = f"by hardware={predicted['hardware']}"
    by = by if len(by) <= MAX_HEADING else f"{by[: MAX_HEADING - 4]} ..."
    return format_table((by, "predicted", "measured", "ratio"), rows)
