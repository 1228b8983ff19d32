"""What is kept of a training: a target of hundreds of them that was interrupted goes on where it was."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from fullgnn.storage.cache import Cache
from fullgnn.telemetry.machine import git_commit

KIND = "trained"
"""Folder, in the cache, of trainings."""

DIRTY = "-dirty"
"""At the end of ``git_commit`` where files have changed since."""


@dataclass(frozen=True)
class Trained:
    """A training that has ended."""

    accuracy: float  # of the test nodes, per cent, at the epoch with the best accuracy of the validation nodes
    best_epoch: int
    curve: list[float]  # accuracy of the validation nodes, per cent, after each epoch
    epoch_s: float  # the median, without evaluations


class TrainedBefore:
    """A training in the folder of the cache. It is of one commit: other code may train to another accuracy.

    Args:
        cache_dir: None: nothing is kept.
        known: what the training depends on.
    """

    def __init__(self, cache_dir: str | None, known: Iterable[object]):
        commit = _commit() if cache_dir is not None else None
        is_known = commit is not None and not commit.endswith(DIRTY)
        self._cache = Cache(cache_dir if is_known else None)
        self._key = self._cache.key(commit=commit, torch=torch.__version__, training=[str(one) for one in known])

    def load(self) -> Trained | None:
        """The training; None: it is not there."""
        return self._cache.load(KIND, self._key, _trained)

    def store(self, trained: Trained) -> None:
        """Keep it."""
        self._cache.store(KIND, self._key, {name: np.array(value) for name, value in vars(trained).items()})


@functools.cache
def _commit() -> str | None:
    """The commit when this process trains for the first time: a later one is not what the process runs."""
    return git_commit()


def _trained(arrays: dict[str, np.ndarray]) -> Trained:
    return Trained(**{name: array.tolist() for name, array in arrays.items()})
