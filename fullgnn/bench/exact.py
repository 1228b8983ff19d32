"""Exact products on some rows of a block, in float64, and the error of what a kernel computes."""

import torch
from torch import Tensor

from fullgnn.kernels.spmm import LocalCSR

_NUM_SAMPLES = 1024


def sample_rows(block: LocalCSR) -> Tensor:
    """(num_samples,) int64 rows, evenly spread, and the longest."""
    degree = block.indptr.diff()
    count = min(_NUM_SAMPLES, block.num_rows)
    spread = torch.linspace(0, block.num_rows - 1, count, dtype=torch.float64, device=degree.device).long()
    return torch.cat([spread, degree.argmax()[None]])


def exact_rows(block: LocalCSR, x: Tensor, rows: Tensor) -> Tensor:
    """(num_samples, F) float64 rows of the product of ``block``, all entries 1, and ``x``."""
    start, degree = block.indptr.long()[rows], block.indptr.long().diff()[rows]
    owner = torch.repeat_interleave(torch.arange(len(rows), device=x.device), degree)
    within = torch.arange(len(owner), device=x.device) - (degree.cumsum(0) - degree)[owner]
    column = block.indices[start[owner] + within].long()
    out = torch.zeros(len(rows), x.shape[1], dtype=torch.float64, device=x.device)
    return out.index_add_(0, owner, x.index_select(0, column).double())


def error_of(computed: Tensor, expected: Tensor, magnitude: Tensor) -> float:
    """Largest |computed - expected| / magnitude; NaN where a number is not finite.

    Args:
        expected: float64.
        magnitude: float64, the sum of the magnitudes of the addends of each element; where it is 0 the element is
            exact or the error infinite.
    """
    difference = (computed.double() - expected).abs()
    relative = torch.where(magnitude > 0, difference / magnitude.clamp(min=1e-300), torch.inf * difference.sign())
    return float(torch.where((difference == 0) & (magnitude == 0), 0.0, relative).max()) if computed.numel() else 0.0
