"""Helpers that test_convert.py shares with other test modules."""

from types import SimpleNamespace

import numpy as np
import torch

ARCS = torch.tensor([[0, 1, 2, 2], [1, 2, 3, 0]])
NODE = torch.arange(4)
EXPECTED = np.zeros((4, 4))
EXPECTED[[1, 2, 3, 0], [0, 1, 2, 2]] = [1, 2, 3, 4]  # each target reads from its source


WEIGHT = torch.tensor([1.0, 2, 3, 4])


def data(**changes):
    sound = dict(
        edge_index=ARCS, x=torch.eye(4), y=NODE % 2, train_mask=NODE < 2, val_mask=NODE == 2, test_mask=NODE > 2
    )
    return SimpleNamespace(**{**sound, **changes})
