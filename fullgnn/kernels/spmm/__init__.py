"""Local products of a sparse and a dense matrix: one file per kernel, all with the contract of ``Kernel``."""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.spmm.auto import AutoKernel
    from fullgnn.kernels.spmm.base import NO_EPILOGUE, Epilogue, Kernel, LocalCSR
    from fullgnn.kernels.spmm.blocked import BlockedCSR
    from fullgnn.kernels.spmm.packed import Packed
    from fullgnn.kernels.spmm.tile32 import Tile32
    from fullgnn.kernels.spmm.torch_csr import TorchCSR
    from fullgnn.kernels.spmm.triton_csr import TritonCSR

__all__ = [
    "NO_EPILOGUE",
    "AutoKernel",
    "BlockedCSR",
    "Epilogue",
    "Kernel",
    "LocalCSR",
    "Packed",
    "Tile32",
    "TorchCSR",
    "TritonCSR",
]

import_on_use(__name__)
