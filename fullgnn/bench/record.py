"""What a benchmark leaves behind: ``record.json`` and ``table.md`` in its folder."""

import shlex
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.environment import in_effect
from fullgnn.bench.harness import Outcome
from fullgnn.distributed import World
from fullgnn.storage.folder import write_text
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.machine import git_commit, hardware, versions
from fullgnn.telemetry.screen import format_table

COLUMNS = {
    "spmm": {"setup_s": "set-up s", "gflop_per_s": "GFLOP/s", "error": "error"},
    "epoch": {"setup_s": "set-up s", "loss_error": "loss error", "peak_mb": "peak MB"},
    "collectives": {"gb_per_s": "GB/s"},
    "sampling": {"m_edges_per_s": "M edges/s", "block_share": "toBlock", "redundant_share": "redundant"},
    "minibatch": {"last_loss": "loss"},
    "reorder": {"order_s": "order s", "edge_cut": "edge cut", "bandwidth": "bandwidth"},
}
"""By operation: key of ``details`` -> its head in the table."""

_PEERS = ("torch_geometric", "torch_sparse", "dgl")


def make_record(cfg: BenchConfig, world: World, outcome: Outcome) -> dict[str, Any]:
    """The content of ``record.json``, apart from ``load_before``."""
    return {
        "op": cfg.op,
        "command": shlex.join(["python", "-m", "fullgnn.bench", *sys.argv[1:]]),
        "config": asdict(cfg),
        "problem": outcome.problem,
        "measurements": [one.record() for one in outcome.measurements],
        "missing": [asdict(one) for one in outcome.missing],
        "world_size": world.size,
        "device": world.device.type,
        "backend": world.backend,
        "environment": in_effect(cfg, world.local_size),
        "hardware": hardware(world.device),
        "versions": versions(*_PEERS),
        "git_commit": git_commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def make_table(record: dict[str, Any]) -> str:
    """Markdown: one row for each measurement, and the list of what is missing."""
    measurements, columns = record["measurements"], COLUMNS[record["op"]]
    cases = list(measurements[0]["case"]) if measurements else []
    header = ["method", "processes x threads", *(case.replace("_", " ") for case in cases)]
    header += ["median ms", "p20", "p80", "rounds", "ratio", *columns.values()]
    rows = [
        [
            one["method"],
            f"{one['processes']} x {one['threads']}",
            *(_cell(one["case"][case]) for case in cases),
            *(f"{one[key]:.2f}" for key in ("median_ms", "p20_ms", "p80_ms")),
            str(len(one["times_ms"])),
            _cell(one["ratio"]),
            *(_cell(one["details"].get(key)) for key in columns),
        ]
        for one in measurements
    ]
    lines = [f"`{record['command']}`", ""]
    if record["problem"]:
        lines += [_words(record["problem"]), ""]
    where = f"{record['hardware']['gpu'] or record['hardware']['cpu']}, commit {record['git_commit']}"
    lines += [where, "", format_table(header, rows)]
    if measurements and measurements[0]["baseline"]:
        lines += ["", "A ratio is the median over the baseline's: above 1 is slower."]
        lines += [f"Baseline: {name}." for name in dict.fromkeys(one["baseline"] for one in measurements) if name]
    if record["missing"]:
        lines += ["", "Missing:", ""]
    for one in record["missing"]:
        case = f" ({_words(one['case'])})" if one["case"] else ""
        lines.append(f"- {one['method']}{case}: {one['reason']}")
    return "\n".join(lines) + "\n"


def write(folder: Path, record: dict[str, Any], table: str) -> None:
    """Write ``record.json`` and ``table.md`` to ``folder``."""
    write_text(folder / "record.json", strict_json(record, indent=2) + "\n")
    write_text(folder / "table.md", table)


def _words(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return "-" if value is None else str(value)
