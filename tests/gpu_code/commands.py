"""The commands of this folder, run by its tests."""

import os
import subprocess
import sys

from tests.commands import ROOT

GENERATIONS = (80, 90, 100)
"""Compute capabilities, times 10, for which the kernels are compiled."""

FAMILIES = (
    *("attention", "attention backward", "dynamic", "dynamic backward", "largest", "messages", "weighted"),
    *("loss", "dropout", "gather", "wide", "single use", "scores", "sampler", "codec"),
    *("csr", "packed", "tile32", "dense", "rare"),
)
"""Names of the calls that ``launched.py`` compiles."""


def output_of(module: str, *arguments: str) -> str:
    """The output of ``python -m module`` in a process that compiles, without Triton's interpreter."""
    return _output_of("-m", module, *arguments)


def output_of_program(program: str) -> str:
    """The output of a program in Python in such a process."""
    return _output_of("-c", program)


def _output_of(*arguments: str) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout
