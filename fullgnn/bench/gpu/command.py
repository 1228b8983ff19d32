"""Other programs that a job runs, and ``python -m fullgnn.bench`` among them, of whose table it keeps the rows."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

WARMUP = 6
"""Rounds of a benchmark that do not count: epochs are replayed as a CUDA graph from the fifth one on."""


def finished(
    command: list[str], seconds: float, grace_s: float = 0.0, folder: Path | None = None
) -> tuple[str, str, int]:
    """stdout, stderr and status of a command, which is ended with all that it started if it takes longer.

    Args:
        grace_s: seconds between an interrupt and the end, in which the command may write what it has.
        folder: the working directory; None: that of this process.

    Raises:
        TimeoutExpired: it took longer.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
        # A job in the background of a shell ignores interrupts, and so would the command.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL) if grace_s else None,
    )
    try:
        output, errors = process.communicate(timeout=max(0.1, seconds))
        return output, errors, process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=grace_s)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def run_or_raise(command: list[str], seconds: float) -> None:
    """Run a command for at most ``seconds``.

    Raises:
        RuntimeError: its status is not 0; the message has the last words that it wrote.
        TimeoutExpired: it took longer.
    """
    output, errors, status = finished(command, seconds)
    if status:
        raise RuntimeError(f"status {status}: {(errors or output).strip()[-300:]}")


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
