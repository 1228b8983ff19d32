"""Count with ncu what each sparse product reads from DRAM, L2 and L1, and how often it hits a cache.

The operation starts ncu over this same file as a program (``python -m fullgnn.bench.gpu.hits``), which multiplies once
with each kernel and launches ``mark`` before each product, so that the launches between two marks belong to one kernel.
ncu leaves the clocks of the GPU as they are.
"""

import csv
import io
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.gpu.products import FIRST, LookalikeProduct
from fullgnn.bench.harness import Measurement, Method, Missing, Outcome, Results, attempt
from fullgnn.bench.process import finished
from fullgnn.distributed import World
from fullgnn.graph.lookalikes import LOOKALIKES, generate
from fullgnn.telemetry.timing import Times

METRIC = "lts__t_sector_hit_rate.pct"
METRICS = {
    METRIC: ("hit_rate_percent", 1.0),
    "l1tex__t_sector_hit_rate.pct": ("l1_hit_rate_percent", 1.0),
    "dram__bytes.sum.per_second": ("dram_gb_per_s", 1e-9),
    "lts__t_bytes.sum.per_second": ("l2_gb_per_s", 1e-9),
    "l1tex__t_bytes.sum.per_second": ("l1_gb_per_s", 1e-9),
    "gpu__time_duration.sum": ("duration_ms", 1e3),
}
"""By ncu's name, the key in the record and its unit, in bytes, seconds or per cent."""

WIDTHS = (128, 41)
_SCALE, _START_S = 0.1, 12.0
_UNIT = re.compile(r"([numKMGT]?)(?:byte|second|s)(?:/|$)")
_PREFIX = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def run(cfg: BenchConfig, world: World) -> Results:
    """A row for each launch; its time is that under ncu."""
    ncu, arguments = shutil.which("ncu"), {"graph": cfg.graph, "scale": cfg.scale or _SCALE}

    def count() -> list[Measurement]:
        if world.device.type != "cuda" or ncu is None:
            raise ValueError("there is no GPU" if world.device.type != "cuda" else "ncu is not on the PATH")
        seconds = max(5.0, cfg.limit_s - _START_S)
        return [measurement(**launch) for launch in counted(command(ncu, arguments, metrics=tuple(METRICS)), seconds)]

    rows, _, reason = attempt(count, ValueError)
    yield Outcome(rows or [], [Missing("ncu", reason)] if reason else [], arguments)


def measurement(kernel: str, width: int, launched: str, duration_ms: float | None = None, **counts: Any) -> Measurement:
    """The measurement of a launch."""
    method = Method(kernel, "kernel", None, case={"width": width, "launched": launched}, details=counts)
    return Measurement(method, [], Times([duration_ms or math.nan]), [])


def command(
    ncu: str, arguments: dict[str, Any], module: str = "fullgnn.bench.gpu.hits", metrics: tuple[str, ...] = (METRIC,)
) -> list[str]:
    """ncu over ``python -m module``, a program that takes ``arguments`` as JSON."""
    options = ["--clock-control", "none", "--profile-from-start", "off", "--metrics", ",".join(metrics), "--csv"]
    return [ncu, *options, sys.executable, "-m", module, json.dumps(arguments)]


def counted(command: list[str], seconds: float) -> list[dict[str, Any]]:
    """Run a ``command``, whose program prints its cases, and return what :func:`launches` finds in its output.

    Raises:
        ValueError: nothing was counted; the message says why.
    """
    try:
        output, errors, _ = finished(command, seconds)
    except subprocess.TimeoutExpired as error:
        raise ValueError("ncu was not ready in time") from error
    cases = json.loads(errors.rpartition("cases: ")[2].splitlines()[0]) if "cases: " in errors else []
    return launches(output, cases)


def launches(output: str, cases: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """The counts of every launch, from ncu's table, by their keys in the record; None where ncu printed no number.

    Args:
        cases: kernel and width after each mark, in order.

    Raises:
        ValueError: there is no table in it, or no launch after a mark.
    """
    begin = output.find('"ID"')
    if begin < 0:
        raise ValueError(next((line for line in output.splitlines() if "ERROR" in line), "ncu printed no table"))
    counts: dict[str, dict[str, Any]] = {}  # by the launch
    marks: set[str] = set()
    for row in csv.DictReader(io.StringIO(output[begin:])):
        key, unit = METRICS.get(row.get("Metric Name") or "", ("", 0.0))
        if key and row["Kernel Name"].startswith("mark"):
            marks.add(row["ID"])
        elif key and 0 < len(marks) <= len(cases):
            kernel, width = cases[len(marks) - 1]
            about = {"kernel": kernel, "width": width, "launched": row["Kernel Name"][:60]}
            prefix = _UNIT.match(row.get("Metric Unit") or "")
            value: float | None = None
            with suppress(ValueError):  # there may be no number
                value = float(row["Metric Value"].replace(",", "")) * (_PREFIX[prefix[1]] if prefix else 1.0) * unit
            counts.setdefault(row["ID"], about)[key] = value
    if not counts:
        raise ValueError("ncu counted no launch")
    return list(counts.values())


def watched(cases: Iterable[tuple[str, int, Callable[[], object]]]) -> None:
    """Have ncu count one call of each case after a first call that compiles; then print the cases to stderr.

    Args:
        cases: kernel, width, and the product, which is called.
    """
    from fullgnn.bench.gpu._gather_gpu import mark  # imports Triton

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


def products(graph: str, scale: float) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """One product of each kernel and width."""
    device = torch.device("cuda", 0)
    made = generate(LOOKALIKES[graph], scale, 0, device)
    block = made.csr(made.perm)
    del made
    for contestant in FIRST:
        if contestant.missing(device) is None:
            product = LookalikeProduct(contestant, block, device)
            for width in WIDTHS:
                yield contestant.name, width, partial(product.launch, width)


if __name__ == "__main__":
    watched(products(**json.loads(sys.argv[1])))
