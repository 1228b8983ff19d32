"""Every kernel for GPUs compiles for every supported generation of GPUs, on a machine without a GPU."""

import functools
import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.gpu_code.commands import output_of
from tests.gpu_code.variants import CAPABILITIES, gpu_modules
from tests.triton_device import needs_triton

pytestmark = [needs_triton, pytest.mark.timeout(600)]  # with --all, hundreds of variants are compiled


@pytest.mark.sample(2)
def test_whoever_trains_on_a_cpu_imports_no_triton() -> None:
    """A fresh process computes a dropout mask, a product with its activation, gradients and a loss."""
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


SPILLED = dict.fromkeys(
    (f"fullgnn.kernels.edges._{name}_gpu" for name in ("attention", "attention_backward", "dynamic_backward")), 16
)
"""Bytes that a kernel may spill: attention with edge weights and dropout has a limit on registers, so that five
programs run at a time, and the compiler may keep up to four words of it in memory."""


@functools.cache
def compiled(module: str, every_case: bool) -> list[dict[str, Any]]:
    """The compiled variants of a module, or a sample of them."""
    every = ["--all"] if every_case else []
    return [json.loads(line) for line in output_of("tests.gpu_code.variants", *every, module).splitlines()]


def compiled_products(name: str, every_case: bool) -> list[dict[str, Any]]:
    return compiled(f"fullgnn.kernels.spmm._{name}_gpu", every_case)


@pytest.mark.sample(8)
@pytest.mark.parametrize("module", gpu_modules())
def test_compiles(module: str, every_case: bool) -> None:
    lines = compiled(module, every_case)
    assert {line["capability"] for line in lines} == {*CAPABILITIES}, "the module offers no variants"
    for line in lines:
        assert "error" not in line and line["cubin_bytes"] > 0, line
        assert line["wide_accesses"] > 0 or not re.search(r"(UNIT|ALIGNED)': [248]", line["constants"]), (
            "memory is accessed one number at a time",
            line,
        )
        assert line["stack_bytes"] <= SPILLED.get(module, 0), ("registers are spilled", line)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["csr", "planes"])
def test_rows_of_x_are_loaded_16_bytes_at_a_time(name: str, every_case: bool) -> None:
    """Rows of the widths 41, 47, 10 ... are loaded so as well: the compiler must see that rows are padded."""
    lines = compiled_products(name, every_case)
    assert lines and all(line["bytes_of_loads_of_x"] == [16] for line in lines), lines


def compiled_panels(every_case: bool) -> list[dict[str, Any]]:
    lines = compiled_products("planes", every_case)
    return [line for line in lines if line["kernel"] == "multiply_planes"]


@pytest.mark.sample(8)
def test_panels_are_multiplied_by_tensor_cores(every_case: bool) -> None:
    """Each variant uses instructions of its generation's tensor cores."""
    units = {80: {"mma.sync"}, 90: {"mma.sync", "wgmma.mma_async"}, 100: {"mma.sync", "tcgen05.mma"}}
    lines = compiled_panels(every_case)
    assert lines
    for line in lines:
        used = {*line["tensor_cores"]}
        assert used and used <= units[line["capability"]], line


@pytest.mark.sample(8)
def test_panels_leave_room_for_three_programs_on_a_multiprocessor(every_case: bool) -> None:
    """A Hopper multiprocessor has 65,536 registers, of which each thread gets a multiple of eight, and 228 KB of shared
    memory, 1 KB of it reserved for each program."""
    lines = compiled_panels(every_case)
    for line in (line for line in lines if line["capability"] == 90):
        warps = line["options"]["num_warps"]
        registers = -(-line["registers"] // 8) * 8
        programs = min(65_536 // (registers * 32 * warps), 228 * 1024 // (line["shared_bytes"] + 1024))
        assert programs >= 3, line
