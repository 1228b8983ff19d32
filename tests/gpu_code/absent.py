"""Compile everything that the host would launch on a GPU, on a machine without a GPU.

The host's code runs on CPU tensors. Each kernel that this code asks for is compiled for a GPU of compute capability
9.0, or of another generation, and none is launched.
Importing this module imports Triton.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from fullgnn.kernels.support import aligned, gpu

CAPABILITY = 90


@dataclass(frozen=True)
class AbsentGPU:
    """A stand-in for Triton's driver that answers what Triton asks before a launch."""

    capability: int = CAPABILITY

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@dataclass(frozen=True, eq=False)
class Launch:
    """One kernel that the host has asked for."""

    module: str  # that defines the function
    function: str
    arguments: dict[str, Any]  # by name, without those that keep their defaults
    compiled: Any  # triton.compiler.CompiledKernel; None if nothing is compiled


@contextmanager
def recorded(compiles: bool = True, capability: int = CAPABILITY) -> Iterator[list[Launch]]:
    """Yield a list to which launches are appended instead of being made; each kernel is compiled, unless told not to.

    Inside the block, kernels in Triton take CPU tensors, whose rows are laid out as on a GPU. Afterwards Triton keeps
    the driver of the absent GPU: this process cannot launch a kernel any more, nor compile for another generation.
    """
    assert not gpu.interpreting(), "TRITON_INTERPRET is set: nothing would be compiled"
    launches: list[Launch] = []
    run = JITFunction.run

    def compile_only(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs) if compiles else None
        given = {name: value for name, value in kwargs.items() if name in self.arg_names}
        arguments = dict(zip(self.arg_names, args)) | given
        size = grid(arguments) if callable(grid) else grid
        assert all(0 < extent < 2**31 for extent in size), size
        launches.append(Launch(self.fn.__module__, self.__name__, arguments, kernel))
        return kernel

    driver.set_active(AbsentGPU(capability))
    with (
        mock.patch.object(JITFunction, "run", compile_only),
        mock.patch.object(gpu, "INTERPRETED", True),
        mock.patch.object(aligned, "LINE_BYTES", aligned.SECTOR_BYTES),
        mock.patch.object(aligned, "PADDED_DEVICES", ("cpu",)),
    ):
        yield launches
