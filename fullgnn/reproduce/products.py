"""Times of single sparse products, by the benchmark's rules: interleaved rounds, warm-up, medians."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.bench.harness import Measurement, Method, measure, timed
from fullgnn.config import build
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import world_of_one
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.reproduce.config import TargetConfig

_WARMUP = 1
_BUDGET_S = 60.0
"""A product that took longer in all stops after the benchmark's least number of rounds."""


def kernel_label(kernel: str, device: torch.device) -> str:
    """The label of a row of times; ``auto`` is named by the kernel that it takes on ``device``."""
    return f"SpMM, kernel={_kernel(kernel).name_for(device, torch.float32)}"


def time_products(
    cfg: TargetConfig, kernels: Iterable[str], operands: Mapping[str, tuple[csr_array, Tensor]], rounds: int
) -> dict[str, Measurement]:
    """Time every kernel on every pair of a pattern and a dense matrix; each round runs all of them once.

    Returns:
        the measurements by ``<kernel> <name of the pair>``.
    """
    device, threads = cfg.torch_device, torch.get_num_threads()
    steps = {f"{k} {name}": product(k, matrix, x) for name, (matrix, x) in operands.items() for k in kernels}
    methods = [Method(name, "ours", timed(step, device), 1, threads) for name, step in steps.items()]
    with world_of_one(device) as world:
        measurements, _ = measure(methods, world, rounds, _WARMUP, _BUDGET_S)
    return {one.name: one for one in measurements}


def product(kernel: str, matrix: csr_array, x: Tensor) -> Callable[[], Tensor]:
    """A function that multiplies the pattern of ``matrix``, all entries 1, by ``x`` and returns the same tensor always.

    Args:
        matrix: (num_rows, num_cols).
        x: (num_cols, width) float32.
    """
    indptr, indices = (torch.from_numpy(array).int().to(x.device) for array in (matrix.indptr, matrix.indices))
    built = _kernel(kernel)
    block = built.prepare(LocalCSR(indptr, indices, None, *matrix.shape), torch.float32)
    out = x.new_empty(matrix.shape[0], x.shape[1])

    def multiply() -> Tensor:
        built.spmm(block, x, out, accumulate=False)
        return out

    return multiply


def _kernel(name: str) -> Any:
    return build(load_config(compose(f"kernel={name}")).kernel)
