"""Helpers that test_features.py shares with other test modules."""

import numpy as np
import torch

from fullgnn.sampling.caches import Accesses
from fullgnn.sampling.features import FeatureSource
from tests.examples import example

NO_ACCESSES = Accesses(None, lambda epoch: np.empty(0, np.int32), 1)  # type: ignore[arg-type]


class Planned:
    """A cache that keeps certain rows from certain epochs on."""

    horizon = 1

    def __init__(self, *rows: list[int] | range):
        self._rows = rows

    def rows(self, accesses: Accesses, epoch: int) -> np.ndarray:
        return np.array(self._rows[(epoch - 1) % len(self._rows)], np.int64)


def fetch(source: FeatureSource, ids: np.ndarray) -> torch.Tensor:
    return source.place(ids, source.gather(source.missing(ids)))


class Counted(example("int8").Int8):  # type: ignore[misc]
    """The codec of docs/extending.md: a scale for each column, and 8 bits for each number."""

    encodings = 0

    def encode(self, features: np.ndarray) -> np.ndarray:
        type(self).encodings += 1
        return super().encode(features)
