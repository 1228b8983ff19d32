"""Single sparse products: their times, by the benchmark's rules, and the fraction of L2 sectors that hit on a GPU.

ncu counts the hits. It is started over this same file as a program, which multiplies once by each pattern, with the
mark of ``fullgnn/bench/gpu/hits.py`` before each product.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from scipy.sparse import csr_array, load_npz, save_npz
from torch import Tensor

from fullgnn.bench.gpu.hits import command, counted
from fullgnn.bench.harness import Measurement, interleaved
from fullgnn.config import build
from fullgnn.config.compose import compose, load_config
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.reproduce.config import TargetConfig
from fullgnn.reproduce.result import Value

_NCU_LIMIT_S = 300.0


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
    steps = {f"{k} {name}": product(k, matrix, x) for name, (matrix, x) in operands.items() for k in kernels}
    return interleaved(steps, cfg.torch_device, rounds)


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


def l2_hit_rates(matrices: Mapping[str, csr_array], width: int, device: torch.device) -> dict[str, Value]:
    """Hit rate in per cent of each pattern, read by ``kernel=csr`` with ``width`` columns; or why there is none.

    If a product takes several launches, its rate is the mean of theirs.
    """
    ncu = shutil.which("ncu")
    if device.type != "cuda" or ncu is None:
        reason = "not measured" if device.type != "cuda" else "not measured: ncu is not on the PATH"
        return dict.fromkeys(matrices, reason)
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
        for name, matrix in matrices.items():
            save_npz(Path(folder) / f"{name}.npz", matrix, compressed=False)
        arguments = {"folder": folder, "names": list(matrices), "width": width}
        try:
            launches = counted(command(ncu, arguments, "fullgnn.reproduce.products"), _NCU_LIMIT_S)
        except (ValueError, subprocess.TimeoutExpired) as error:
            return dict.fromkeys(matrices, f"not measured: {error}")
    rates = {name: [one["hit_rate_percent"] for one in launches if one["kernel"] == name] for name in matrices}
    return {name: mean(of_name) if of_name else "not measured" for name, of_name in rates.items()}


def program(folder: str, names: list[str], width: int) -> None:
    """The program under ncu: a mark and one product for each matrix."""
    from fullgnn.bench.gpu._gather_gpu import mark

    device = torch.device("cuda", 0)
    marked = torch.empty(1, device=device)
    mark[(1,)](marked)
    for name in names:
        matrix = load_npz(Path(folder) / f"{name}.npz")
        multiply = product("csr", matrix, torch.randn(matrix.shape[1], width, device=device))
        multiply()  # compiles
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        mark[(1,)](marked)
        multiply()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    print(f"cases: {json.dumps([(name, width) for name in names])}", file=sys.stderr)


if __name__ == "__main__":
    program(**json.loads(sys.argv[1]))
