"""All that a GPU of the Hopper generation would be given, up to the launch, on a machine without one.

The host's side of each kernel runs on CPU tensors; its arguments are packed, the kernel that they ask for is compiled
for sm_90, and then nothing is launched. Importing this module imports Triton.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from fullgnn.kernels.support import gpu, lines

CAPABILITY = 90


class AbsentGPU:
    """What Triton asks a driver before a launch."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", CAPABILITY, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@dataclass(frozen=True, eq=False)
class Launch:
    """One kernel that the host has asked for."""

    function: str
    arguments: dict[str, Any]  # by name, those that have defaults and were not given left out
    grid: tuple[int, ...]
    compiled: Any  # triton.compiler.CompiledKernel

    def pointer_names(self) -> dict[int, str]:
        """The tensors among the parameters of the compiled kernel, by the number of the parameter."""
        signature = self.compiled.src.signature
        passed = [name for name, kind in signature.items() if kind != "constexpr"]
        return {number: name for number, name in enumerate(passed) if str(signature[name]).startswith("*")}


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Within it, kernels serve CPU tensors, rows are laid out as on a GPU, and launches go to the list instead.

    Afterwards, Triton still has the driver of the absent GPU: this process cannot launch a kernel any more.
    """
    assert not gpu.interpreting(), "TRITON_INTERPRET is set: nothing would be compiled"
    launches: list[Launch] = []
    run, interpreted, line_bytes = JITFunction.run, gpu.INTERPRETED, lines.LINE_BYTES

    def compile_only(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        given = {name: value for name, value in kwargs.items() if name in self.arg_names}
        arguments = dict(zip(self.arg_names, args)) | given
        size = grid(arguments) if callable(grid) else grid
        assert all(0 < extent < 2**31 for extent in size), size
        launches.append(Launch(self.__name__, arguments, tuple(size), kernel))
        return kernel

    driver.set_active(AbsentGPU())
    JITFunction.run, gpu.INTERPRETED, lines.LINE_BYTES = compile_only, True, lines.SECTOR_BYTES  # type: ignore[method-assign]
    try:
        yield launches
    finally:
        JITFunction.run, gpu.INTERPRETED, lines.LINE_BYTES = run, interpreted, line_bytes  # type: ignore[method-assign]
