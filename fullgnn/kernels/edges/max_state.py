"""The state of a maximum over the edges of each target, to which parts of the edges are added in any order."""

from dataclasses import dataclass

import torch
from torch import Tensor

NO_WINNER = torch.iinfo(torch.int64).max


@dataclass(frozen=True, eq=False)
class MaxState:
    """Largest messages of n targets, for F columns, and the sources that sent them; shapes are local.

    Among equal messages, the one from the lowest original id wins, whichever stage or rank has it. The tensors are
    contiguous.
    """

    value: Tensor  # (n, F) largest message; -inf without edges, nan where any message is nan
    winner: Tensor  # (n, F) int64 GLOBAL original id of its source; NO_WINNER without edges

    @classmethod
    def empty(cls, num_targets: int, width: int, like: Tensor) -> "MaxState":
        """The state of targets without edges, with dtype and device of ``like``."""
        value = like.new_full((num_targets, width), -torch.inf)
        return cls(value, torch.full_like(value, NO_WINNER, dtype=torch.int64))

    def winners(self, value: Tensor) -> Tensor:
        """(n, F) int64: the winners where ``value``, the largest message of all sets of edges, is one of this set;
        elsewhere NO_WINNER. The least over all sets is the winner of their union."""
        return torch.where((self.value == value) | self.value.isnan(), self.winner, NO_WINNER)

    def finish(self) -> Tensor:
        """(n, F) largest messages, 0 for a target without edges."""
        return torch.where(self.winner == NO_WINNER, 0, self.value)
