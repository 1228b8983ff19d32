"""Other libraries, one file each: their products (``SPMM``) and models (``MODELS``), by the method's name.

``training.py`` has what the models share, and ``links.py`` what those share that find links. Libraries are imported
where they are used, so that only those are missing that are not installed. A maker may raise ``UnsupportedError`` for
what its library cannot do: the benchmark then lists the method as missing, with that reason.
"""

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench import models
from fullgnn.bench.harness import Missing, attempt
from fullgnn.bench.peers import dgl, links, pyg, torch_sparse, training
from fullgnn.bench.problem import Problem

Makers = Mapping[str, Mapping[str, Callable[..., Any]]]
"""Library -> method -> its maker."""

MadeMethod = tuple[Any, float]
"""What a maker returned, and the seconds that it took."""


def _training(
    make: Callable[..., torch.nn.Module], finds_links: bool, problem: Problem, weights: list[Tensor], **options: Any
) -> Callable[[], Callable[[], float]]:
    """The epochs of the model that ``make`` makes."""
    return (links if finds_links else training).launcher(make(problem, weights, **options), problem)


_LIBRARIES = {"torch": torch_sparse, "pyg": pyg, "dgl": dgl}
SPMM: Makers = {library: file.SPMM for library, file in _LIBRARIES.items()}
"""(problem) -> a function x -> (A + I) @ x."""
EPOCH: dict[str, Makers] = {
    model: {
        library: {
            name: functools.partial(_training, make, own.finds_links)
            for name, make in file.MODELS.get(model, {}).items()
        }
        for library, file in _LIBRARIES.items()
    }
    for model, own in models.MODELS.items()
}
"""Model -> (problem, weights) -> a function that launches one epoch; what it returns waits for the loss, and reads it.
With gnn=gcn a maker also takes ``dropout``, the rate on the hidden layer."""

MODULE = {"pyg": "torch_geometric"}
"""The module of a library, where its name is another one."""


def set_up(makers: Makers, *arguments: Any) -> tuple[dict[str, MadeMethod], list[Missing]]:
    """Call all ``makers`` with ``arguments``; the method of a maker that fails is missing."""
    made: dict[str, MadeMethod] = {}
    missing = []
    for library, methods in makers.items():
        attempt(functools.partial(import_module, MODULE.get(library, library)))  # not a part of any set-up time
        for name, maker in methods.items():
            result, setup_s, reason = attempt(functools.partial(maker, *arguments))
            if reason:
                missing.append(Missing(name, reason))
            else:
                made[name] = result, setup_s
    return made, missing
