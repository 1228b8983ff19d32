"""Dropout whose mask does not depend on how the run is distributed over ranks, and the epoch, with which it changes."""

from typing import Any

import torch
from torch import Tensor

from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.dropout.philox import Mask, dropout
from fullgnn.kernels.epilogue.epilogue import Activation


class DrawsByEpoch(torch.nn.Module):
    """A module that draws other random numbers in every epoch. ``set_epoch`` sets its ``epoch``."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch: Tensor
        # A tensor on the model's device, so that a captured CUDA graph reads the current epoch at every replay.
        self.register_buffer("epoch", torch.zeros((), dtype=torch.int64), persistent=False)


class Dropout(DrawsByEpoch):
    """Zero each element with probability ``p`` while training, and scale the others by 1 / (1 - p).

    The mask is a function of (seed, epoch, layer, original node id, column) alone, drawn with the counter-based
    generator of ``philox.py``. So the same elements are dropped under any number of ranks, any scheme and any order.

    Args:
        p: probability of dropping, in [0, 1).
        layer: number of the dropout in the model. Dropouts of different numbers have independent masks.
        seed: seed of the run.
    """

    def __init__(self, p: float, layer: int, seed: int):
        super().__init__()
        self.p, self.layer, self.seed = p, layer, seed

    def forward(self, x: Any, node_id: Tensor) -> Any:
        """Map (num_local_nodes, F) ``x``, whose rows have the original ids ``node_id``, to (num_local_nodes, F).

        Sparse rows stay sparse.
        """
        mask = self.mask(node_id)
        if mask is None:
            return x
        return x.dropout(mask) if isinstance(x, SparseRows) else dropout(x, mask)

    def mask(self, node_id: Tensor) -> Mask | None:
        """The mask that ``forward`` applies to a matrix with these rows; None if ``forward`` drops nothing."""
        return Mask(node_id, self.p, self.seed, self.epoch, self.layer) if self.training and self.p else None

    def extra_repr(self) -> str:
        return f"p={self.p}, layer={self.layer}"


def set_epoch(model: torch.nn.Module, epoch: int) -> None:
    """Set the ``epoch`` of every module of ``model`` that draws anew in each epoch, such as ``Dropout``."""
    for module in model.modules():
        if isinstance(module, DrawsByEpoch):
            module.epoch.fill_(epoch)


def activate(z: Tensor, activation: Activation) -> Tensor:
    """``activation`` of (n, F) ``z``, differentiable, where no product has applied it."""
    z = torch.relu(z) if activation.relu else z
    return z if activation.dropout is None else dropout(z, activation.dropout)
