"""Check, measure and compare on this machine's GPUs, with five commands of minutes.

    ./launch/gpu_bench --part checks --out h200
    ./launch/gpu_bench --part products --out h200
    ./launch/gpu_bench --part epochs --out h200 --tuning h200/tuning.yaml
    ./launch/gpu_bench --part models --out h200
    ./launch/gpu_bench --part ranks --out h200

They take 2.5, 9.3, 9.3, 8 and 8 minutes at most; the second leaves h200/tuning.yaml. Without --part all five run.
Without a GPU it refuses; TRITON_INTERPRET=1 ./launch/gpu_bench --toy runs all of it on tiny graphs, and times nothing.
"""

import argparse
import os
import shlex
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fullgnn.bench.gpu.items import Runner
from fullgnn.bench.gpu.page import make_headline
from fullgnn.bench.gpu.parts import MINUTES, PARTS, Part
from fullgnn.bench.gpu.record import NOT_MEASURED, Record
from fullgnn.bench.gpu.tunables import TUNING_FILE
from fullgnn.bench.gpu.worker import Budget
from fullgnn.errors import FullGNNError, UnsupportedError
from fullgnn.graph.lookalikes import LOOKALIKES, TOYS
from fullgnn.kernels.support.tuning import read_tuning
from fullgnn.storage.folder import temporary_folder
from fullgnn.telemetry.machine import git_commit, hardware, versions

_ENVIRONMENT = {"TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment of all items, where the user has set no other values. Collectives then stay on this machine."""

_MARGIN_S = 6.0  # for the start of Python and the end
_TOY_MINUTES = 10.0  # that it never needs, however busy the machine is


def parse(arguments: list[str]) -> argparse.Namespace:
    """The arguments of the command line, checked."""
    parser = argparse.ArgumentParser(
        prog="gpu_bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    times = ", ".join(f"{name} {minutes:g}" for name, minutes in MINUTES.items())
    parser.add_argument("--part", nargs="+", action="extend", choices=[*PARTS, "all"], help="default: all")
    parser.add_argument("--minutes", type=float, help=f"time for each part ({times})")
    parser.add_argument("--out", type=Path, default=Path("gpu_bench"), help="folder of the results (gpu_bench)")
    parser.add_argument("--scale", type=float, help="size of the graphs; default: the largest that fits the time")
    parser.add_argument("--graphs", nargs="+", choices=LOOKALIKES, default=list(LOOKALIKES), help="default: all")
    parser.add_argument(
        "--tuning", type=Path, help="constants for the kernels in epochs; default: what products found in this command"
    )
    parser.add_argument("--toy", action="store_true", help="tiny graphs on the CPU, with TRITON_INTERPRET=1")
    options = parser.parse_args(arguments)
    asked = options.part or ["all"]
    options.part = [name for name in PARTS if name in asked or "all" in asked]
    return options


def check_options(options: argparse.Namespace) -> None:
    """Refuse what cannot be measured, or read, before anything begins.

    Raises:
        FullGNNError: there is no GPU, a toy run was not asked for properly, or the tuning file cannot be read.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if options.toy and not interpreted:
        raise UnsupportedError("--toy runs Triton's kernels on the CPU: set TRITON_INTERPRET=1")
    if not options.toy and interpreted:
        raise UnsupportedError("TRITON_INTERPRET=1 measures nothing: unset it, or give --toy")
    if not options.toy and not torch.cuda.is_available():
        raise UnsupportedError("no GPU is visible here, and there is nothing to measure without one")
    if options.tuning is not None:
        read_tuning(options.tuning)


def run(options: argparse.Namespace) -> None:
    """The parts that were asked for, each with a budget and a record of its own."""
    tuning = None if options.tuning is None else str(options.tuning.resolve())
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    with temporary_folder() as scratch:
        if not os.access(Path.home(), os.W_OK):  # where Triton would keep what it compiles
            os.environ.setdefault("TRITON_CACHE_DIR", f"{scratch}/triton")
        for name in options.part:
            run_part(name, options, scratch / name, tuning)
            if name == "products" and tuning is None:
                tuning = str((options.out / TUNING_FILE).resolve())


def run_part(name: str, options: argparse.Namespace, scratch: Path, tuning: str | None) -> None:
    """One part: its items, the most wanted first, and its record after every result."""
    minutes = options.minutes or (_TOY_MINUTES if options.toy else MINUTES[name])
    budget = Budget(60 * minutes - _MARGIN_S)
    record = Record(options.out, name, measured=not options.toy)

    def say(line: str) -> None:
        print(f"[{name}, {budget.left:4.0f} s left] {line}", flush=True)

    tuning = tuning if name == "epochs" else None
    record.tree |= {"finished": False, "run": _about(name, options, minutes, tuning), "items": []}
    record.write()
    runner = Runner(record, budget, say, tuning)
    graphs = list(TOYS) if options.toy else options.graphs
    part = Part(runner, scratch, options.toy, graphs, options.scale)
    scratch.mkdir(parents=True)
    try:
        for items in PARTS[name](part):
            runner.run(items, part.parallel)
        record.tree["finished"] = True
    finally:
        record.put(["run", "elapsed_s"], round(budget.elapsed, 1))
        record.write()
    if not options.toy:
        print(make_headline(record.tree), flush=True)
    say(f"{options.out / name}.md and {name}.json are written")


def _about(name: str, options: argparse.Namespace, minutes: float, tuning: str | None) -> dict[str, Any]:
    """What was asked for, and the machine as far as it is known without its GPU, which an item describes."""
    machine = hardware(torch.device("cpu"))
    del machine["gpu"]
    return {
        "part": name,
        "command": shlex.join(["./launch/gpu_bench", *sys.argv[1:]]),
        "times": NOT_MEASURED if options.toy else "measured, medians",
        "minutes": minutes,
        "tuning": "none given" if tuning is None else Path(tuning).read_text(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine,
        "num_gpus": torch.cuda.device_count(),
        "git_commit": git_commit(),
        "versions": versions("triton", "torch_geometric"),
    }


def main() -> None:
    """Run the command line; a user error ends it with one line and status 1."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = parse(sys.argv[1:])
    try:
        check_options(options)
        run(options)
    except FullGNNError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
