"""Calls of every kernel that training makes rarely: low thresholds, float64, weights, large seeds, one row."""

from typing import Any
from unittest import mock

import torch

from fullgnn.kernels.dense._gradient_gpu import activation_gradients_gpu, linear_gradients_gpu
from fullgnn.kernels.dropout._philox_gpu import dropout_gpu
from fullgnn.kernels.dropout.philox import Mask
from fullgnn.kernels.epilogue._epilogue_gpu import apply_gpu
from fullgnn.kernels.loss._cross_entropy_gpu import cross_entropy_gpu
from fullgnn.kernels.spmm import Epilogue, Kernel, Packed, Tile32, TritonCSR, panel_plan, triton_csr
from tests.gpu_code.attention_cases import rare_attention
from tests.gpu_code.cases import Case
from tests.kernels.spmm.matrices import Matrix, local_csr


def rare_cases() -> list[Case]:
    """Sparse products, dense operations, and attention."""
    return [
        Case("rare", "products of 41 to 128", products),
        Case("rare", "dense, 1 to 47", neighbours),
        Case("rare", "attention, 1 x 1 to 2 x 100", rare_attention),
    ]


def finished(num_rows: int, width: int, dtype: torch.dtype, seed: int) -> Epilogue:
    mask = Mask(torch.arange(num_rows), 0.5, seed, torch.tensor(1), layer=seed % 2)
    return Epilogue(torch.ones(num_rows, dtype=dtype), torch.ones(width, dtype=dtype), True, mask)


@mock.patch.object(triton_csr, "CHAIN", 2)
@mock.patch.multiple(panel_plan, SPLIT_GROUPS=3, PART_GROUPS=2)
def products() -> None:
    """With low thresholds, so that a small matrix has heavy rows and long panels."""
    adj, _ = local_csr(Matrix(200, 300, 9, hub=13).mask(), weighted=False)
    weighted, _ = local_csr(Matrix(200, 300, 9, hub=13).mask(), weighted=True)

    def multiply(kernel: Kernel, block: Any, width: int, dtype: torch.dtype, accumulate: bool, ends: Epilogue) -> None:
        x, out = (torch.ones(rows, 8 * -(-width // 8), dtype=dtype)[:, :width] for rows in (300, 200))
        kernel.spmm(kernel.prepare(block, dtype), x, out, accumulate, ends)

    for width in (41, 128):
        for seed, accumulate in ((1, False), (2**63 + 5, True)):
            multiply(TritonCSR(), adj, width, torch.float32, accumulate, finished(200, width, torch.float32, seed))
    multiply(TritonCSR("bf16"), adj, 100, torch.float32, False, Epilogue())
    multiply(TritonCSR(), weighted, 41, torch.float64, True, finished(200, 41, torch.float64, 0))
    for kernel in (Tile32(0.0), Packed()):
        multiply(kernel, adj, 41, torch.float32, True, Epilogue())


def neighbours() -> None:
    """The dense operations around the sparse products."""
    for rows, depth, width in ((1, 1, 1), (37, 41, 47)):
        ends, x = finished(rows, width, torch.float32, 2**64 - 1), torch.ones(rows, depth)
        g = torch.ones(rows, width)
        for output, scale in ((None, ends.scale), (g, None), (g, ends.scale)):
            activation_gradients_gpu(g, output, 2.0, scale)
        for output, keep in ((None, False), (g, False), (g, True)):
            linear_gradients_gpu(x, g, output, 2.0, keep)
        dropout_gpu(g, g, ends.dropout)
        apply_gpu(g, ends)
        cross_entropy_gpu(g, torch.zeros(rows, dtype=torch.int64), 1.0)
