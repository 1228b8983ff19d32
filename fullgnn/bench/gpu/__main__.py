"""Check, measure and compare on this machine's GPU, in minutes, with one command. Read downward.

    ./launch/gpu_bench                      the whole of it, 8 minutes
    ./launch/gpu_bench --minutes 20 --out results/h200

Without a GPU it refuses; TRITON_INTERPRET=1 ./launch/gpu_bench --toy runs all of it on tiny graphs, and times nothing.
"""

import argparse
import os
import shlex
import shutil
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fullgnn.bench.gpu import checks, worker
from fullgnn.bench.gpu.budget import Budget
from fullgnn.bench.gpu.contestants import AUTO, CONTESTANTS
from fullgnn.bench.gpu.lookalikes import LOOKALIKES, TOYS
from fullgnn.bench.gpu.page import make_headline
from fullgnn.bench.gpu.record import NOT_MEASURED, Record
from fullgnn.bench.gpu.supervise import Supervisor
from fullgnn.bench.gpu.worker import Task
from fullgnn.errors import FullGNNError, UnsupportedError
from fullgnn.record import git_commit, hardware, versions

_MARGIN_S = 6.0  # for the start of Python and the end
_CHECKS_SHARE, _CHECKS_MOST_S = 0.3, 110.0
_MOST_CHECKERS = 24  # each holds a context of about half a GB on the GPU
_RATES_MOST_S = 50.0
_FIRST_GRAPH_SHARE = 0.42  # of what is left then; the others share the rest
_HITS_S = 45.0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="time for all of it (8)")
    parser.add_argument("--out", type=Path, default=Path("gpu_bench"), help="folder of the results (gpu_bench)")
    parser.add_argument("--scale", type=float, help="size of the graphs; default: the largest that fits the time")
    parser.add_argument("--graphs", nargs="+", choices=LOOKALIKES, default=list(LOOKALIKES), help="default: all")
    parser.add_argument("--toy", action="store_true", help="tiny graphs on the CPU, with TRITON_INTERPRET=1")
    return parser.parse_args(arguments)


def check_device(toy: bool) -> None:
    """Raises:
    UnsupportedError: there is no GPU, or a toy run was not asked for properly.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if toy and not interpreted:
        raise UnsupportedError("--toy runs Triton's kernels on the CPU: set TRITON_INTERPRET=1")
    if not toy and interpreted:
        raise UnsupportedError("TRITON_INTERPRET=1 measures nothing: unset it, or give --toy")
    if not toy and not torch.cuda.is_available():
        raise UnsupportedError("no GPU is visible here, and there is nothing to measure without one")


def run(options: argparse.Namespace) -> None:
    """All jobs, the most wanted first, and the record after every result."""
    budget = Budget(60 * options.minutes - _MARGIN_S)
    record = Record(options.out, measured=not options.toy)

    def say(line: str) -> None:
        print(f"[{budget.left:4.0f} s left] {line}", flush=True)

    record.tree |= {"finished": False, "run": _about(options), "items": []}
    record.write()
    supervisor = Supervisor(record, budget, say)
    scratch = tempfile.mkdtemp(prefix="fullgnn-")
    if not os.access(Path.home(), os.W_OK):  # where Triton would keep what it compiles
        os.environ.setdefault("TRITON_CACHE_DIR", f"{scratch}/triton")
    try:
        _check(supervisor, budget, options.toy)
        supervisor.run({"rates": Task("fullgnn.bench.gpu.rates", min(_RATES_MOST_S, budget.left), options.toy)})
        rates = record.tree.get("rates", {}).get("gather", [])
        _graphs(supervisor, budget, options, {"scale": options.scale, "rates": rates, "scratch": scratch})
        _hits(supervisor, record, budget, options)
        record.tree["finished"] = True
    finally:
        supervisor.stop()
        shutil.rmtree(scratch, ignore_errors=True)
        record.put(["run", "elapsed_s"], round(budget.elapsed, 1))
        record.write()
    if not options.toy:
        print(make_headline(record.tree), flush=True)
    say(f"{options.out / 'summary.md'} and {options.out / 'record.json'} are written")


def _check(supervisor: Supervisor, budget: Budget, toy: bool) -> None:
    """The kernels side by side in as many processes as there are cores: what takes long is that they are compiled. What
    is compiled stays on disk for the products."""
    seconds = budget.part(_CHECKS_SHARE, most_s=_CHECKS_MOST_S).seconds
    names = [name for name, one in CONTESTANTS.items() if not (toy and one == AUTO)]  # it times kernels on a GPU
    cases = [(name, width) for width in (checks.TOY_WIDTHS if toy else checks.WIDTHS) for name in names]
    num_workers = 1 if toy else max(1, min(len(cases), len(os.sched_getaffinity(0)) - 1, _MOST_CHECKERS))
    jobs = {
        f"checks {turn + 1} of {num_workers}": Task(
            "fullgnn.bench.gpu.checks", seconds, toy, {"cases": cases[turn::num_workers]}
        )
        for turn in range(num_workers)
    }
    supervisor.run(jobs, parallel=num_workers)


def _graphs(supervisor: Supervisor, budget: Budget, options: argparse.Namespace, arguments: dict[str, Any]) -> None:
    names = list(TOYS) if options.toy else options.graphs
    for turn, name in enumerate(names):
        remaining = len(names) - turn
        share = 1.0 if remaining == 1 else max(_FIRST_GRAPH_SHARE if turn == 0 else 0.0, 1 / remaining)
        seconds = budget.part(share, reserved_s=0.0 if options.toy else _HITS_S).seconds
        supervisor.run({name: Task("fullgnn.bench.gpu.graph_job", seconds, options.toy, {**arguments, "graph": name})})


def _hits(supervisor: Supervisor, record: Record, budget: Budget, options: argparse.Namespace) -> None:
    if options.toy:
        record.put(["hits"], {"reason": NOT_MEASURED})
        return
    name = options.graphs[0]
    scale = record.tree.get("graphs", {}).get(name, {}).get("scale", 0.1)
    supervisor.run({"hits": Task("fullgnn.bench.gpu.hits", budget.left, False, {"graph": name, "scale": scale})})


def _about(options: argparse.Namespace) -> dict[str, Any]:
    """Of the machine, what is known without its GPU, which a worker describes."""
    machine = hardware(torch.device("cpu"))
    return {
        "command": shlex.join(["./launch/gpu_bench", *sys.argv[1:]]),
        "times": NOT_MEASURED if options.toy else "measured, medians",
        "minutes": options.minutes,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": machine["cpu"],
        "num_cores": machine["num_cores"],
        "num_gpus": torch.cuda.device_count(),
        "git_commit": git_commit(),
        "versions": versions("triton", "torch_geometric"),
    }


def main() -> None:
    """Run the command line, or be a worker of one."""
    if sys.argv[1:2] == ["--worker"]:
        worker.main(sys.argv[2], int(sys.argv[3]))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = parse(sys.argv[1:])
    try:
        check_device(options.toy)
        run(options)
    except FullGNNError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
