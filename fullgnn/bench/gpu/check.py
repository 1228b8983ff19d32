"""What one check found, and how an error is measured: by element, over the sum of the magnitudes of its addends."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Check:
    """One comparison, as the record has it."""

    subject: str  # a kernel or a function
    what: str  # that was compared: product, epilogue, repeats ...
    case: str  # of inputs
    width: int | None
    error: float | None  # see ``error_of``; None: equality was asked for
    tolerance: float
    passed: bool
    said: str = ""


def error_of(found: Tensor, expected: Tensor, magnitude: Tensor) -> float:
    """Largest |found - expected| / magnitude; NaN where a number is not finite.

    Args:
        expected: float64.
        magnitude: float64, the sum of the magnitudes of the addends of each element; where it is 0 the element is
            exact or the error infinite.
    """
    difference = (found.double() - expected).abs()
    relative = torch.where(magnitude > 0, difference / magnitude.clamp(min=1e-300), torch.inf * difference.sign())
    return float(torch.where((difference == 0) & (magnitude == 0), 0.0, relative).max()) if found.numel() else 0.0


def compared(
    subject: str,
    what: str,
    case: str,
    found: Tensor,
    expected: Tensor,
    magnitude: Tensor,
    tolerance: float,
) -> Check:
    """The check of a (n, F) or (F,) result."""
    error = error_of(found, expected, magnitude)
    return Check(subject, what, case, found.shape[-1] if found.dim() else None, error, tolerance, error <= tolerance)


def equal(subject: str, what: str, case: str, found: Tensor, expected: Tensor, said: str = "") -> Check:
    """The check that two float32 or int tensors have the same bits."""
    width = found.shape[-1] if found.dim() else None
    same = found.shape == expected.shape and torch.equal(_bits(found), _bits(expected))
    return Check(subject, what, case, width, None, 0.0, same, said)


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.int32) if x.dtype == torch.float32 else x
