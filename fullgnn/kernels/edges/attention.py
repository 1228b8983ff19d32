"""Graph attention over one stage of edges, fused: no tensor has a row for each edge.

The result of target i is, head by head,

    out_i = sum_j c_ij p_ij x_j        p_ij = softmax over j of z_ij

with the logits z of one of two attentions,

    static     z_ij = LeakyReLU(a_source[j] + a_target[i])
    dynamic    z_ij = a . LeakyReLU(x_j + y_i)

(Velickovic et al., "Graph Attention Networks", 2018, equations 3 and 4; Brody, Alon and Yahav, "How Attentive are Graph
Attention Networks?", 2022, equation 7, with rows y_i of the targets, and a vector a for each head). In the static one
the order of the neighbours by p is the same for all targets; in the dynamic one it depends on the target. The factor c
of an edge is its weight in the graph, 1 in a graph without weights, times the factor of an attention dropout; the
softmax reads neither of them.

``attend`` adds one stage to a ``SoftmaxState``, as in flash attention (Dao et al., 2022). ``attend_backward`` computes
z and p again; with g the gradient of the result, and s the slope that the LeakyReLU has, 1 or its negative slope,

    grad z       = p (c <g_i, x_j> - <g_i, out_i>)
    grad x_j     = sum_i c p g_i
    static:      grad a_source[j] = sum_i s grad z        grad a_target[i] = sum_j s grad z
    dynamic:     grad x_j        += sum_i a s grad z      grad y_i         = sum_j a s grad z
                 grad a           = sum_ij LeakyReLU(x_j + y_i) grad z

Gradients of sources are pulled along the transposed index, and each target has its own part of the gradient of a, so no
number of threads changes a bit.
"""

import torch
from torch import Tensor

from fullgnn.kernels.edges.attention_rows import AttentionRows
from fullgnn.kernels.edges.attention_stage import AttentionStage
from fullgnn.kernels.edges.index import Transposed
from fullgnn.kernels.edges.paths import implementation
from fullgnn.kernels.edges.softmax_state import SoftmaxState


def attend(stage: AttentionStage, of_targets: Tensor, state: SoftmaxState) -> None:
    """Add the edges of a stage to ``state``, in place.

    Args:
        of_targets: (n, K) logits of the targets; in dynamic attention their (n, K * D) rows.
    """
    num_targets, x = stage.csr.num_rows, stage.x
    stage.check_targets(of_targets)
    assert state.maximum.shape == (num_targets, stage.num_heads), (state.maximum.shape, stage.num_heads)
    assert state.weighted.shape == (num_targets, x.shape[1]), state.weighted.shape
    assert state.weighted.dtype == x.dtype, (state.weighted.dtype, x.dtype)
    assert all(part.is_contiguous() for part in (state.maximum, state.total, state.weighted))
    if stage.csr.nnz:
        implementation("attention", x).attend(stage, of_targets.contiguous(), state)


def attend_backward(stage: AttentionStage, transposed: Transposed, rows: AttentionRows) -> tuple[Tensor, ...]:
    """The gradients at the sources of a stage; those at its targets are added to ``rows``.

    Args:
        stage: that of ``attend``.
        transposed: ``transpose(stage.csr)``.
        rows: what the backward pass of all stages reads of the targets.

    Returns:
        (m, K * D) gradient of ``x`` and, in static attention, (m, K) gradient of ``of_sources``.
    """
    csr, x = stage.csr, stage.x
    stage.check_targets(rows.of_targets)
    assert rows.dynamic == stage.dynamic
    assert rows.grad.shape == (csr.num_rows, x.shape[1]) and rows.grad.dtype == x.dtype, (rows.grad.shape, x.dtype)
    assert transposed.num_rows == csr.num_cols and transposed.nnz == csr.nnz
    assert all(part.is_contiguous() for part in (rows.of_targets, rows.grad, *rows.outputs))
    sources = (x,) if stage.dynamic else (x, stage.of_sources)
    if not csr.nnz:
        return tuple(map(torch.zeros_like, sources))
    outputs = tuple(part.new_empty(part.shape) for part in sources)
    implementation("attention_backward", x).attend_backward(stage, transposed, rows, outputs)
    return outputs
