"""One check, as the record has it."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Check:
    """One comparison, or one test."""

    subject: str
    what: str  # that was compared
    case: str  # of inputs
    width: int | None
    error: float | None  # None: equality was asked for
    tolerance: float
    passed: bool
    said: str = ""


def equal(subject: str, what: str, case: str, found: Tensor, expected: Tensor) -> Check:
    """The check that two tensors have the same values."""
    return Check(subject, what, case, None, None, 0.0, torch.equal(found, expected))
