"""Encode the features of all nodes with a codec, some rows at a time."""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from fullgnn.codecs.codec import Codec, Learning
from fullgnn.codecs.features import Features
from fullgnn.kernels.support.read_only import read_only_tensor
from fullgnn.storage.cache import Cache

KIND = "encoded"
"""Folder, in the cache, of encoded rows."""

State = dict[str, np.ndarray]


def encoded(codec: Codec, cache: Cache, keys: dict[str, object], features: Features) -> tuple[np.ndarray, State]:
    """The encoded rows of all nodes, and what the codec has learnt of them.

    Args:
        cache: keeps what a codec with a state has made.
        keys: of the codec.

    Returns:
        (num_nodes, W) rows, and the state by name.
    """
    if not has_state(codec):
        return rows_in_memory(codec, features), {}
    key = cache.key(codec=keys, **features.identity())
    found = cache.load(KIND, key, lambda arrays: (arrays.pop("rows"), arrays))
    if found is None:
        rows = rows_in_memory(codec, features)
        found = rows, cast(Learning, codec).state()
        cache.store(KIND, key, {"rows": rows, **found[1]})
    return found


def rows_in_memory(codec: Codec, features: Features) -> np.ndarray:
    """(num_nodes, W) encoded rows; the codec learns first, if it does."""
    some = EncodedRows.of(codec, features)
    if some is None:
        return codec.encode(features.whole())
    if some.shape[1:] == features.array.shape[1:] and some.dtype == features.array.dtype == features.dtype:
        return codec.encode(features.whole())  # nothing is gained by blocks
    found = np.empty(some.shape, some.dtype)
    for rows, block in features.blocks(f"{type(codec).__name__}: features are encoded"):
        found[rows] = codec.encode(block)
    return found


def has_state(codec: Codec) -> bool:
    """Whether a codec learns something of all features."""
    return hasattr(codec, "state")


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Encoded rows, which are made when they are asked for."""

    codec: Codec
    features: Features
    shape: tuple[int, ...]
    dtype: np.dtype

    @classmethod
    def of(cls, codec: Codec, features: Features) -> "EncodedRows | None":
        """The rows of a codec that encodes some rows at a time, after it has learnt; None: it encodes all at once."""
        if hasattr(codec, "learn"):
            cast(Learning, codec).learn(features)
        elif has_state(codec) or not getattr(codec, "by_rows", False):
            return None
        if not features.num_nodes:
            return None
        one = codec.encode(features[:1])
        return cls(codec, features, (features.num_nodes, *one.shape[1:]), one.dtype)

    def __getitem__(self, rows: slice) -> np.ndarray:
        """See ``storage.arrays.SomeRows``. Blocks of features, not all of the slice, are in memory at once."""
        first, stop, _ = rows.indices(self.features.num_nodes)
        found = np.empty((stop - first, *self.shape[1:]), self.dtype)
        step = max(1, len(range(*self.features.slices()[0].indices(self.features.num_nodes))))
        for begin in range(first, stop, step):
            some = slice(begin, min(begin + step, stop))
            found[begin - first : some.stop - first] = self.codec.encode(self.features[some])
        return found


def decoded(codec: Codec, rows: np.ndarray, dtype: str) -> np.ndarray:
    """(m, F) features of ``dtype``, of (m, W) encoded rows on the host."""
    return codec.decode(read_only_tensor(rows), getattr(torch, dtype)).numpy()
