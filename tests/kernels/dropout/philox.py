"""Helpers that test_philox.py shares with other test modules."""

import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.dropout.philox import philox_4x32

LOW = 2**32 - 1


def reference(x: Tensor, node_id: Tensor, p: float, seed: int, epoch: int, layer: int) -> Tensor:
    """The definition, one Philox call for every element."""
    node, column = np.broadcast_arrays(node_id.numpy()[:, None], np.arange(x.shape[1])[None, :])
    counter = np.stack([node, column // 4, np.full_like(node, layer), np.full_like(node, epoch)], axis=-1)
    words = philox_4x32(counter, np.array([seed & LOW, seed >> 32]))
    word = np.take_along_axis(words, (column % 4)[..., None], axis=-1)[..., 0]
    kept = torch.from_numpy(word >= np.uint64(round(p * 2**32)))
    return torch.where(kept, x * (1 / (1 - p)), 0)
