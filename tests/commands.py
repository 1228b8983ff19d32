"""Real command lines, as a user types them, run from a folder of their own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 150

OWN = [sys.executable, "-m", "fullgnn.train"]
"""Starts its own ranks."""


def torchrun(nproc: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}"]


@dataclass(frozen=True)
class Finished:
    status: int
    output: str
    """stdout and stderr, in the order of writing."""

    @property
    def errors(self) -> list[str]:
        """The lines in which a rank or the command names a mistake."""
        return [line for line in self.output.splitlines() if "error: " in line]


def environment(*folders: Path) -> dict[str, str]:
    """This process's environment with the checkout and ``folders`` importable."""
    path = os.pathsep.join(map(str, (*folders, ROOT)))
    return {**os.environ, "PYTHONPATH": path}


def run_command(
    command: list[str], *arguments: str, cwd: Path, env: dict[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> Finished:
    """Run ``command arguments...`` in ``cwd`` to its end."""
    done = subprocess.run(
        [*command, *arguments],
        cwd=cwd,
        env=environment() if env is None else env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
    return Finished(done.returncode, done.stdout)
