"""torch's own CSR product: MKL on a CPU, cuSPARSE on a GPU."""

import warnings

import torch
from torch import Tensor

from fullgnn.kernels.base import LocalCSR


class TorchCSR:
    """``torch.addmm`` with a CSR matrix. Its indices stay int32, which MKL wants: int64 is converted at every call."""

    def prepare(self, adj: LocalCSR) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse")  # "beta state", "invariant checks"
            return torch.sparse_csr_tensor(
                adj.indptr, adj.indices, adj.values, (adj.num_rows, adj.num_cols), check_invariants=False
            )

    def spmm(self, block: Tensor, x: Tensor, out: Tensor, accumulate: bool) -> None:
        torch.addmm(out, block, x, beta=1 if accumulate else 0, out=out)
