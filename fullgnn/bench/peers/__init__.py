"""Other libraries, one file each: ``SPMM`` and ``EPOCH`` name what they have, by the method's name.

A product is ``(problem) -> (x -> (A + I) @ x)``; a training is ``(problem, weights) -> step``, made with
``training.trainer``. Libraries are imported where they are used, so that one that is missing is missing alone. A maker
may raise ``UnsupportedError`` for what its library cannot do: the benchmark then names the method with that reason.
"""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

from fullgnn.bench.harness import Missing, attempt
from fullgnn.bench.peers import dgl, pyg, torch_sparse

Makers = dict[str, dict[str, Callable[..., Any]]]
"""Library -> method -> its maker."""

SPMM: Makers = {"torch": torch_sparse.SPMM, "pyg": pyg.SPMM, "dgl": dgl.SPMM}
EPOCH: Makers = {"torch": torch_sparse.EPOCH, "pyg": pyg.EPOCH, "dgl": dgl.EPOCH}

_MODULE = {"torch": "torch", "pyg": "torch_geometric", "dgl": "dgl"}


def set_up(makers: Makers, libraries: list[str], *arguments: Any) -> tuple[dict[str, tuple[Any, float]], list[Missing]]:
    """What each maker of ``libraries`` makes of ``arguments``, with the seconds it took, imports apart."""
    made: dict[str, tuple[Any, float]] = {}
    missing = []
    for library in libraries:
        _, _, absent = attempt(functools.partial(import_module, _MODULE[library]))
        for name, maker in makers[library].items():
            result, setup_s, reason = (None, 0.0, absent) if absent else attempt(functools.partial(maker, *arguments))
            if reason:
                missing.append(Missing(name, reason))
            else:
                made[name] = result, setup_s
    return made, missing
