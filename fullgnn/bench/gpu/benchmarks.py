"""Run ``python -m fullgnn.bench`` as a user does, and keep the rows of its table."""

import json
import sys
from pathlib import Path
from typing import Any

from fullgnn.bench.gpu.command import run_or_raise

WARMUP = 6
"""Rounds that do not count: epochs are replayed as a CUDA graph from the fifth one on."""


def bench_command(keys: list[str], device: str, out: Path) -> list[str]:
    """``python -m fullgnn.bench`` with ``keys``; what it generates is kept beside ``out``."""
    own = [f"device={device}", f"warmup={WARMUP}", f"cache_dir={out.parent / 'bench-cache'}", f"out={out}"]
    return [sys.executable, "-m", "fullgnn.bench", *own, *keys]


def measured(keys: list[str], device: str, out: Path, seconds: float) -> list[dict[str, Any]]:
    """Run the benchmark for at most ``seconds``: a row for each method, and one with a reason for each that is missing.

    Raises:
        RuntimeError, TimeoutExpired: it failed, or took longer.
    """
    run_or_raise(bench_command(keys, device, out), seconds)
    return rows(json.loads((out / "record.json").read_text()))


def rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a ``record.json`` of the benchmark that a page shows."""
    found = [
        {
            "method": one["method"],
            "ranks": one["processes"],
            **{f"{name}_ms": one[f"{name}_ms"] for name in ("median", "p20", "p80")},
            "ratio": one["ratio"],
            **{name: one["details"][name] for name in ("loss_error", "last_loss", "setup_s") if name in one["details"]},
        }
        for one in record["measurements"]
    ]
    return found + [{"method": one["method"], "reason": one["reason"]} for one in record["missing"]]
