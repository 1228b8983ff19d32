"""The dropout of attention weights. It depends on the ids of nodes alone, so every distribution gives the same mask.

Head ``k`` of the edge from source ``u`` to target ``v``, both ids in the dataset, in layer ``l`` and epoch ``e`` with
seed ``s``, uses word ``k % 4`` of Philox4x32-10 (see ``kernels/dropout/philox.py``) with

    counter = (v mod 2^32,
               u mod 2^32,
               v div 2^32 + 2^8 (u div 2^32) + 2^16 (k div 4) + 2^24 l,
               e)
    key     = (s mod 2^32, (s div 2^32) xor EDGES)

So ids lie below 2^40, there are at most 1,024 heads, and ``l`` is below 256. ``EDGES`` separates these words from those
of the dropout of nodes, which has the seed itself as its key. No word and no mask is stored for an edge.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.kernels.dropout.philox import LOW, DropsWithProbability, rounds

EDGES = 0x45444745
MAX_LAYERS, MAX_HEADS, ID_BITS = 256, 1024, 40


@dataclass(frozen=True, eq=False)
class EdgeMask(DropsWithProbability):
    """The parameters that determine which attention weights of a stage a dropout zeroes, and how it scales the others.

    Raises:
        ConfigError: ``p`` is not in [0, 1), or ``layer`` not in [0, 256).
    """

    target_id: Tensor  # (n,) int64 GLOBAL original ids of the stage's targets, below 2^40
    source_id: Tensor  # (m,) int64 GLOBAL original ids of the stage's sources, below 2^40
    p: float  # probability of zeroing a weight, in [0, 1)
    seed: int
    epoch: Tensor  # () int64, on the device of the rows, of which 32 bits are used
    layer: int

    def __post_init__(self) -> None:
        if not 0 <= self.p < 1:
            raise ConfigError(f"Attention dropout p is {self.p}: give a probability of at least 0 and below 1.")
        if not 0 <= self.layer < MAX_LAYERS:
            raise ConfigError(f"Attention dropout is limited to {MAX_LAYERS} layers; layer {self.layer} is beyond.")

    @property
    def key(self) -> tuple[int, int]:
        """The key of the generator."""
        return self.seed & LOW, (self.seed >> 32 & LOW) ^ EDGES


def check_heads(num_heads: int) -> None:
    """Refuse more heads than a counter distinguishes."""
    if num_heads > MAX_HEADS:
        raise ConfigError(f"Attention dropout is limited to {MAX_HEADS} heads; there are {num_heads}.")


def edge_factors(mask: EdgeMask, targets: Tensor, sources: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
    """(E, K) factors of the weights: 0 where they are dropped, 1 / (1 - p) elsewhere, from torch operations.

    Args:
        targets, sources: (E,) LOCAL numbers of the edges' ends.
    """
    check_heads(num_heads)
    target, source = (ids.index_select(0, at)[:, None] for ids, at in
                      ((mask.target_id, targets), (mask.source_id, sources)))  # fmt: skip
    group = torch.arange((num_heads + 3) // 4, device=target.device)[None, :]
    packed = (target >> 32) + (source >> 32 << 8) + (group << 16) + (mask.layer << 24)
    words = torch.stack(rounds((target & LOW, source & LOW, packed, mask.epoch & LOW), mask.key), dim=-1)
    return (words.flatten(1)[:, :num_heads] >= mask.threshold).to(dtype) * mask.scale
