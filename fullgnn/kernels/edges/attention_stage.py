"""The edges of one stage, and what attention reads of its sources."""

from dataclasses import dataclass

from torch import Tensor

from fullgnn.kernels.edges.mask import EdgeMask, check_heads
from fullgnn.kernels.spmm.base import LocalCSR
from fullgnn.kernels.support.aligned import as_rows


@dataclass(frozen=True, eq=False)
class AttentionStage:
    """A stage of an attention; shapes are local to the stage: n targets, m sources, K heads.

    If there are edges, a copy replaces an ``of_sources`` that is not contiguous, and an ``x`` whose rows are not.

    Raises:
        ConfigError: a dropout with more than 1,024 heads.
    """

    csr: LocalCSR  # (n, m); its values, the edge weights, are of the dtype of ``x``
    of_sources: Tensor  # (m, K) logits, of the dtype of ``x``; in dynamic attention the (K, D) vector
    x: Tensor  # (m, K * D) float32 or float64, any row stride
    slope: float  # negative slope of the LeakyReLU
    mask: EdgeMask | None  # the attention dropout; None: none. It applies to the softmax, not to its total
    dynamic: bool = False  # which of the two attentions of ``attention.py``

    def __post_init__(self) -> None:
        csr, x, of_sources, num_heads = self.csr, self.x, self.of_sources, self.num_heads
        assert num_heads > 0 and x.shape[1] > 0 and x.shape[1] % num_heads == 0, (x.shape, num_heads)
        expected = (num_heads, self.depth) if self.dynamic else (csr.num_cols, num_heads)
        assert of_sources.shape == expected and len(x) == csr.num_cols, (of_sources.shape, x.shape, csr.num_cols)
        assert of_sources.dtype == x.dtype, (of_sources.dtype, x.dtype)
        assert csr.values is None or csr.values.dtype == x.dtype, (csr.values.dtype, x.dtype)
        if self.mask is not None:
            check_heads(num_heads)
            assert len(self.mask.target_id) == csr.num_rows and len(self.mask.source_id) == csr.num_cols
        if csr.nnz:
            object.__setattr__(self, "of_sources", of_sources.contiguous())
            object.__setattr__(self, "x", as_rows(x))

    @property
    def num_heads(self) -> int:
        """K."""
        return self.of_sources.shape[0 if self.dynamic else 1]

    @property
    def depth(self) -> int:
        """D."""
        return self.x.shape[1] // self.num_heads

    def check_targets(self, of_targets: Tensor) -> None:
        """Refuse another shape or dtype than that of the logits of targets, or in dynamic attention of their rows."""
        expected = (self.csr.num_rows, self.x.shape[1] if self.dynamic else self.num_heads)
        assert of_targets.shape == expected and of_targets.dtype == self.x.dtype, (of_targets.shape, of_targets.dtype)
