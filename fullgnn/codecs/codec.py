"""The contract of a codec: features in fewer bytes, on the host and on their way to the device of a rank.

Contract of a codec: a class whose keys are those of its YAML, with

    encode(features) -> rows    of some nodes or of all, on rank 0: (m, F) to (m, W) of any dtype
    decode(rows, dtype) -> x    of the inputs of a batch, on the device: (m, W) to (m, F) of ``dtype``

A codec that learns something of all features, such as the scales of columns or a codebook, has also

    state() -> arrays           what it has learnt, by name, on rank 0
    load_state(tensors)         takes the same, on the device of a rank, before it decodes

It learns in ``learn(features)``, which is called once, before ``encode``, and can walk through all features or take a
sample of them (``Features``). Then ``encode`` is called with some rows at a time, so that features which do not fit the
memory can be encoded. A codec that has a state and no ``learn`` learns in ``encode``, which gets all features at once.
So does one without a state, unless its attribute ``by_rows`` is True: it encodes each row by itself.

Optional:

    decode_rows(table, index, dtype)  the decoded rows ``index``, (m,) int64, of a table of encoded ones, in one pass
    encode_nodes(first, features)     in place of ``encode``: the rows of nodes ``first``, ``first`` + 1, ...
    refresh(features)                 after ``load_state``: make what belongs to these features, and was not learnt;
                                      the names of such arrays in ``state`` begin with _, and no checkpoint has them
    reads_graph                       True: what it encodes depends on the graph of the features
    a parameter ``first_layer``       what the model reads, see ``first_layer.py``

What a codec has learnt must be the same bits for any number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.kernels.support.read_only import read_only_tensor

if TYPE_CHECKING:
    from fullgnn.codecs.features import Features


class Codec(Protocol):
    """Encodes rows of features on the host, and decodes them on the device."""

    def encode(self, features: np.ndarray) -> np.ndarray:
        """(m, W), C-contiguous, of the (m, F) ``features``, which have the dtype of the run."""

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """(m, F) features of ``dtype``, of (m, W) encoded rows, on their device."""


class Learning(Codec, Protocol):
    """A codec that learns something of all features before it encodes them."""

    def learn(self, features: Features) -> None:
        """Learn what ``encode`` and ``decode`` need."""

    def state(self) -> dict[str, np.ndarray]:
        """What was learnt, by name."""

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take what ``state`` has returned elsewhere; ``encode`` and ``decode`` can then be called."""


def check_key(key: str, value: object, fits: bool, choices: str) -> None:
    """Refuse a ``value`` of a ``key`` that is none of the ``choices``.

    Raises:
        ConfigError: one line that names the key, and what to give.
    """
    if not fits:
        raise ConfigError(f"{key}={value} is out of range: give {choices}")


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
