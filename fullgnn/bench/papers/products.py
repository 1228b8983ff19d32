"""Single sparse products to be timed, and the fraction of their L2 sectors that hit on a GPU.

ncu counts the hits, over this same file as a program that multiplies once by each pattern: see ``bench/gpu/hits.py``.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from scipy.sparse import csr_array, load_npz, save_npz
from torch import Tensor

from fullgnn.bench.gpu.hits import command, counted, watched
from fullgnn.bench.papers.graphs import configured
from fullgnn.bench.papers.result import Value
from fullgnn.config import build
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.storage.folder import temporary_folder


def kernel_label(kernel: str, device: torch.device) -> str:
    """Label a row of times; ``auto`` is named by the kernel that it takes on ``device``."""
    return f"SpMM, kernel={_kernel(kernel).name_for(device, torch.float32)}"


def product(kernel: str, matrix: csr_array, x: Tensor) -> Callable[[], Tensor]:
    """Make a function that multiplies the pattern of ``matrix``, all entries 1, by ``x``, always into the same tensor.

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
    return build(configured(f"kernel={name}").kernel)


def l2_hit_rates(matrices: Mapping[str, csr_array], width: int, device: torch.device) -> dict[str, Value]:
    """Count the L2 hits, in per cent, of ``kernel=csr`` on each pattern with ``width`` columns; or say why not.

    If a product takes several launches, its rate is the mean of theirs.
    """
    ncu = shutil.which("ncu")
    if device.type != "cuda" or ncu is None:
        reason = "not measured" if device.type != "cuda" else "not measured: ncu is not on the PATH"
        return dict.fromkeys(matrices, reason)
    with temporary_folder() as folder:
        for name, matrix in matrices.items():
            save_npz(folder / f"{name}.npz", matrix, compressed=False)
        arguments = {"folder": str(folder), "names": list(matrices), "width": width}
        try:
            launches = counted(command(ncu, arguments, "fullgnn.bench.papers.products"), seconds=300.0)
        except (ValueError, subprocess.TimeoutExpired) as error:
            return dict.fromkeys(matrices, f"not measured: {error}")
    rates = {name: [launch["hit_rate_percent"] for launch in launches if launch["kernel"] == name] for name in matrices}
    return {name: mean(of_name) if of_name else "not measured" for name, of_name in rates.items()}


def stored_products(folder: str, names: Iterable[str], width: int) -> Iterable[tuple[str, int, Callable[[], Tensor]]]:
    """Make, under ncu, one product with each matrix that is stored in ``folder``, as ``watched`` takes it."""
    for name in names:
        matrix = load_npz(Path(folder) / f"{name}.npz")
        yield name, width, product("csr", matrix, torch.randn(matrix.shape[1], width, device="cuda"))


if __name__ == "__main__":
    watched(stored_products(**json.loads(sys.argv[1])))
