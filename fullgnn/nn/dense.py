"""Dense products of tall matrices, by the fastest library at hand.

On a CPU, float32 goes to oneDNN, which uses AVX-512 on every machine that has it; torch.mm goes to MKL, which does so
only on Intel's. Everything else is torch.mm. All three are the same mathematics in the same precision.
"""

import torch
from torch import Tensor


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """X W: (n, f) and (f, g) to (n, g)."""
    return _onednn(x, weight.t().contiguous()) if _suits(x) else x @ weight


def matmul_nt(g: Tensor, weight: Tensor) -> Tensor:
    """G W^T: (n, g) and (f, g) to (n, f)."""
    return _onednn(g, weight) if _suits(g) else g @ weight.t()


def matmul_tn(x: Tensor, g: Tensor) -> Tensor:
    """X^T G: (n, f) and (n, g) to (f, g)."""
    return _onednn(g.t(), x.t()).t() if _suits(x) else x.t() @ g


def _suits(x: Tensor) -> bool:
    return (
        x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() > 0 and torch.backends.mkldnn.is_available()
    )


def _onednn(x: Tensor, weight: Tensor) -> Tensor:
    """X W^T: the operator that torch's own compiler emits for a linear layer on a CPU."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
