"""Other libraries, one file each: ``SPMM`` and ``EPOCH`` hold their products and trainings, by the method's name.

A product is made by ``(problem) -> (x -> (A + I) @ x)``, a training by ``(problem, weights) -> step``. Libraries are
imported where they are used, so that a library that is not installed is missing alone. A maker may raise
``UnsupportedError`` for what its library cannot do: the benchmark then lists the method as missing, with that reason.
"""

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from fullgnn.bench.harness import Missing, attempt
from fullgnn.bench.peers import dgl, pyg, torch_sparse

Makers = Mapping[str, Mapping[str, Callable[..., Any]]]
"""Library -> method -> its maker."""

Made = tuple[Any, float]
"""What a maker returned, and the seconds that it took."""

SPMM: Makers = {"torch": torch_sparse.SPMM, "pyg": pyg.SPMM, "dgl": dgl.SPMM}
EPOCH: Makers = {"torch": torch_sparse.EPOCH, "pyg": pyg.EPOCH, "dgl": dgl.EPOCH}

_MODULE = {"pyg": "torch_geometric"}


def set_up(makers: Makers, libraries: list[str], *arguments: Any) -> tuple[dict[str, Made], list[Missing]]:
    """Call the makers of ``libraries`` with ``arguments``; a maker that fails is missing."""
    made: dict[str, Made] = {}
    missing = []
    for library in libraries:
        attempt(functools.partial(import_module, _MODULE.get(library, library)))  # not a part of any set-up time
        for name, maker in makers[library].items():
            result, setup_s, reason = attempt(functools.partial(maker, *arguments))
            if reason:
                missing.append(Missing(name, reason))
            else:
                made[name] = result, setup_s
    return made, missing
