"""Codecs: features of nodes in fewer bytes, on the host and on their way to a device.

codec       the contract, and the codecs that learn nothing
features    all features, as a codec reads them: block after block, or a sample
encoded     all features encoded, some rows at a time
"""

from fullgnn.codecs.codec import BFloat16, Codec, Learning, Unencoded
from fullgnn.codecs.encoded import EncodedRows, State, build_codec, encoded, load, packed, unpacked
from fullgnn.codecs.features import Features

__all__ = [
    "BFloat16",
    "Codec",
    "EncodedRows",
    "Features",
    "Learning",
    "State",
    "Unencoded",
    "build_codec",
    "encoded",
    "load",
    "packed",
    "unpacked",
]
