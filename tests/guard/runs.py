"""Run the commands of a case, and give what they have left as plain values."""

import functools
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from tests.commands import environment, run_command
from tests.guard import calls, graphs
from tests.guard.cases import BEFORE, CASES, Command
from tests.guard.facts import columns, facts_of

PORTABLE = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "CUDA_VISIBLE_DEVICES": ""}
"""Environment of the commands: torch and MKL compute the same bits on every CPU of one architecture."""


def signature() -> dict[str, Any]:
    """What the bits of a loss depend on beside fullgnn. Where it is equal, runs are equal to the bit."""
    import llvmlite.binding
    import numba
    import numpy as np
    import scipy

    features = llvmlite.binding.get_host_cpu_features()
    return {
        "architecture": platform.machine(),
        "vector_features": [name for name in ("avx2", "avx512f", "fma", "neon", "sve") if features.get(name)],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def run_case(name: str, folder: Path, environ: dict[str, str] | None = None) -> dict[str, Any]:
    """Run the commands of the case ``name`` in the empty ``folder``: for each, what it has left.

    Args:
        environ: in place of ``PORTABLE``.
    """
    graphs.write_all(folder)
    shutil.copy(Path(__file__).parent / "machine.yaml", folder)
    if name == "before":
        shutil.copytree(BEFORE / "cache", folder / "cache")
    left = {command.out: run(command, folder, environ) for command in CASES[name]}
    if name == "before":
        cache = folder / "cache"
        left["cache"] = {"files": sorted(str(file.relative_to(cache)) for file in cache.glob("*/*"))}
    return left


def run(command: Command, folder: Path, environ: dict[str, str] | None = None) -> dict[str, Any]:
    """Run one ``command`` in ``folder``: what it has left."""
    counted = folder / f"calls_{command.out}"
    counted.mkdir()
    done = run_command(
        [sys.executable, "-m", f"fullgnn.{command.module}"],
        *command.line,
        cwd=folder,
        env=environment(**(PORTABLE if environ is None else environ)),
        first=functools.partial(calls.count, str(counted)),
    )
    assert done.status == 0, f"python -m fullgnn.{command.module} {' '.join(command.line)}\n{done.output}"
    if command.module == "prepare":
        return {}
    facts = facts_of(command.module, folder / command.out)
    if command.module.startswith("train"):
        facts["calls"] = columns(calls.read(counted))
    return facts
