"""``runtime.deterministic``: the same bits in every run of the same configuration on the same machines.

On a CPU every run is deterministic without this option: every sum has a fixed order, whatever the number of threads. On
a GPU the option requires

    sparse products    kernels whose sums have a fixed order, chosen by a fixed rule (``kernels/spmm/fixed_choice.py``)
                       instead of by timing; cuSPARSE is refused, since its CSR product guarantees no order
    NCCL               no NVLS algorithm: with it, NVLink switches add in an order that may differ between calls. The
                       ring and tree algorithms add in an order that depends only on the ranks and the size
    cuBLAS             a workspace of fixed size; without it, sums may differ if several streams use cuBLAS
                       (docs.nvidia.com/cuda/cublas, "Results reproducibility")

The other GPU operations of a step either add nothing (copies, masks, comparisons, the optimizer), add in a fixed order
(sums over a dim), or add atomically, but only once to each element: the gradient of ``index_select`` by the training
rows, and the loss, which subtracts 1 from an element of each row if there are more classes than its kernel supports.
"""

import os

from fullgnn.config import RuntimeConfig

VARIABLES = {"NCCL_ALGO": "^NVLS,NVLSTree", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def prepare_environment(runtime: RuntimeConfig) -> None:
    """Set the environment variables that the libraries read at their start, unless the user has set them."""
    if runtime.deterministic:
        for name, value in VARIABLES.items():
            os.environ.setdefault(name, value)
