"""Helpers that test_weighted.py shares with other test modules."""

import torch
from torch import Tensor

FLOAT32, FLOAT64 = torch.float32, torch.float64


def normal(*shape: int, seed: int) -> Tensor:
    """Float64 numbers that float32 holds as well."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def check(computed: list[Tensor], expected: list[Tensor], dtype: torch.dtype) -> None:
    digits = 2e-5 if dtype == FLOAT32 else 1e-12
    for tensor, exact in zip(computed, expected, strict=True):
        assert tensor.dtype == dtype
        tensor = tensor.detach().cpu()
        scale = max(1.0, float(exact.abs().max())) if exact.numel() else 1.0
        torch.testing.assert_close(tensor.double(), exact, rtol=0, atol=digits * scale)
