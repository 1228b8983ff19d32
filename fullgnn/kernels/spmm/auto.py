"""The default kernel, which chooses another kernel for each block."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fullgnn.kernels.spmm.autotune import Autotune
from fullgnn.kernels.spmm.base import NO_EPILOGUE, Epilogue, Kernel, LocalCSR
from fullgnn.kernels.spmm.blocked import BlockedCSR
from fullgnn.kernels.spmm.torch_csr import TorchCSR
from fullgnn.kernels.support import gpu
from fullgnn.storage.cache import Cache


class AutoKernel:
    """For float32 and float64, ``BlockedCSR`` on a CPU and the autotuned kernel on a GPU; otherwise ``TorchCSR``."""

    def __init__(self) -> None:
        self._blocked, self._torch = BlockedCSR(), TorchCSR()
        self._cache, self._by_rule = Cache(None), False

    @cached_property
    def _autotune(self) -> Autotune:
        return Autotune(self._cache, self._by_rule)

    def remember_in(self, cache: Cache) -> None:
        """Store the autotuned choices for blocks on a GPU in ``cache``, and look them up there first.

        As ``choose_by_rule``, it is called before the first block is prepared.
        """
        self._cache = cache

    def choose_by_rule(self) -> None:
        """On a GPU, choose by a fixed rule instead of timing, for ``runtime.deterministic``."""
        self._by_rule = True

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> tuple[Kernel, Any]:
        kernel = self._choose(adj.indices.device, dtype)
        return kernel, kernel.prepare(adj, dtype)

    def spmm(
        self, block: tuple[Kernel, Any], x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE
    ) -> None:
        kernel, prepared = block
        kernel.spmm(prepared, x, out, accumulate, epilogue)

    def tensors(self, block: tuple[Kernel, Any]) -> list[Tensor]:
        kernel, prepared = block
        return kernel.tensors(prepared)

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        return self._choose(device, dtype).name_for(device, dtype)

    def _choose(self, device: torch.device, dtype: torch.dtype) -> Kernel:
        if gpu.runs_triton(device) and dtype in (torch.float32, torch.float64):
            return self._autotune
        return self._blocked if self._blocked.supports(device, dtype) else self._torch
