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
