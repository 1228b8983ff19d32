"""``runtime.deterministic``: the same bits in every run of the same configuration on the same machines.

On a CPU that is so without it: every sum has a fixed order, which threads do not change. On a GPU it asks for

    sparse products    kernels whose sums have a fixed order, chosen by a fixed rule (``kernels/spmm/fixed_choice.py``)
                       instead of by time; cuSPARSE is refused, since its CSR product makes no such promise
    NCCL               no NVLS: the switches of NVLink add in an order of their own, which may differ between calls.
                       Ring and tree add in an order that the ranks and the size decide
    cuBLAS             a workspace of fixed size, without which its sums may differ where several streams use it
                       (docs.nvidia.com/cuda/cublas, "Results reproducibility")

What else torch computes on a GPU in a step either adds nothing (copies, masks, comparisons, the optimizer), adds in a
fixed order (sums over a dim), or adds with atomics to places that occur once each: the gradient of ``index_select`` by
the training rows, and the 1 that a loss over more classes than its kernel takes subtracts from each row.
"""

import os

from fullgnn.config import RuntimeConfig

VARIABLES = {"NCCL_ALGO": "^NVLS,NVLSTree", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def prepare_environment(runtime: RuntimeConfig) -> None:
    """Set what the libraries read as they start, unless the user has."""
    if runtime.deterministic:
        for name, value in VARIABLES.items():
            os.environ.setdefault(name, value)
