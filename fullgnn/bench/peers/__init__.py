"""Other libraries, one file each: their products (``SPMM``) and models (``MODELS``), by the method's name.

``training.py`` has PyTorch itself and what the models share, and ``sampled.py`` sampled training. Libraries are
imported where they are used, so that only those are missing that are not installed. A maker may raise
``UnsupportedError`` for what its library cannot do: the benchmark then lists the method as missing, with that reason.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from torch import Tensor

from fullgnn.bench.config import MODELS
from fullgnn.bench.harness import Method, attempt
from fullgnn.bench.peers import dgl, pyg, training
from fullgnn.bench.problem import Problem

Makers = Mapping[str, Mapping[str, Callable[..., Any]]]
"""Library -> method -> its maker."""


_LIBRARIES = {"torch": training, "pyg": pyg, "dgl": dgl}
SPMM: Makers = {library: file.SPMM for library, file in _LIBRARIES.items()}
"""(problem) -> a function x -> (A + I) @ x."""
MODULE = {"pyg": "torch_geometric"}
"""The module of a library, where its name is another one."""


def epoch_makers(model: str) -> Makers:
    """(problem, weights) -> a function that launches one epoch of ``model``; what it returns waits for the loss, and
    reads it. With gnn=gcn a maker also takes ``dropout``, the rate on the hidden layer."""
    launcher = training.link_launcher if MODELS[model].finds_links else training.launcher

    def epochs(make: training.Maker, problem: Problem, weights: list[Tensor], **options: Any) -> training.LaunchEpoch:
        return launcher(make(problem, weights, **options), problem)

    known = {library: file.MODELS.get(model, {}).items() for library, file in _LIBRARIES.items()}
    return {library: {name: functools.partial(epochs, make) for name, make in own} for library, own in known.items()}


def candidates(makers: Makers, libraries: Iterable[str], *arguments: Any, **case: Any) -> list[Method]:
    """The methods of some ``libraries``, whose ``run`` makes what is timed, of ``arguments`` and the ``case``."""
    known = {library: makers.get(library, {}) for library in libraries}
    for library in filter(known.get, known):
        attempt(functools.partial(import_module, MODULE.get(library, library)))  # not a part of any set-up time
    own = {name: make for methods in known.values() for name, make in methods.items()}
    return [Method(name, "peer", functools.partial(make, *arguments, **case), case=case) for name, make in own.items()]
