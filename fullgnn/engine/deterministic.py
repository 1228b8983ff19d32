"""Refuse what ``runtime.deterministic`` cannot allow: choices by timing, and kernels that sum in no fixed order."""

import torch

from fullgnn.config import Config, build
from fullgnn.errors import ConfigError
from fullgnn.kernels.spmm import AutoKernel, TorchCSR
from fullgnn.kernels.support import gpu


def check_deterministic(cfg: Config, device: torch.device) -> None:
    """Check that ``cfg`` can be deterministic on ``device``, if ``runtime.deterministic`` requests it.

    Raises:
        ConfigError: a choice of ``cfg`` is not deterministic; the same on every rank.
    """
    if not cfg.runtime.deterministic:
        return
    if cfg.scheme["name"] == "auto" and cfg.scheme["hardware"] == "auto":
        raise ConfigError(
            "runtime.deterministic=true: scheme=auto chooses by timings of this machine: name a scheme, or a "
            "profile with scheme.hardware=..."
        )
    if device.type != "cuda":
        return
    kernel = build(cfg.kernel)
    if isinstance(kernel, TorchCSR):
        raise ConfigError(
            "runtime.deterministic=true: kernel=torch is cuSPARSE on a GPU, which may differ from run to run: use "
            "kernel=auto, csr, packed or tile32"
        )
    if isinstance(kernel, AutoKernel) and not gpu.runs_triton(device):
        raise ConfigError(
            "runtime.deterministic=true: without Triton 3.6 or later, kernel=auto is cuSPARSE on a GPU, which may "
            "differ from run to run: install Triton, which torch 2.10 brings"
        )
