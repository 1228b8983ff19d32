"""The state of a softmax over the edges of each target, to which parts of the edges are added in any order.

A target's edges may lie in several stages, and on several ranks. For a set S of its edges, with logits z and rows x,

    maximum = max z        total = sum exp(z - maximum)        weighted = sum exp(z - maximum) x

and the softmax-weighted sum of the rows is weighted / total. The states of disjoint sets join associatively. Source:
Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SoftmaxState:
    """Softmax over the edges of n targets, for K heads whose rows have D columns each; shapes are local.

    The tensors are contiguous.
    """

    maximum: Tensor  # (n, K) largest logit; -inf without edges
    total: Tensor  # (n, K) sum of exp(logit - maximum)
    weighted: Tensor  # (n, K * D) sum of c * exp(logit - maximum) * x, with the edge's factor c of ``attention.py``

    @classmethod
    def empty(cls, num_targets: int, num_heads: int, width: int, like: Tensor) -> "SoftmaxState":
        """The state of targets without edges.

        Args:
            width: K * D.
            like: a tensor whose dtype and device the state gets.
        """
        maximum = like.new_full((num_targets, num_heads), -torch.inf)
        return cls(maximum, torch.zeros_like(maximum), like.new_zeros(num_targets, width))

    def rebased(self, maximum: Tensor) -> "SoftmaxState":
        """The same state relative to a largest logit ``maximum``, (n, K), at least its own.

        The totals and weighted sums of disjoint sets of edges that have one maximum add up to those of their union.
        """
        # Where no set has edges of a target, -inf - -inf would be nan.
        factor = torch.where(maximum == -torch.inf, 0, self.maximum - maximum).exp_()
        weighted = (by_head(self.weighted, factor) * factor[:, :, None]).flatten(1)
        return SoftmaxState(maximum, self.total * factor, weighted)

    def finish(self) -> Tensor:
        """(n, K * D) softmax-weighted sums of rows, 0 for a target without edges."""
        total = torch.where(self.total > 0, self.total, 1)
        return (by_head(self.weighted, total) / total[:, :, None]).flatten(1)


def by_head(rows: Tensor, heads: Tensor) -> Tensor:
    """(n, K, D) view of (n, K * D) ``rows``, where ``heads`` is (n, K)."""
    num_heads = heads.shape[1]
    return rows.view(len(rows), num_heads, rows.shape[1] // num_heads)
