"""What a product reads from DRAM, L2 and L1, and how often it hits a cache, as ncu counts it, where ncu may count.

The job starts ncu over this same file as a program (``python -m fullgnn.bench.gpu.hits``), which multiplies once with
each kernel and launches ``mark`` before each product, so that the launches between two marks belong to one kernel.
Clocks are left as they are.
"""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from fullgnn.bench.gpu.worker import Report, Task

METRIC = "lts__t_sector_hit_rate.pct"
METRICS = {
    METRIC: "hit_rate_percent",
    "l1tex__t_sector_hit_rate.pct": "l1_hit_rate_percent",
    "dram__bytes.sum.per_second": "dram_bytes_per_second",
    "lts__t_bytes.sum.per_second": "l2_bytes_per_second",
    "l1tex__t_bytes.sum.per_second": "l1_bytes_per_second",
    "gpu__time_duration.sum": "duration_seconds",
}
"""By ncu's name, the key in the record."""

WIDTHS = (128, 41)
_UNIT = re.compile(r"([numKMGT]?)(?:byte|second|s)(?:/|$)")
_PREFIX = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def run(task: Task, report: Report) -> None:
    """Arguments of the task: ``graph`` and ``scale``."""

    def count() -> None:
        ncu = shutil.which("ncu")
        if ncu is None:
            report.put(["hits"], {"reason": "ncu is not on the PATH"})
            return
        try:
            found = counted(command(ncu, task.arguments, metrics=tuple(METRICS)), max(5.0, report.budget.left - 3))
            report.put(["hits"], {"metrics": METRICS, "launches": found})
        except subprocess.TimeoutExpired:
            report.put(["hits"], {"reason": "ncu was not ready in time"})
        except ValueError as error:
            report.put(["hits"], {"reason": str(error)})

    report.item("ncu", count, limit_s=report.budget.left + 1)


def command(
    ncu: str, arguments: dict[str, Any], module: str = "fullgnn.bench.gpu.hits", metrics: tuple[str, ...] = (METRIC,)
) -> list[str]:
    """ncu over ``python -m module``, a program that takes ``arguments`` as JSON."""
    options = ["--clock-control", "none", "--profile-from-start", "off", "--metrics", ",".join(metrics), "--csv"]
    return [ncu, *options, sys.executable, "-m", module, json.dumps(arguments)]


def counted(command: list[str], seconds: float) -> list[dict[str, Any]]:
    """What :func:`launches` finds in the output of a ``command``, whose program prints its cases.

    Raises:
        ValueError: nothing was counted; the message says why.
        TimeoutExpired: it took longer.
    """
    output, errors, _ = finished(command, seconds)
    cases = json.loads(errors.rpartition("cases: ")[2].splitlines()[0]) if "cases: " in errors else []
    return launches(output, cases)


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
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    if grace_s:  # a job in the background of a shell ignores interrupts, and so would the command
        pipes["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes)
    try:
        return *process.communicate(timeout=max(0.1, seconds)), process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=grace_s)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def launches(output: str, cases: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """The counts of every launch, from ncu's table: bytes, seconds and per cent.

    Args:
        cases: kernel and width after each mark, in order.

    Raises:
        ValueError: there is no table in it, or no launch after a mark.
    """
    begin = output.find('"ID"')
    if begin < 0:
        raise ValueError(next((line for line in output.splitlines() if "ERROR" in line), "ncu printed no table"))
    found: dict[str, dict[str, Any]] = {}
    marks: set[str] = set()
    for row in csv.DictReader(io.StringIO(output[begin:])):
        key = METRICS.get(row.get("Metric Name") or "")
        if key is not None and row["Kernel Name"].startswith("mark"):
            marks.add(row["ID"])
        elif key is not None and 0 < len(marks) <= len(cases):
            kernel, width = cases[len(marks) - 1]
            about = {"kernel": kernel, "width": width, "launched": row["Kernel Name"][:60]}
            found.setdefault(row["ID"], about)[key] = _value(row["Metric Value"], row.get("Metric Unit") or "")
    if not found:
        raise ValueError("ncu counted no launch")
    return list(found.values())


def _value(text: str, unit: str) -> float | None:
    """A number in bytes, seconds or per cent, whatever multiple of them ncu chose; None where it has none."""
    prefix = _UNIT.match(unit)
    try:
        return float(text.replace(",", "")) * (_PREFIX[prefix[1]] if prefix else 1.0)
    except ValueError:
        return None


def watched(cases: Iterable[tuple[str, int, Callable[[], object]]]) -> None:
    """Have ncu count one call of each case, kernel, width and product, after a first call that compiles; then print
    the cases."""
    import torch

    from fullgnn.bench.gpu._gather_gpu import mark

    marked, ran = torch.empty(1, device="cuda"), []
    mark[(1,)](marked)
    for kernel, width, multiply in cases:
        multiply()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        mark[(1,)](marked)
        multiply()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        ran.append((kernel, width))
    print(f"cases: {json.dumps(ran)}", file=sys.stderr)


def products(graph: str, scale: float) -> Iterable[tuple[str, int, Callable[[], object]]]:
    """One product of each kernel and width."""
    import torch

    from fullgnn.bench.gpu.contestants import FIRST
    from fullgnn.bench.gpu.lookalikes import LOOKALIKES, generate
    from fullgnn.bench.gpu.timing import rotated

    device = torch.device("cuda", 0)
    made = generate(LOOKALIKES[graph], scale, 0, device)
    block = made.csr(made.perm)
    del made
    for one in FIRST:
        if one.missing(device) is None:
            kernel = one.make()
            prepared = kernel.prepare(block, torch.float32)
            for width in WIDTHS:
                x, out = rotated(block.num_cols, width, device)[0], torch.empty(block.num_rows, width, device=device)
                yield one.name, width, partial(kernel.spmm, prepared, x, out, accumulate=False)
            del prepared


if __name__ == "__main__":
    watched(products(**json.loads(sys.argv[1])))
