"""How the features of nodes are kept on the host, and travel to the device of a rank.

Contract of a codec: a class whose keys are those of its YAML, with

    encode(features) -> rows    of all nodes, on rank 0, once: (num_nodes, F) to (num_nodes, W) of any dtype
    decode(rows, dtype) -> x    of the inputs of a batch, on the device: (m, W) to (m, F) of ``dtype``

A codec that learns something of all features, such as the scales of columns or a codebook, has also

    state() -> arrays           what ``encode`` has learnt, by name, on rank 0
    load_state(tensors)         takes the same, on the device of a rank, before it decodes

The state travels to every rank with the rows. With ``runtime.cache_dir`` rows and state are kept, and a later run with
the same features and keys encodes nothing. The exact evaluation on the full graph reads the features of the dataset.

A codec without a state whose attribute ``by_rows`` is True encodes each row by itself. With ``loader.map_features`` it
is then called with some rows at a time, so that features which do not fit the memory can be encoded.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fullgnn.sampling.host_graph import read_only_tensor
from fullgnn.storage.cache import Cache


class Codec(Protocol):
    """Encodes rows of features on the host, and decodes them on the device."""

    def encode(self, features: np.ndarray) -> np.ndarray:
        """(num_nodes, W), C-contiguous, of the (num_nodes, F) ``features``, which have the dtype of the run."""

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """(m, F) features of ``dtype``, of (m, W) encoded rows, on their device."""


def encoded(
    codec: Codec, cache: Cache, keys: dict[str, object], features: np.ndarray, dtype: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The encoded rows of all nodes, and what the codec has learnt of them.

    Args:
        cache: keeps what a codec with a state has made.
        keys: of the codec.
        features: (num_nodes, F).
        dtype: of the run.
    """
    features = np.ascontiguousarray(features, dtype=dtype)
    learns = getattr(codec, "state", None)
    if learns is None:
        return codec.encode(features), {}
    key = cache.key(codec=keys, features=features)
    found = cache.load("encoded", key, lambda arrays: (arrays.pop("rows"), arrays))
    if found is None:
        found = codec.encode(features), learns()
        cache.store("encoded", key, {"rows": found[0], **found[1]})
    return found


class Unencoded:
    """Features as they are."""

    by_rows = True

    def encode(self, features: np.ndarray) -> np.ndarray:
        """See ``Codec``."""
        return features

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Codec``."""
        return rows


class BFloat16:
    """Features in 16 bits, rounded to the nearest bfloat16: 8 significant bits, and the range of float32.

    Features that are 0 or 1, as words of a text often are, stay exact.
    """

    by_rows = True

    def encode(self, features: np.ndarray) -> np.ndarray:
        """See ``Codec``. NumPy has no bfloat16: the 16 bits are an int16."""
        return read_only_tensor(features).to(torch.bfloat16).view(torch.int16).numpy()

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Codec``."""
        return rows.view(torch.bfloat16).to(dtype)
