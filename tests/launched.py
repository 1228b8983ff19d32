"""All that a GPU would be given, up to the launch: the host's side of each kernel runs on CPU tensors, its arguments
are packed, the kernel that they ask for is compiled, and then nothing is launched.

    python -m tests.launched

Run it without TRITON_INTERPRET. It prints the number of launches, and of kernels compiled for them.
"""

from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from fullgnn import gpu
from fullgnn._philox_gpu import dropout_gpu
from fullgnn.kernels import Epilogue, Kernel, Packed, PersistentCSR, Tile32, TritonCSR, panels, tuning
from fullgnn.kernels._epilogue_gpu import apply_gpu
from fullgnn.kernels.tuning import tuning_of
from fullgnn.nn._dense_gpu import activation_gradients_gpu, matmul_gpu
from fullgnn.nn._loss_gpu import cross_entropy_gpu
from fullgnn.philox import Mask
from tests.kernels.test_kernels import Matrix, local_csr


class NoGPU:
    """The driver of a GPU of the Hopper generation that is not there."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


launches: list[str] = []
compiled: set[int] = set()


def hold_launches() -> None:
    driver.set_active(NoGPU())
    run = JITFunction.run

    def compile_only(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        assert all(0 < size < 2**31 for size in grid), grid
        launches.append(self.__name__)
        compiled.add(id(kernel))
        return kernel

    JITFunction.run = compile_only


def finished(num_rows: int, width: int, dtype: torch.dtype, seed: int) -> Epilogue:
    mask = Mask(torch.arange(num_rows), 0.5, seed, torch.tensor(1), layer=seed % 2)
    return Epilogue(torch.ones(num_rows, dtype=dtype), torch.ones(width, dtype=dtype), True, mask)


def products() -> None:
    adj, _ = local_csr(Matrix(200, 300, 9, hub=13).mask(), weighted=False)
    weighted, _ = local_csr(Matrix(200, 300, 9, hub=13).mask(), weighted=True)

    def multiply(kernel: Kernel, block: Any, width: int, dtype: torch.dtype, accumulate: bool, ends: Epilogue) -> None:
        x, out = (torch.ones(rows, 8 * -(-width // 8), dtype=dtype)[:, :width] for rows in (300, 200))
        kernel.spmm(kernel.prepare(block, dtype), x, out, accumulate, ends)

    for width in (41, 128):
        for seed, accumulate in ((1, False), (2**63 + 5, True)):
            multiply(TritonCSR(), adj, width, torch.float32, accumulate, finished(200, width, torch.float32, seed))
    for width, passes in ((41, None), (602, 32)):
        multiply(PersistentCSR("ieee", passes), adj, width, torch.float32, True, finished(200, width, torch.float32, 1))
    multiply(PersistentCSR("bf16"), weighted, 8, torch.float32, False, Epilogue())
    multiply(TritonCSR("bf16"), adj, 100, torch.float32, False, Epilogue())
    multiply(TritonCSR(), weighted, 41, torch.float64, True, finished(200, 41, torch.float64, 0))
    for kernel in (Tile32(0.0), Packed(32), Packed(64, "bf16"), Packed(128, "ieee")):
        multiply(kernel, adj, 41, torch.float32, True, Epilogue())


def neighbours() -> None:
    """What stands around the sparse products."""
    for rows, depth, width in ((1, 1, 1), (37, 41, 47)):
        ends, x = finished(rows, width, torch.float32, 2**64 - 1), torch.ones(rows, depth)
        matmul_gpu(x, torch.ones(depth, width), ends, True)
        matmul_gpu(x, torch.ones(width, depth).t(), Epilogue(None, ends.bias), False)
        g = torch.ones(rows, width)
        for output, scale in ((None, ends.scale), (g, None), (g, ends.scale)):
            activation_gradients_gpu(g, output, 2.0, scale)
        dropout_gpu(g, g, ends.dropout)
        apply_gpu(g, ends)
        cross_entropy_gpu(g, torch.zeros(rows, dtype=torch.int64), 1.0)


if __name__ == "__main__":
    assert not gpu.interpreting()
    gpu.INTERPRETED = True
    tuning.use(tuning_of({"csr": {"heavy": 100, "part": 40}, "persistent": {"heavy": 100}}))
    panels.SPLIT_GROUPS, panels.PART_GROUPS = 3, 2
    hold_launches()
    products()
    neighbours()
    print(len(launches), len(compiled), *sorted(set(launches)))
