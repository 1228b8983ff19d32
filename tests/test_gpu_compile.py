"""Every kernel for GPUs compiles for every generation that is served, on a machine without one."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compiled import CAPABILITIES, gpu_modules

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def test_whoever_trains_on_a_cpu_imports_no_triton() -> None:
    """In a fresh process: a dropout, products with what follows them, and a loss."""
    script = """
import sys, torch
from fullgnn.nn import Activation, Dropout, cross_entropy
from fullgnn.nn.linear import linear
assert "triton" not in sys.modules, "torch imports it by itself"
x, drop = torch.ones(500, 100, requires_grad=True), Dropout(0.5, layer=0, seed=1)
y = linear(x, torch.ones(100, 64, requires_grad=True), torch.ones(64), Activation(True, drop.mask(torch.arange(500))))
y.backward(cross_entropy(y, torch.zeros(500, dtype=torch.int64), 1.0)[1])
assert "numba" in sys.modules and "triton" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", gpu_modules())
def test_compiles(module: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.compiled", module]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, timeout=290)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["capability"] for line in lines} == {*CAPABILITIES}, "the module offers no variants"
    for line in lines:
        assert "error" not in line and line["cubin_bytes"] > 0, line
        assert line["wide_accesses"] > 0 or not re.search(r"UNIT': [248]", line["constants"]), (
            "memory is accessed number by number"
        )
