"""What a benchmark leaves behind: ``record.json`` and ``table.md`` in its folder."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.harness import Outcome
from fullgnn.bench.process import in_effect
from fullgnn.distributed import World
from fullgnn.storage.folder import write_text, writing_to
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.machine import git_commit, gpu_facts, hardware, versions
from fullgnn.telemetry.screen import format_table

COLUMNS = {
    "spmm": {"setup_s": "set-up s", "gflop_per_s": "GFLOP/s", "error": "error"},
    "epoch": {"setup_s": "set-up s", "loss_error": "loss error", "last_loss": "loss", "peak_mb": "peak MB",
              "kernel": "kernel", "cuda_graph": "CUDA graph"},
    "collectives": {"gb_per_s": "GB/s"},
    "sampling": {"m_edges_per_s": "M edges/s", "block_share": "toBlock", "redundant_share": "redundant"},
    "minibatch": {"last_loss": "loss"},
    "reorder": {"order_s": "order s", "edge_cut": "edge cut", "bandwidth": "bandwidth"},
    "rates": {"gb_per_s": "GB/s", "index_select_gb_per_s": "index_select GB/s", "tflop_per_s": "TFLOP/s"},
    "products": {"error": "error", "correct": "correct", "gathered_gb_per_s": "GB/s gathered",
                 "of_gather_rate_per_s": "of gather rate", "x_fits_l2": "X in L2", "setup_s": "set-up s",
                 "beside_mb": "MB beside the CSR"},
    "sweep": {"correct": "correct"},
    "hits": {"hit_rate_percent": "L2 hits, %", "l1_hit_rate_percent": "L1 hits, %", "dram_gb_per_s": "DRAM GB/s",
             "l2_gb_per_s": "L2 GB/s", "l1_gb_per_s": "L1 GB/s"},
}  # fmt: skip
"""By operation: key of ``details`` -> its head in the table, where any method has it."""

NUMBERS = {"median_ms": "median ms", "p20_ms": "p20", "p80_ms": "p80", "rounds": "rounds", "ratio": "ratio"}
"""Key of a measurement -> its head in every table."""

_PEERS = ("triton", "torch_geometric", "torch_sparse", "dgl")


def keep(cfg: BenchConfig, world: World, outcome: Outcome, load: float | None = None) -> str:
    """Write what there is so far to the folder of ``cfg``, and return it as a table.

    Args:
        load: of the machine before the benchmark, where it was so high that times will not repeat.
    """
    record = {
        "op": cfg.op,
        "command": shlex.join(["python", "-m", "fullgnn.bench", *sys.argv[1:]]),
        "config": asdict(cfg),
        "problem": outcome.problem or None,
        "measurements": [measurement.record() for measurement in outcome.measurements],
        "checks": [asdict(check) for check in outcome.checks],
        "missing": [asdict(missing) for missing in outcome.missing],
        "world_size": world.size,
        "device": world.device.type,
        "backend": world.backend,
        "environment": in_effect(cfg, world.local_size),
        "hardware": hardware(world.device),
        "gpu": gpu_facts(world.device) if world.device.type == "cuda" else {},
        "versions": versions(*_PEERS),
        "git_commit": git_commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_before": load,
    }
    table = make_table(record)
    with writing_to("out", cfg.out):
        write_text(Path(cfg.out) / "record.json", strict_json(record, indent=2) + "\n")
        write_text(Path(cfg.out) / "table.md", table)
    return table


def make_table(record: dict[str, Any]) -> str:
    """Markdown: the command, the problem and the machine, one row for each measurement, and what is missing."""
    where = f"{record['hardware']['gpu'] or record['hardware']['cpu']}, commit {record['git_commit']}"
    parts = [f"`{record['command']}`", words(record["problem"] or {}), where, results([record])]
    cases = [f" ({words(missing['case'])})" if missing["case"] else "" for missing in record["missing"]]
    lines = [f"- {absent['method']}{case}: {absent['reason']}" for absent, case in zip(record["missing"], cases)]
    parts += ["Missing:", "\n".join(lines)] if lines else []
    return "\n\n".join(filter(None, parts)) + "\n"


def results(records: list[dict[str, Any]]) -> str:
    """Markdown of what records of one operation have measured and checked.

    Where several have measured the same methods, on different numbers of processes, the table has the speed-up over the
    first.
    """
    checks = [check for record in records for check in record["checks"]]
    measured = [row for record in records for row in record["measurements"]]
    columns, first = COLUMNS.get(records[0]["op"], {}), {row["method"]: row["median_ms"] for row in reversed(measured)}
    shown = [
        {"method": row["method"], "processes x threads": f"{row['processes']} x {row['threads']}"}
        | {case.replace("_", " "): value for case, value in row["case"].items()}
        | {head: row[key] for key, head in NUMBERS.items()}
        | {head: row["details"].get(key) for key, head in columns.items()}
        | ({"speed-up": ratio(first[row["method"]], row["median_ms"])} if len(records) > 1 else {})
        for row in measured
    ]
    parts = [f"{sum(check['passed'] for check in checks)} of {len(checks)} passed." if checks else ""]
    parts += [table(checks), table(shown)]
    if names := dict.fromkeys(row["baseline"] for row in measured if row["baseline"]):
        lines = ["A ratio is the median over the baseline's: above 1 is slower.", *(f"Baseline: {n}." for n in names)]
        parts.append("\n".join(lines))
    for row in measured:
        if launches := row["details"].get("launches"):  # what the GPU did in an epoch, see telemetry/launches.py
            case = f" ({words(row['case'])})" if row["case"] else ""
            parts.append(f"One epoch of {row['method']}{case}: {cell(launches['busy_ms'])} ms at work and "
                         f"{cell(launches['idle_ms'])} ms idle.")  # fmt: skip
            parts += [table(launches[key][:15]) for key in ("kernels", "gaps")]
    return "\n\n".join(filter(None, parts))


def table(rows: list[dict[str, Any]]) -> str:
    """A table in Markdown with a column for each key for which any row has a value; empty: there are no rows."""
    filled = {key for row in rows for key, value in row.items() if value not in (None, "")}
    heads = [key for key in dict.fromkeys(key for row in rows for key in row) if key in filled]
    return format_table(heads, [[cell(row.get(key)) for key in heads] for row in rows]) if rows else ""


def words(values: Mapping[str, Any]) -> str:
    """The values with their names, in a sentence."""
    return ", ".join(f"{key} {cell(value) if isinstance(value, float) else value}" for key, value in values.items())


def ratio(value: Any, base: Any) -> float | None:
    """One number over another; None if there are words in the place of one."""
    return value / base if all(isinstance(number, (int, float)) for number in (value, base)) else None


def cell(value: Any) -> str:
    """A value as a cell of a table."""
    if isinstance(value, float):
        return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return "-" if value in (None, "") else str(value)
