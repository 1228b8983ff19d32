"""Compiled loops are imported late, and work with and without a folder that keeps them."""

import os
import subprocess
import sys

import pytest


@pytest.mark.sample(3)
def test_numba_comes_late_and_leaves_the_threads_of_torch_alone() -> None:
    """The script runs in a fresh process, which has imported nothing yet."""
    script = """
import sys, torch
torch.set_num_threads(1)
from fullgnn.kernels.spmm import AutoKernel, LocalCSR
assert "numba" not in sys.modules
kernel, indices = AutoKernel(), torch.zeros(1, dtype=torch.int32)
block = kernel.prepare(LocalCSR(torch.tensor([0, 1], dtype=torch.int32), indices, None, 1, 1), torch.float32)
out = torch.empty(1, 8)
kernel.spmm(block, torch.full((1, 8), 5.0), out, accumulate=False)
assert torch.equal(out, torch.full((1, 8), 5.0)) and "numba" in sys.modules
assert torch.get_num_threads() == 1, torch.get_num_threads()
"""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "OMP_"))}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_no_folder_for_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core.caching import CacheImpl

    from fullgnn.kernels.support.vectors import compiled

    def double(number):
        return 2 * number

    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert compiled("test")(double)(21) == 42


def test_variants_are_kept_apart() -> None:
    """Processes that compile different variants at the same time must not write to one file; see ``compiled``."""
    from fullgnn.kernels.spmm._blocked_cpu import multiplier

    variants = [(32, 16, 4, "uint16", False), (32, 16, 4, "uint16", True), (64, 8, 4, "int32", False)]
    assert len({multiplier(*variant)._cache._cache_file._index_path for variant in variants}) == 3
