"""Copy some rows of a matrix."""

import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.support.threads import even_slices, parallel_for

MIN_SHARED_BYTES = 1 << 19  # fewer are copied by one thread: waking others costs as much
CHUNKS_PER_THREAD = 4


def gather_rows(x: Tensor, index: Tensor, out: Tensor) -> Tensor:
    """Write the rows ``index`` of (n, F) ``x`` to (m, F) ``out``, whose rows may have any stride; returns ``out``."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return out.copy_(x.index_select(0, index))
    gather_into(x.detach().numpy(), index.numpy(), out.numpy())
    return out


def gather_into(source: np.ndarray, rows: np.ndarray, target: np.ndarray) -> None:
    """``gather_rows`` of arrays."""
    from fullgnn.sampling._gather_cpu import gather  # imports numba

    shared = target.nbytes >= MIN_SHARED_BYTES
    parts = even_slices(len(rows), CHUNKS_PER_THREAD * torch.get_num_threads() if shared else 1)
    parallel_for(lambda part: gather(source, rows[part], target[part]), parts)
