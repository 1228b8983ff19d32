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
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

from fullgnn.errors import FullGNNError, UnsupportedError
from fullgnn.graph.lookalikes import LOOKALIKES
from fullgnn.kernels.support.tuning import read_tuning

MINUTES = {"checks": 2.5, "products": 9.3, "epochs": 9.3, "models": 8.0, "ranks": 8.0}
"""Time that each part takes at most, in the order in which they make sense."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The arguments of the command line, checked."""
    formatter, times = argparse.RawTextHelpFormatter, ", ".join(f"{name} {time:g}" for name, time in MINUTES.items())
    parser = argparse.ArgumentParser(prog="gpu_bench", description=__doc__, formatter_class=formatter)
    parser.add_argument("--part", nargs="+", action="extend", choices=[*MINUTES, "all"], help="default: all")
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
    options.part = [name for name in MINUTES if name in asked or "all" in asked]
    return options


def check_options(options: argparse.Namespace) -> None:
    """Refuse what cannot be measured, or read, before anything begins.

    Raises:
        FullGNNError: Hydra or a GPU is missing, a toy run was not asked for properly, or the tuning file cannot be
            read.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if options.toy and not interpreted:
        raise UnsupportedError("--toy runs Triton's kernels on the CPU: set TRITON_INTERPRET=1")
    if not options.toy and interpreted:
        raise UnsupportedError("TRITON_INTERPRET=1 measures nothing: unset it, or give --toy")
    if not options.toy and not torch.cuda.is_available():
        raise UnsupportedError("no GPU is visible here, and there is nothing to measure without one")
    if find_spec("hydra") is None:
        raise UnsupportedError("hydra-core is not installed: pip install hydra-core")
    if options.tuning is not None:
        read_tuning(options.tuning)


def main() -> None:
    """Run the command line; a user error ends it with one line and status 1."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = parse(sys.argv[1:])
    try:
        check_options(options)
        from fullgnn.bench.gpu.parts import run  # imports Hydra

        run(options)
    except FullGNNError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
