"""Local sparse times dense: one file a kernel, all with the contract of ``Kernel``."""

from fullgnn.kernels.base import Kernel, LocalCSR
from fullgnn.kernels.torch_csr import TorchCSR

__all__ = ["Kernel", "LocalCSR", "TorchCSR"]
