"""The codec that loses least of what the first layer reads, at a size; or the smallest one that loses at most so much.

What a codec loses is the relative Frobenius norm of the error of what a sample of targets reads (``first_layer.py``):
of A X for a GCN, of X and A X for GraphSAGE, of X for an MLP. It is no loss of accuracy, of which nothing is promised.
"""

import ast
import logging
import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fullgnn.codecs.codec import Codec, Learning, Unencoded, check_key
from fullgnn.codecs.encoded import has_state
from fullgnn.codecs.features import Features
from fullgnn.codecs.first_layer import CodecLoss, FirstLayer
from fullgnn.codecs.kinds import KINDS
from fullgnn.codecs.topk import GROUP
from fullgnn.errors import ConfigError
from fullgnn.kernels.support.read_only import read_only_tensor

log = logging.getLogger(__name__)

RATIOS = (128, 64, 32, 16, 8, 4, 2)
"""The ratios that ``max_loss`` tries; it chooses the first one at which a codec loses no more."""

LEARN_NODES = 65536
"""Nodes that a codec learns from before its loss is measured: it would fit the measured ones alone too well."""

CodecKeys = dict[str, Any]


class Auto:
    """The best of the other codecs, for these features and this model, see the head of this file.

    Args:
        ratio: bytes of the features over those of the codes, at least; null: as ``max_loss`` allows.
        max_loss: what the codec may lose; null: as little as possible at the ``ratio``.
        first_layer: what the model reads, which the program sets.
        seed: of samples.

    Raises:
        ConfigError: not exactly one of ``ratio`` and ``max_loss`` is given, or it is out of range.
    """

    reads_graph = True

    def __init__(
        self, ratio: float | None, max_loss: float | None, first_layer: FirstLayer | None = None, seed: int = 0
    ):
        if (ratio is None) == (max_loss is None):
            raise ConfigError("codec=auto asks for a size or a loss: give codec.ratio=16 or codec.max_loss=0.3")
        check_key("codec.ratio", ratio, ratio is None or ratio >= 1, "1 or more")
        check_key("codec.max_loss", max_loss, max_loss is None or max_loss >= 0, "0 or more")
        self.ratio, self.max_loss, self.seed = ratio, max_loss, seed
        self._layer = first_layer or FirstLayer(None)
        self._codec: Codec = Unencoded()

    def learn(self, features: Features) -> None:
        """See ``Learning``: choose the codec, and let it learn."""
        name, keys = self._choose(features)
        self._name, self._codec = name, KINDS[name](**keys)
        if hasattr(self._codec, "learn"):
            cast(Learning, self._codec).learn(features)
        self._keys = keys

    def encode(self, features: np.ndarray) -> np.ndarray:
        """See ``Codec``."""
        return self._codec.encode(features)

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Codec``."""
        return self._codec.decode(rows, dtype)

    def decode_rows(self, table: Tensor, index: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``fullgnn.codecs.codec``."""
        one_pass = getattr(self._codec, "decode_rows", None)
        if one_pass is None:
            return self.decode(table.index_select(0, index), dtype)
        return one_pass(table, index, dtype)

    def state(self) -> dict[str, np.ndarray]:
        """See ``Learning``: that of the chosen codec, and which one that is."""
        chosen = np.frombuffer(repr((self._name, self._keys)).encode(), np.uint8)
        learnt = cast(Learning, self._codec).state() if has_state(self._codec) else {}
        return {"chosen": chosen, **learnt}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """See ``Learning``."""
        learnt = dict(tensors)
        self._name, self._keys = _read(bytes(learnt.pop("chosen").tolist()).decode())
        self._codec = KINDS[self._name](**self._keys)
        if has_state(self._codec):
            cast(Learning, self._codec).load_state(learnt)

    def _choose(self, features: Features) -> tuple[str, CodecKeys]:
        row_bytes = features.num_columns * features.dtype.itemsize
        if not row_bytes:
            return "none", {}
        loss = CodecLoss.of(self._layer, features.graph, self.seed)
        x = features[loss.nodes]
        some = Features(features.sample(LEARN_NODES, self.seed), features.dtype.str)
        choices: list[tuple[float, int, str, CodecKeys]] = []
        for ratio in RATIOS if self.ratio is None else (self.ratio,):
            for name, keys in candidates(features.num_columns, row_bytes / ratio):
                codec = KINDS[name](**keys)
                if hasattr(codec, "learn"):
                    cast(Learning, codec).learn(some)
                rows = codec.encode(x)
                decoded = codec.decode(read_only_tensor(rows), read_only_tensor(x).dtype).numpy()
                lost = loss(x, decoded)
                if self.max_loss is None or lost <= self.max_loss:
                    choices.append((lost, rows.shape[1] * rows.itemsize, name, keys))
            if choices:
                break
        if self.max_loss is not None:
            choices = [choice for choice in choices if choice[1] == min(num_bytes for _, num_bytes, *_ in choices)]
        if not choices and self.max_loss is None:
            raise ConfigError(
                f"codec.ratio={self.ratio}: no codec keeps {features.num_columns} features in"
                f" {row_bytes / ratio:.3g} bytes: give a smaller ratio"
            )
        if not choices:
            log.info("codec=auto: no codec loses at most %g: the features are kept as they are", self.max_loss)
            return "none", {}
        _, _, name, keys = min(choices, key=lambda choice: choice[0])
        said = "; ".join(f"{kind} {num_bytes} bytes {lost:.3g}" for lost, num_bytes, kind, _ in choices)
        log.info("codec=auto: %s %s, of what each loses of what the first layer reads: %s", name, keys, said)
        return name, keys


def candidates(num_columns: int, most_bytes: float) -> Iterator[tuple[str, CodecKeys]]:
    """The finest codec of each kind whose rows have at most ``most_bytes``: its name and keys."""
    if 2 * num_columns <= most_bytes:
        yield "bfloat16", {}
    sizes = [min(GROUP, num_columns - first) // 2 for first in range(0, num_columns, GROUP)]
    fits = [k for k in range(1, GROUP // 2 + 1) if 0 < sum(2 * min(k, size) for size in sizes) <= most_bytes]
    if fits:
        yield "topk", {"k": fits[-1]}
    for scale, own in (("column", 0), ("row", 8)):
        bits = [bits for bits in (1, 2, 4, 8) if own + math.ceil(num_columns * bits / 8) <= most_bytes]
        if bits:
            yield "scalar", {"bits": bits[-1], "scale": scale}
    if most_bytes >= 1 and num_columns:
        most = min(num_columns, int(most_bytes))
        yield "product", {"columns": math.ceil(num_columns / most)}
        yield "pca", {"dimensions": most, "bits": 8}


def _read(text: str) -> tuple[str, CodecKeys]:
    name, keys = ast.literal_eval(text)
    return name, keys
