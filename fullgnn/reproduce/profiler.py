"""The fraction of L2 sectors that hit while one product runs, as ncu counts it on a GPU.

ncu is started over this same file as a program, which multiplies once in each order, with the mark of
``fullgnn/bench/gpu/hits.py`` before each product.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

import torch
from scipy.sparse import csr_array, load_npz, save_npz

from fullgnn.bench.gpu.hits import command, counted
from fullgnn.reproduce.products import product
from fullgnn.reproduce.result import Value

_LIMIT_S = 300.0


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
            launches = counted(command(ncu, arguments, "fullgnn.reproduce.profiler"), _LIMIT_S)
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
