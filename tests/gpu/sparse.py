"""Helpers that test_sparse.py shares with other test modules."""

import pytest
import torch

LARGE = (18_000_000, 128)
"""A matrix of 9.2 GB in float32, with more than 2^31 elements."""


CORNER = 64


def skip_without_memory() -> None:
    """Skip where the GPU has no room for two matrices of shape ``LARGE``."""
    needed = 10 * LARGE[0] * LARGE[1]
    if torch.cuda.mem_get_info()[0] < needed:
        pytest.skip(f"{needed / 1e9:.0f} GB of free memory are needed")
