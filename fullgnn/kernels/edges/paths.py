"""The choice among the implementations that process the edges of a block."""

import functools
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor

from fullgnn.kernels.support import gpu

_MODULES = {"triton": "_{family}_gpu", "compiled": "_{family}_cpu", "torch": "reference"}


def path_of(x: Tensor) -> Literal["triton", "compiled", "torch"]:
    """Triton on a GPU, compiled loops on a CPU, else torch operations, by the device and dtype of ``x``."""
    if x.dtype in (torch.float32, torch.float64):
        if gpu.runs_triton(x.device):
            return "triton"
        if gpu.runs_host_loops(x.device):
            return "compiled"
    return "torch"


def implementation(family: str, x: Tensor) -> Any:
    """The module of this folder that has the operations of a ``family`` for ``x``: ``_<family>_gpu.py``,
    ``_<family>_cpu.py`` or ``reference.py``. In each of them a function has the same name and arguments.

    It is imported here, at the first call: one imports Triton, which only GPUs need, another one numba, which must see
    the thread counts that the launcher sets.
    """
    return _module(family, path_of(x))


@functools.cache
def _module(family: str, path: str) -> Any:
    return import_module(f"{__package__}.{_MODULES[path].format(family=family)}")
