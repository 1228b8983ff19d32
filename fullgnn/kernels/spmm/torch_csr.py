"""torch's own CSR product: MKL on a CPU, cuSPARSE on a GPU."""

import warnings

import torch
from torch import Tensor

from fullgnn.kernels.epilogue.epilogue import apply_epilogue_
from fullgnn.kernels.spmm.base import NO_EPILOGUE, Epilogue, LocalCSR


class TorchCSR:
    """``torch.addmm`` with a CSR matrix, on every device and for every dtype that torch supports.

    The indices stay int32, since MKL would convert int64 at every call. A pattern gets values of 1.
    """

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> Tensor:
        values = adj.indices.new_ones(adj.nnz, dtype=dtype) if adj.values is None else adj.values.to(dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse")  # "beta state", "invariant checks"
            return torch.sparse_csr_tensor(
                adj.indptr, adj.indices, values, (adj.num_rows, adj.num_cols), check_invariants=False
            )

    def spmm(self, block: Tensor, x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE) -> None:
        torch.addmm(out, block, x, beta=1 if accumulate else 0, out=out)
        apply_epilogue_(out, epilogue)

    def tensors(self, block: Tensor) -> list[Tensor]:
        return [block.crow_indices(), block.col_indices(), block.values()]

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        return "torch"
