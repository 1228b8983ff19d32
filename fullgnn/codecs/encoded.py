"""Encode the features of all nodes with a codec, some rows at a time."""

from __future__ import annotations

import inspect
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from fullgnn.codecs.codec import Codec, Learning, Unencoded
from fullgnn.codecs.first_layer import FirstLayer
from fullgnn.config import build, target_of
from fullgnn.kernels.support.read_only import read_only_tensor
from fullgnn.storage.archive import read_arrays
from fullgnn.storage.cache import Cache

if TYPE_CHECKING:
    from fullgnn.codecs.features import Features

KIND = "encoded"
"""Folder, in the cache, of encoded rows."""

State = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class CodecContext:
    """What a codec knows before it encodes."""

    state: State | None = None  # what it has learnt before; None: it learns from the features that it encodes
    of_these_features: bool = False  # whether it has learnt the state from the features that it encodes
    first_layer: FirstLayer = FirstLayer(None)  # what the model reads, for a codec that asks for it

    def identity(self, node: Mapping[str, Any]) -> dict[str, Any]:
        """What of it the result depends on, for the keys of a cache.

        Args:
            node: of the codec.
        """
        elsewhere = self.state if self.state and not self.of_these_features else {}
        learnt = {f"codec_state.{name}": array for name, array in elsewhere.items()}
        return learnt | ({"first_layer": asdict(self.first_layer)} if asks_for_first_layer(node) and not learnt else {})


NO_CONTEXT = CodecContext()


def build_codec(node: Mapping[str, Any], context: CodecContext = NO_CONTEXT) -> Codec | None:
    """The codec of a configuration node; None: features are kept as they are."""
    codec = build(node, first_layer=context.first_layer) if asks_for_first_layer(node) else build(node)
    return None if type(codec) is Unencoded else codec


def asks_for_first_layer(node: Mapping[str, Any]) -> bool:
    """Whether a codec asks what the first layer of the model reads."""
    return "first_layer" in inspect.signature(target_of(node)).parameters


def encoded(
    codec: Codec, cache: Cache, keys: dict[str, object], features: Features, state: State | None = None
) -> tuple[np.ndarray, State]:
    """The encoded rows of all nodes, and what the codec has learnt of them.

    Args:
        cache: keeps what a codec with a state has made.
        keys: of the codec.
        state: what it has learnt before; None: it learns from these features.

    Returns:
        (num_nodes, W) rows, and the state by name.
    """
    if not has_state(codec):
        return rows_in_memory(codec, features), {}
    if state:
        load(codec, state)
        if hasattr(codec, "refresh"):
            codec.refresh(features)
            state = cast(Learning, codec).state()
        return rows_in_memory(codec, features, learns=False), state
    key = cache.key(codec=keys, **features.identity(codec))
    stored = cache.load(KIND, key, lambda arrays: (arrays.pop("rows"), arrays))
    if stored is None:
        rows = rows_in_memory(codec, features)
        stored = rows, cast(Learning, codec).state()
        cache.store(KIND, key, {"rows": rows, **stored[1]})
    return stored


def load(codec: Codec, state: State, device: str | torch.device = "cpu") -> None:
    """Give a codec what it has learnt elsewhere, on the ``device`` where it decodes."""
    cast(Learning, codec).load_state({name: read_only_tensor(array).to(device) for name, array in state.items()})


def rows_in_memory(codec: Codec, features: Features, learns: bool = True) -> np.ndarray:
    """(num_nodes, W) encoded rows; the codec learns first, if it ``learns`` and has to."""
    some = EncodedRows.of(codec, features, learns)
    if some is None:
        return codec.encode(features.whole())
    if some.shape[1:] == features.array.shape[1:] and some.dtype == features.array.dtype == features.dtype:
        return codec.encode(features.whole())  # nothing is gained by blocks
    codes = np.empty(some.shape, some.dtype)
    for rows, block in features.blocks(f"{type(codec).__name__}: features are encoded"):
        codes[rows] = _encode(codec, rows.start, block)
    return codes


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
    def of(cls, codec: Codec, features: Features, learns: bool = True) -> EncodedRows | None:
        """The rows of a codec that encodes some rows at a time, after it has learnt; None: it encodes all at once."""
        if hasattr(codec, "learn"):
            if learns:
                cast(Learning, codec).learn(features)
        elif has_state(codec) or not getattr(codec, "by_rows", False):
            return None
        if not features.num_nodes:
            return None
        row = _encode(codec, 0, features[:1])
        return cls(codec, features, (features.num_nodes, *row.shape[1:]), row.dtype)

    def __getitem__(self, rows: slice) -> np.ndarray:
        """See ``storage.arrays.SomeRows``. Blocks of features, not all of the slice, are in memory at once."""
        first, stop, _ = rows.indices(self.features.num_nodes)
        codes = np.empty((stop - first, *self.shape[1:]), self.dtype)
        step = max(1, len(range(*self.features.slices()[0].indices(self.features.num_nodes))))
        for begin in range(first, stop, step):
            some = slice(begin, min(begin + step, stop))
            codes[begin - first : some.stop - first] = _encode(self.codec, begin, self.features[some])
        return codes


def _encode(codec: Codec, first: int, block: np.ndarray) -> np.ndarray:
    """The rows of the nodes ``first``, ``first`` + 1, ..., whose features are ``block``."""
    by_nodes = getattr(codec, "encode_nodes", None)
    return codec.encode(block) if by_nodes is None else by_nodes(first, block)


def num_bytes(rows: np.ndarray, state: State) -> int:
    """Bytes of what is kept of all nodes: their rows, and what a codec keeps of some nodes in its state. A codebook,
    which does not grow with the nodes, is not counted."""
    return rows.nbytes + sum(array.nbytes for name, array in state.items() if name.startswith("_"))


def packed(state: State) -> np.ndarray:
    """The arrays of a state as bytes, (b,) uint8."""
    stream = io.BytesIO()
    np.savez(stream, **state)  # type: ignore[arg-type]
    return np.frombuffer(stream.getvalue(), np.uint8)


def unpacked(content: np.ndarray) -> State:
    """The state whose bytes ``packed`` has returned.

    Raises:
        DamagedArray: they are damaged.
    """
    return read_arrays(io.BytesIO(content.tobytes()))
