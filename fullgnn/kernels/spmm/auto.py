"""The default kernel, which chooses another kernel for each block."""

from functools import cached_property

import torch

from fullgnn.kernels.spmm.autotune import Autotune
from fullgnn.kernels.spmm.base import BlockKernel, Kernel, LocalCSR, Prepared
from fullgnn.kernels.spmm.blocked import BlockedCSR
from fullgnn.kernels.spmm.torch_csr import TorchCSR
from fullgnn.kernels.support import gpu
from fullgnn.storage.cache import Cache


class AutoKernel(BlockKernel):
    """For float32 and float64, ``BlockedCSR`` on a CPU and the autotuned kernel on a GPU; otherwise ``TorchCSR``."""

    def __init__(self) -> None:
        self._blocked, self._torch = BlockedCSR(), TorchCSR()
        self._cache, self._by_rule = Cache(None), False

    @cached_property
    def autotune(self) -> Autotune:
        return Autotune(self._cache, self._by_rule)

    def remember_in(self, cache: Cache) -> None:
        """Store the autotuned choices for blocks on a GPU in ``cache``, and look them up there first.

        As ``choose_by_rule``, it is called before the first block is prepared.
        """
        self._cache = cache

    def choose_by_rule(self) -> None:
        """On a GPU, choose by a fixed rule instead of timing, for ``runtime.deterministic``."""
        self._by_rule = True

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> Prepared:
        kernel = self._choose(adj.indices.device, dtype)
        return Prepared(kernel, kernel.prepare(adj, dtype))

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        return self._choose(device, dtype).name_for(device, dtype)

    def _choose(self, device: torch.device, dtype: torch.dtype) -> Kernel:
        if gpu.runs_triton(device) and dtype in (torch.float32, torch.float64):
            return self.autotune
        return self._blocked if self._blocked.supports(device, dtype) else self._torch
