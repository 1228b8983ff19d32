"""Local sparse times dense: one file a kernel, all with the contract of ``Kernel``."""

from fullgnn.kernels.auto import AutoKernel
from fullgnn.kernels.base import NOTHING, Epilogue, Kernel, LocalCSR
from fullgnn.kernels.blocked import BlockedCSR
from fullgnn.kernels.packed import Packed
from fullgnn.kernels.persistent import PersistentCSR
from fullgnn.kernels.tile32 import Tile32
from fullgnn.kernels.torch_csr import TorchCSR
from fullgnn.kernels.triton_csr import TritonCSR

__all__ = [
    "NOTHING",
    "AutoKernel",
    "BlockedCSR",
    "Epilogue",
    "Kernel",
    "LocalCSR",
    "Packed",
    "PersistentCSR",
    "Tile32",
    "TorchCSR",
    "TritonCSR",
]
