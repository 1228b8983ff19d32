"""Helpers that test_kernels.py shares with other test modules."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.spmm import LocalCSR


@dataclass
class Matrix:
    """(num_rows, num_cols) with mean ``degree``; every seventh row is empty."""

    num_rows: int
    num_cols: int
    degree: float
    hub: int | None = None  # a row with an entry in every column

    def mask(self) -> np.ndarray:
        random = np.random.default_rng(0)
        mask = random.random((self.num_rows, self.num_cols)) < self.degree / self.num_cols
        mask[3::7] = False
        mask[0, [0, -1]] = True
        if self.hub is not None:
            mask[self.hub] = True
        return mask


def local_csr(mask: np.ndarray, weighted: bool) -> tuple[LocalCSR, Tensor]:
    """The block, and its entries as a dense float64 matrix."""
    rows, columns = mask.nonzero()
    indptr = np.searchsorted(rows, np.arange(len(mask) + 1))
    dense = torch.from_numpy(mask.astype(np.float64))
    values = None
    if weighted:
        values = torch.from_numpy(np.random.default_rng(1).integers(-3, 4, len(rows))).float()
        dense[rows, columns] = values.double()
    indices = [torch.from_numpy(array.astype(np.int32)) for array in (indptr, columns)]
    return LocalCSR(*indices, values, *mask.shape), dense


def integers(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
