"""Tensors on memory that nobody writes to."""

import warnings

import numpy as np
import torch


def read_only_tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor on the memory of ``array``, which other processes may read too: nobody writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
