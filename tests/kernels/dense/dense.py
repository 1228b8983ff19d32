"""Helpers that test_dense.py shares with other test modules."""

import torch
from torch import Tensor

REGISTERS = {"AVX-512": (32, 64), "AVX2": (16, 32), "NEON": (32, 16)}


def integers(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def within(matrix: Tensor, margin: int) -> Tensor:
    """The same rows inside a wider matrix of NaNs."""
    frame = matrix.new_full((len(matrix), matrix.shape[1] + 2 * margin), torch.nan)
    inner = frame[:, margin : margin + matrix.shape[1]]
    inner.copy_(matrix)
    return inner
