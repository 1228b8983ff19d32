"""The share of L2 sectors that hit while one product runs, as ncu counts it on a GPU.

ncu is started over this same file as a program, which multiplies once in each order, with the mark of
``fullgnn/bench/gpu/hits.py`` before each.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from fullgnn.bench.gpu.hits import command, counted
from fullgnn.reproduce.result import Value

_LIMIT_S = 300.0
_PARTS = ("indptr", "indices")


def l2_hit_rates(matrices: Mapping[str, csr_array], width: int, device: torch.device) -> dict[str, Value]:
    """Per cent for each pattern, read by ``kernel=csr`` with ``width`` columns; or why it could not be measured.

    Where a product takes several launches, it is the mean of theirs.
    """
    ncu = shutil.which("ncu")
    if device.type != "cuda" or ncu is None:
        reason = "not measured" if device.type != "cuda" else "not measured: ncu is not on the PATH"
        return dict.fromkeys(matrices, reason)
    with tempfile.TemporaryDirectory(prefix="fullgnn-") as folder:
        path = Path(folder) / "matrices.npz"
        parts = {f"{name}.{part}": getattr(matrix, part) for name, matrix in matrices.items() for part in _PARTS}
        np.savez(path, **parts)  # type: ignore[arg-type]
        arguments = {"file": str(path), "names": list(matrices), "width": width}
        try:
            launches = counted(command(ncu, arguments, "fullgnn.reproduce.profiler"), _LIMIT_S)
        except (ValueError, subprocess.TimeoutExpired) as error:
            return dict.fromkeys(matrices, f"not measured: {error}")
    of_name = {name: [one["hit_rate_percent"] for one in launches if one["kernel"] == name] for name in matrices}
    return {name: mean(rates) if rates else "not measured" for name, rates in of_name.items()}


def program(arguments: dict[str, Any]) -> None:
    """What ncu watches: one product of each matrix, a mark before each."""
    from fullgnn.bench.gpu._gather_gpu import mark
    from fullgnn.kernels.spmm import LocalCSR, TritonCSR

    device, width = torch.device("cuda", 0), arguments["width"]
    marked = torch.empty(1, device=device)
    mark[(1,)](marked)
    cases = []
    with np.load(arguments["file"]) as arrays:
        for name in arguments["names"]:
            indptr, indices = (torch.from_numpy(arrays[f"{name}.{part}"]).int().to(device) for part in _PARTS)
            num_rows = len(indptr) - 1
            kernel = TritonCSR()
            block = kernel.prepare(LocalCSR(indptr, indices, None, num_rows, num_rows), torch.float32)
            x = torch.randn(num_rows, width, device=device)
            out = torch.empty_like(x)
            kernel.spmm(block, x, out, accumulate=False)  # compiles
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
            mark[(1,)](marked)
            kernel.spmm(block, x, out, accumulate=False)
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
            cases.append((name, width))
    print(f"cases: {json.dumps(cases)}", file=sys.stderr)


if __name__ == "__main__":
    program(json.loads(sys.argv[1]))
