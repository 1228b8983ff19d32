"""What a product reads from DRAM, the L2 and the L1, and how often it hits, as ncu counts it, where ncu may count.

The worker starts ncu over this same file as a program (``python -m fullgnn.bench.gpu.hits``), which multiplies once
with each kernel, and before each launches ``mark``: so the launches between two marks are one kernel's. Clocks are left
as they are.
"""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
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
_FRACTIONS = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_SECONDS = {f"{prefix}{unit}": scale for prefix, scale in _FRACTIONS.items() for unit in ("second", "s")}
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def command(
    ncu: str, arguments: dict[str, Any], module: str = "fullgnn.bench.gpu.hits", metrics: tuple[str, ...] = (METRIC,)
) -> list[str]:
    """ncu over ``python -m module``, a program that takes ``arguments`` as JSON."""
    own = [sys.executable, "-m", module, json.dumps(arguments)]
    options = ["--clock-control", "none", "--profile-from-start", "off", "--metrics", ",".join(metrics), "--csv"]
    return [ncu, *options, *own]


def launches(output: str, cases: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """The counts of every launch, from ncu's table: bytes, seconds and per cent.

    Args:
        cases: kernel and width after each mark, in order.

    Raises:
        ValueError: there is no table in it, or not that many marks.
    """
    begin = output.find('"ID"')
    if begin < 0:
        raise ValueError(next((line for line in output.splitlines() if "ERROR" in line), "ncu printed no table"))
    found: dict[str, dict[str, Any]] = {}
    case, marks = -1, set[str]()
    for row in csv.DictReader(io.StringIO(output[begin:])):
        launch, key = row["ID"], METRICS.get(row.get("Metric Name") or "")
        if key is None:
            continue
        if row["Kernel Name"].startswith("mark"):
            case += launch not in marks
            marks.add(launch)
        elif 0 <= case < len(cases):
            kernel, width = cases[case]
            one = found.setdefault(launch, {"kernel": kernel, "width": width, "launched": row["Kernel Name"][:60]})
            one[key] = _value(row["Metric Value"], row.get("Metric Unit") or "")
    if not found:
        raise ValueError("ncu counted no launch")
    return list(found.values())


def _value(text: str, unit: str) -> float | None:
    """A number in bytes, seconds or per cent, whatever multiple of them ncu chose; None where it has none."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    if unit in _SECONDS:
        return number * _SECONDS[unit]
    name = unit.partition("/")[0]
    return number * _PREFIXES.get(name[:1], 1.0) if name.endswith("byte") else number


def run(task: Task, report: Report) -> None:
    """Arguments of the task: ``graph`` and ``scale``."""

    def count() -> None:
        ncu = shutil.which("ncu")
        if ncu is None:
            report.put(["hits"], {"reason": "ncu is not on the PATH"})
            return
        arguments = {key: task.arguments[key] for key in ("graph", "scale")}
        try:
            found = counted(command(ncu, arguments, metrics=tuple(METRICS)), max(5.0, report.budget.left - 3))
            report.put(["hits"], {"metrics": METRICS, "launches": found})
        except subprocess.TimeoutExpired:
            report.put(["hits"], {"reason": "ncu was not ready in time"})
        except ValueError as error:
            report.put(["hits"], {"reason": str(error)})

    report.item("ncu", count, limit_s=report.budget.left + 1)


def counted(command: list[str], seconds: float) -> list[dict[str, Any]]:
    """What :func:`launches` finds in the output of a ``command``, whose program prints its cases.

    Raises:
        ValueError: nothing was counted; it says why.
        TimeoutExpired: it took longer.
    """
    output, errors, _ = finished(command, seconds)
    cases = json.loads(errors.rpartition("cases: ")[2].splitlines()[0]) if "cases: " in errors else []
    return launches(output, cases)


def finished(command: list[str], seconds: float) -> tuple[str, str, int]:
    """stdout, stderr and status of a command, which is ended with all that it started if it takes longer.

    Raises:
        TimeoutExpired: it took longer.
    """
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        return *process.communicate(timeout=max(0.1, seconds)), process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise


def program(arguments: dict[str, Any]) -> None:
    """What ncu watches: one product of each kernel and width, a mark before each."""
    import torch

    from fullgnn.bench.gpu._gather_gpu import mark
    from fullgnn.bench.gpu.contestants import FIRST
    from fullgnn.bench.gpu.lookalikes import LOOKALIKES, generate, local_csr
    from fullgnn.bench.gpu.timing import rotated

    device = torch.device("cuda", 0)
    marked = torch.empty(1, device=device)
    graph = generate(LOOKALIKES[arguments["graph"]], arguments["scale"], 0, device)
    block = local_csr(graph.csr(graph.perm))
    del graph
    mark[(1,)](marked)
    cases = []
    for one in FIRST:
        if one.missing(device) is not None:
            continue
        kernel = one.make()
        prepared = kernel.prepare(block, torch.float32)
        for width in WIDTHS:
            x, *_ = rotated(block.num_cols, width, device)
            out = torch.empty(block.num_rows, width, device=device)
            kernel.spmm(prepared, x, out, accumulate=False)
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
            mark[(1,)](marked)
            kernel.spmm(prepared, x, out, accumulate=False)
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
            cases.append((one.name, width))
        del prepared
    print(f"cases: {json.dumps(cases)}", file=sys.stderr)


if __name__ == "__main__":
    program(json.loads(sys.argv[1]))
