"""Choose the kernel on a GPU for ``runtime.deterministic``, by a fixed rule instead of timing.

Where two kernels are about equally fast, timing may choose another one in another run, and the two add in different
orders. The fixed rule depends only on the shape of the block, the width and the GPU; each of its kernels adds in a
fixed order.

    packed    the entries are all 1, X is float32, the GPU multiplies bfloat16 (compute capability 8.0), there are 2^20
              entries or more, 32 a row or more, and 16 columns of X or more
    csr       everything else

The rule is a rule of thumb: tensor cores work on 16 columns at a time, a panel of 32 rows with less than 1,024 entries
repeats few columns, and the time of small blocks is mostly their launches. It was not fitted to times of a GPU. Where
the rule errs, an epoch takes longer; ``kernel=csr``, ``packed`` or ``tile32`` overrides it.
"""

import torch

from fullgnn.kernels.spmm.base import Kernel
from fullgnn.kernels.spmm.packed import Packed
from fullgnn.kernels.spmm.triton_csr import TritonCSR

MIN_EDGES = 1 << 20
MIN_DEGREE = 32
MIN_WIDTH = 16
TENSOR_CORES = (8, 0)


def fixed_choice(
    num_rows: int, nnz: int, width: int, *, pattern: bool, dtype: torch.dtype, capability: tuple[int, int]
) -> Kernel:
    """The kernel for a block of ``num_rows`` with ``nnz`` entries and X of ``width`` columns.

    Args:
        pattern: whether every entry is 1.
        dtype: dtype of X.
        capability: compute capability of the GPU.
    """
    served = pattern and dtype == torch.float32 and capability >= TENSOR_CORES
    large = nnz >= MIN_EDGES and nnz >= MIN_DEGREE * num_rows
    return Packed() if served and large and width >= MIN_WIDTH else TritonCSR()
