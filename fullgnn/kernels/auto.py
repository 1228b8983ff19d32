"""The kernel for those who do not want to choose one."""

from typing import Any

import torch
from torch import Tensor

from fullgnn.kernels.base import NOTHING, Epilogue, Kernel, LocalCSR
from fullgnn.kernels.blocked import BlockedCSR
from fullgnn.kernels.torch_csr import TorchCSR


class AutoKernel:
    """``BlockedCSR`` where it can multiply, float32 and float64 on a CPU, and ``TorchCSR`` everywhere else."""

    def __init__(self) -> None:
        self._blocked, self._torch = BlockedCSR(), TorchCSR()

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> tuple[Kernel, Any]:
        kernel = self._choose(adj.indices.device, dtype)
        return kernel, kernel.prepare(adj, dtype)

    def spmm(
        self, block: tuple[Kernel, Any], x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NOTHING
    ) -> None:
        kernel, prepared = block
        kernel.spmm(prepared, x, out, accumulate, epilogue)

    def tensors(self, block: tuple[Kernel, Any]) -> list[Tensor]:
        kernel, prepared = block
        return kernel.tensors(prepared)

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        return self._choose(device, dtype).name_for(device, dtype)

    def _choose(self, device: torch.device, dtype: torch.dtype) -> Kernel:
        return self._blocked if self._blocked.supports(device, dtype) else self._torch
