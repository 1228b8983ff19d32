"""Loops for processors with other registers than this one's give the same bits."""

import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
import torch, zlib
from fullgnn.kernels.dense.dense import linear_gradients
from fullgnn.kernels.edges.attention import attend, attend_backward
from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import transpose
from fullgnn.kernels.edges.largest import largest_rows
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.edges.softmax_state import SoftmaxState
from fullgnn.kernels.spmm import Epilogue, LocalCSR
from fullgnn.kernels.spmm.beside import spmm_beside_linear
from fullgnn.kernels.spmm.blocked import BlockedCSR
from fullgnn.kernels.support.aligned import registers, row_lines

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
mask = torch.rand(40, 900, generator=generator) < 0.2
mask[3] = True  # more edges than a group of chains
indptr = torch.zeros(41, dtype=torch.int32)
indptr[1:] = mask.sum(1).cumsum(0)
csr = LocalCSR(indptr, mask.nonzero()[:, 1].int().contiguous(), None, *mask.shape)


def normal(*shape):
    return torch.randn(*shape, generator=generator)


def show(*results):
    print(*(zlib.crc32(one.contiguous().numpy().tobytes()) for one in results))


kernel, x = BlockedCSR(), normal(900, 128)
block = kernel.prepare(csr, torch.float32)
for width in (112, 128):
    out = normal(40, width)
    for rows in (x[:, :width], x[:, :width].contiguous()):
        kernel.spmm(block, rows, out, accumulate=True)
        show(out)

x_target, vector, grad, dot = normal(40, 128), normal(4, 32), normal(40, 128), normal(40, 4)
state = SoftmaxState.empty(40, 4, 128, x)
stage = AttentionStage(csr, vector, x, 0.2, None, dynamic=True)
attend(stage, x_target, state)
rows = AttentionRows(x_target, state.maximum, state.total, grad, dot, torch.zeros(40, 128), torch.zeros(40, 128))
(grad_x,) = attend_backward(stage, transpose(csr), rows)
show(state.total, state.weighted, grad_x, rows.grad_of_targets, rows.grad_vector)

largest = MaxState.empty(40, 128, x)
largest_rows(csr, x, torch.arange(900), largest)
show(largest.value, largest.winner)

gradient = normal(900, 64)
for f in (47, 100):
    show(*linear_gradients(x[:, :f], gradient, None, 1.0, keep_masked=False)[:2])
    own = torch.arange(40, dtype=torch.int32) * 7
    show(*spmm_beside_linear(csr, x[:, :f], own, None, normal(2 * f, 64), Epilogue(None, normal(64), True)))
print("registers", registers(), row_lines())
"""


@pytest.mark.sample(6)
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="emulates an x86 processor")
def test_a_processor_without_avx512_gives_the_same_bits() -> None:
    """Numba compiles for Zen 3 in another process, whose registers the loops follow."""
    printed = []
    for variables in ({}, {"NUMBA_CPU_NAME": "znver3", "NUMBA_CPU_FEATURES": ""}):
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.splitlines())
    assert printed[0][:-1] == printed[1][:-1] and len(printed[0]) > 5
    assert printed[1][-1] == "registers (16, 32) 4"
