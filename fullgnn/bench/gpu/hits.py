"""Which share of the sectors that a product reads the L2 cache has: ncu's count, where ncu is there and may count.

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
WIDTHS = (128, 41)


def command(ncu: str, arguments: dict[str, Any], module: str = "fullgnn.bench.gpu.hits") -> list[str]:
    """ncu over ``python -m module``, a program that takes ``arguments`` as JSON."""
    own = [sys.executable, "-m", module, json.dumps(arguments)]
    options = ["--clock-control", "none", "--profile-from-start", "off", "--metrics", METRIC, "--csv"]
    return [ncu, *options, *own]


def launches(output: str, cases: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """The hit rate of every launch, from ncu's table.

    Args:
        cases: kernel and width after each mark, in order.

    Raises:
        ValueError: there is no table in it, or not that many marks.
    """
    begin = output.find('"ID"')
    if begin < 0:
        raise ValueError(next((line for line in output.splitlines() if "ERROR" in line), "ncu printed no table"))
    found, case = [], -1
    for row in csv.DictReader(io.StringIO(output[begin:])):
        if row.get("Metric Name") != METRIC:
            continue
        if row["Kernel Name"].startswith("mark"):
            case += 1
        elif 0 <= case < len(cases):
            kernel, width = cases[case]
            rate = float(row["Metric Value"].replace(",", ""))
            found.append(
                {"kernel": kernel, "width": width, "launched": row["Kernel Name"][:60], "hit_rate_percent": rate}
            )
    if not found:
        raise ValueError("ncu counted no launch")
    return found


def run(task: Task, report: Report) -> None:
    def count() -> None:
        ncu = shutil.which("ncu")
        if ncu is None:
            report.put(["hits"], {"reason": "ncu is not on the PATH"})
            return
        arguments = {key: task.arguments[key] for key in ("graph", "scale")}
        try:
            found = counted(command(ncu, arguments), max(5.0, report.budget.left - 3))
            report.put(["hits"], {"metric": METRIC, "launches": found})
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
    output, errors = _finished(command, seconds)
    cases = json.loads(errors.rpartition("cases: ")[2].splitlines()[0]) if "cases: " in errors else []
    return launches(output, cases)


def _finished(command: list[str], seconds: float) -> tuple[str, str]:
    """stdout and stderr of a command, which is ended with all that it started if it takes longer."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        return process.communicate(timeout=seconds)
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
