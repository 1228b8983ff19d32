"""Dense products of tall matrices, by the fastest way at hand.

On a CPU, float32 goes to oneDNN, which uses AVX-512 on every machine that has it; torch.mm goes to MKL, which does so
only on Intel's. Gradients of weights go to a loop of our own (``_dense_cpu.py``). Everything else is torch's. All of
them are the same mathematics in the same precision.
"""

import torch
from torch import Tensor

from fullgnn.kernels import NOTHING, Epilogue
from fullgnn.lines import as_rows, line_stride

MIN_WORK = 1 << 22  # multiplications of a gradient for which our own loop is called; 0.1 ms for torch


def matmul(x: Tensor, weight: Tensor, epilogue: Epilogue = NOTHING) -> Tensor:
    """X W with its epilogue, which scales no rows: (n, f) and (f, g) to (n, g)."""
    assert epilogue.scale is None
    if not _suits_onednn(x):
        return epilogue.apply_(x @ weight)
    y = _onednn(x, weight.t().contiguous(), epilogue.bias, epilogue.relu)
    return y if epilogue.dropout is None else epilogue.dropout.apply_(y)


def matmul_lines(x: Tensor, weight: Tensor) -> Tensor:
    """``matmul`` into rows that begin a cache line each: (n, g), of a wider matrix where g takes no whole lines.

    A sparse product reads such rows faster, and oneDNN makes whole vectors no slower than parts of them.
    """
    columns = weight.shape[1]
    stride = line_stride(x.device, columns, x.dtype)
    if not _suits_onednn(x) or stride == columns:
        return matmul(x, weight)
    padded = weight.new_zeros(stride, weight.shape[0])
    padded[:columns] = weight.t()
    return _onednn(x, padded, None, False)[:, :columns]


def matmul_nt(g: Tensor, weight: Tensor) -> Tensor:
    """G W^T: (n, g) and (f, g) to (n, f)."""
    return _onednn(g, weight, None, False) if _suits_onednn(g) else g @ weight.t()


def weight_gradient(x: Tensor, g: Tensor) -> Tensor:
    """X^T G: (n, f) and (n, h) to (f, h)."""
    return linear_gradients(x, g, None, 1.0, keep_masked=False)[0]


def activation_gradients(g: Tensor, output: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """G' and its column sums, (n, h) and (h,); see ``linear_gradients``."""
    if output is None:
        return g, g.sum(0)
    _, sums, masked = linear_gradients(g[:, :0], g, output, scale, keep_masked=True)
    assert masked is not None
    return masked, sums


def linear_gradients(
    x: Tensor, g: Tensor, output: Tensor | None, scale: float, keep_masked: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Of an activation Y of X W + b, given the gradient G of Y: X^T G', the column sums of G', and G'.

    Args:
        x: (n, f).
        g: (n, h).
        output: (n, h) Y, and then G' = ``scale`` G where Y > 0, else 0; None: G' = G.
        scale: see ``Activation``.
        keep_masked: whether G' is wanted.

    Returns:
        (f, h), (h,) and (n, h), or None in its place.
    """
    work = g.numel() * max(x.shape[1], 64)
    if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and work and work >= MIN_WORK:
        # Here, not above: it imports numba, which must see the thread counts that the launcher sets first.
        from fullgnn.nn._dense_cpu import weight_gradient_cpu

        x, g = as_rows(x), as_rows(g)
        masked = torch.empty_like(g) if output is not None and keep_masked else None
        gradient, sums = weight_gradient_cpu(x, g, None if output is None else as_rows(output), scale, masked)
        return gradient, sums, (g if output is None else masked) if keep_masked else None
    if output is not None:
        g = torch.ops.aten.threshold_backward(g, output, 0)
        g = g if scale == 1 else g.mul_(scale)
    return x.t() @ g, g.sum(0), g if keep_masked else None


def _suits_onednn(x: Tensor) -> bool:
    return (
        x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() > 0 and torch.backends.mkldnn.is_available()
    )


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """X W^T + b: the operator that torch's own compiler emits for a linear layer on a CPU."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
