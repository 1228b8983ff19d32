"""Helpers that test_rehearsal.py shares with other test modules."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def filled_memory() -> Iterator[None]:
    """Let torch fill what it allocates with NaN and the largest integers."""
    assert not torch.are_deterministic_algorithms_enabled()
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)  # without it, memory is not filled
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = before
