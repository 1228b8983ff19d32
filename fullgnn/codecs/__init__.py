"""Codecs: features of nodes in fewer bytes, on the host and on their way to a device.

    codec        the contract, and the codecs that learn nothing
    features     all features, as a codec reads them: block after block, or a sample
    encoded      all features encoded, some rows at a time
    first_layer  what a codec loses of what a model reads

Each other codec is a module of its own: topk, scalar, product, pca, and auto, which chooses among them.
"""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.codecs.codec import BFloat16, Codec, Learning, Unencoded
    from fullgnn.codecs.encoded import (
        NO_CONTEXT,
        CodecContext,
        EncodedRows,
        State,
        asks_for_first_layer,
        build_codec,
        encoded,
        load,
        num_bytes,
        packed,
        unpacked,
    )
    from fullgnn.codecs.features import Features
    from fullgnn.codecs.first_layer import CodecLoss, FirstLayer

__all__ = [
    "NO_CONTEXT",
    "BFloat16",
    "Codec",
    "EncodedRows",
    "Features",
    "FirstLayer",
    "Learning",
    "CodecLoss",
    "State",
    "CodecContext",
    "Unencoded",
    "asks_for_first_layer",
    "build_codec",
    "encoded",
    "load",
    "num_bytes",
    "packed",
    "unpacked",
]

import_on_use(__name__)
