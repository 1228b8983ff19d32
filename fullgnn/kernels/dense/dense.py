"""Dense products of tall matrices, by the fastest available implementation.

On a CPU, float32 goes to oneDNN, which uses AVX-512 on every machine that has it; torch.mm goes to MKL, which uses
AVX-512 only on Intel processors. Gradients of weights go to a compiled loop (``_dense_cpu.py``). On a GPU, cuBLAS
computes X W through torch, and one kernel applies the whole epilogue to the result; another kernel computes a gradient
of weights with the mask that the activation applies to the gradient of the result (``_gradient_gpu.py``). Everything
else goes to torch. All implementations compute the same mathematics in the same precision; a run keeps TF32 off
(``distributed/mesh.py``).
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fullgnn.kernels.dropout.philox import drop_
from fullgnn.kernels.epilogue.epilogue import NO_EPILOGUE, Epilogue, apply_epilogue_
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import aligned_stride, as_rows, empty_aligned, with_padding
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.dense import _dense_cpu, _gradient_gpu
else:
    _dense_cpu = module_on_use("fullgnn.kernels.dense._dense_cpu")
    _gradient_gpu = module_on_use("fullgnn.kernels.dense._gradient_gpu")


@dataclass(frozen=True, eq=False)
class Picked:
    """Some rows of a matrix, where they lie."""

    matrix: Tensor  # (m, f), on a CPU
    index: Tensor  # (n,) int32

    def beside(self, x: Tensor) -> Tensor:
        """(n, 2 f), a copy of these rows beside those of (n, f) ``x``."""
        return torch.cat([x, self.matrix.index_select(0, self.index)], dim=1)


MIN_WORK = 1 << 22  # a gradient with fewer multiplications, 0.1 ms for torch, skips the compiled loop
CHAIN_ROWS = 32  # rows of such a small gradient whose products are added one after the other


def matmul(x: Tensor, weight: Tensor, epilogue: Epilogue = NO_EPILOGUE) -> Tensor:
    """X W with an epilogue without a row scale: (n, f) and (f, g) to (n, g).

    On a GPU a bias alone is added by cuBLAS; every other epilogue is a second launch, one pass over the result.
    """
    assert epilogue.scale is None
    if not _suits_onednn(x):
        if gpu.runs_triton(x.device) and epilogue.bias is not None and replace(epilogue, bias=None).is_empty:
            return torch.addmm(epilogue.bias, x, weight)
        return apply_epilogue_(x @ weight, epilogue)
    y = _onednn(x, weight.t().contiguous(), epilogue.bias, epilogue.relu)
    return y if epilogue.dropout is None else drop_(y, epilogue.dropout)


def matmul_aligned(x: Tensor, weight: Tensor, scale: Tensor | None = None) -> Tensor:
    """diag(scale) X W in rows that begin at cache lines: (n, g), a view of a wider matrix if g fills no whole lines.

    A sparse product reads such rows faster. Whole vectors take oneDNN no longer than parts do.

    Args:
        scale: (n,); applied to the result in place. On a GPU this pass reads and writes whole lines, so it reads the
            padding too, which is not initialised: whoever reads the rows ignores what the padding holds.
    """
    columns = weight.shape[1]
    stride = aligned_stride(x.device, columns, x.dtype)
    if stride == columns:
        y = matmul(x, weight)
    elif _suits_onednn(x):
        padded = weight.new_zeros(stride, weight.shape[0])
        padded[:columns] = weight.t()
        y = _onednn(x, padded, None, False)[:, :columns]
    else:
        y = torch.mm(x, weight, out=empty_aligned(len(x), columns, like=x))
    if scale is not None:
        apply_epilogue_(with_padding(y) if gpu.runs_triton(x.device) else y, Epilogue(scale))
    return y


def scales_rows(x: Tensor) -> bool:
    """Whether ``matmul_aligned`` and ``activation_gradients`` of ``x`` should scale the rows that a sparse product
    reads: on a GPU the first scales in place, where the sparse product would copy its input, and the second at no cost.
    """
    return gpu.runs_triton(x.device) and x.dtype == torch.float32


def matmul_nt(g: Tensor, weight: Tensor) -> Tensor:
    """G W^T: (n, g) and (f, g) to (n, f)."""
    return _onednn(g, weight, None, False) if _suits_onednn(g) else g @ weight.t()


def weight_gradient(x: Tensor, g: Tensor) -> Tensor:
    """X^T G: (n, f) and (n, h) to (f, h)."""
    return linear_gradients(x, g, None, 1.0, keep_masked=False)[0]


def activation_gradients(
    g: Tensor, output: Tensor | None, scale: float, row_scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """diag(row_scale) G' and the column sums of G', (n, h) and (h,); see ``linear_gradients``.

    Args:
        row_scale: (n,); fused at no cost if ``scales_rows(g)``, otherwise applied in a pass over the result.
    """
    if _masks_in_triton(g) and not (output is None and row_scale is None):
        return _gradient_gpu.activation_gradients_gpu(g, output, scale, row_scale)
    if output is None:
        masked, sums = g, g.sum(0)
    else:
        _, sums, kept = linear_gradients(g[:, :0], g, output, scale, keep_masked=True)
        assert kept is not None
        masked = kept
    return masked if row_scale is None else masked * row_scale[:, None], sums


def linear_gradients(
    x: Tensor, g: Tensor, output: Tensor | None, scale: float, keep_masked: bool, picked: Picked | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of W and b for Y = activation(X W + b), given the gradient G of Y: X^T G', the column sums of G';
    and G', the gradient of X W + b.

    Args:
        x: (n, f).
        g: (n, h).
        output: (n, h) Y; then G' is ``scale`` G where Y > 0 and 0 elsewhere. None: G' = G.
        scale: see ``Activation``.
        keep_masked: whether to return G'.
        picked: n rows that stand beside those of ``x`` as the second half of X, as wide as the first one.

    Returns:
        (f, h), (h,) and (n, h); None for the last without ``keep_masked``. With ``picked`` the first one is (2 f, h).
    """
    if picked is not None and not _compiled(x, g):
        x, picked = picked.beside(x), None
    if _multiplies_tall_in_triton(x, g):
        return _gradient_gpu.linear_gradients_gpu(x, g, output, scale, keep_masked)
    if _compiled(x, g):
        x, g = as_rows(x), as_rows(g)
        masked = torch.empty_like(g) if output is not None and keep_masked else None
        rows = None if output is None else as_rows(output)
        gradient, sums = _dense_cpu.weight_gradient_cpu(x, g, rows, scale, masked, picked)
        return gradient, sums, (g if output is None else masked) if keep_masked else None
    if output is not None and _masks_in_triton(g):
        g, sums = activation_gradients(g, output, scale)
        return x.t() @ g, sums, g if keep_masked else None
    if output is not None:
        g = torch.ops.aten.threshold_backward(g, output, 0)
        g = g if scale == 1 else g.mul_(scale)
    kept = g if keep_masked else None
    if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):  # little work
        return _product_of_chains(x, g), g.sum(0), kept
    return x.t() @ g, g.sum(0), kept


def _compiled(x: Tensor, g: Tensor) -> bool:
    """Whether the compiled loop computes ``linear_gradients``."""
    work = g.numel() * max(x.shape[1], 64)
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and work >= max(1, MIN_WORK)


def _product_of_chains(x: Tensor, g: Tensor) -> Tensor:
    """X^T G as a sum of products of ``CHAIN_ROWS`` rows each: a single product would add all rows one after the other
    and lose digits where there are many rows."""
    num_rows = len(x) // CHAIN_ROWS * CHAIN_ROWS
    rest = x[num_rows:].t() @ g[num_rows:]
    if num_rows == 0:
        return rest
    chains = [part[:num_rows].unflatten(0, (-1, CHAIN_ROWS)) for part in (x, g)]
    return torch.bmm(chains[0].transpose(1, 2), chains[1]).sum(0).add_(rest)


def _multiplies_tall_in_triton(x: Tensor, g: Tensor) -> bool:
    return scales_rows(x) and g.dtype == torch.float32 and x.numel() > 0 and g.numel() > 0


def _masks_in_triton(g: Tensor) -> bool:
    return gpu.runs_triton(g.device) and g.dtype in (torch.float32, torch.float64)


def _suits_onednn(x: Tensor) -> bool:
    on_cpu = x.device.type == "cpu" and not gpu.runs_triton(x.device)  # an interpreted GPU multiplies as a GPU does
    return on_cpu and x.dtype == torch.float32 and x.numel() > 0 and torch.backends.mkldnn.is_available()


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """X W^T + b: the operator that torch's own compiler emits for a linear layer on a CPU."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")
