"""What several processes have compiled and cached works in one process that loads all of it."""

import importlib
import sys
from pathlib import Path

import numpy as np

from tests.commands import forkserver

MODULE = """
import numpy as np
from fullgnn.kernels.support.vectors import compiled


@compiled()
def sort(x):
    x.sort()


@compiled()
def argsort(x):
    return np.argsort(x)
"""


def call(folder: Path, *names: str) -> None:
    """Call functions of the module in ``folder``; the process ends with 1 if a result is wrong."""
    sys.path.insert(0, str(folder))
    module, x = importlib.import_module("two_functions"), np.random.default_rng(0).permutation(500).astype(np.int32)
    for name in names:
        if name == "sort":
            ordered = x.copy()
            module.sort(ordered)
        else:
            ordered = x[np.clip(module.argsort(x), 0, 499)]
        if not np.array_equal(ordered, np.arange(500)):
            sys.exit(1)


def test_functions_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "two_functions.py").write_text(MODULE)
    for names in (("sort",), ("argsort",), ("sort", "argsort"), ("argsort", "sort")):
        process = forkserver().Process(target=call, args=(tmp_path, *names))
        process.start()
        process.join(60)
        assert process.exitcode == 0, names
