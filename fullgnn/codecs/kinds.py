"""Codecs by name, for codecs that are made of others."""

from collections.abc import Mapping
from typing import Any

from fullgnn.codecs.codec import BFloat16, Codec, Unencoded
from fullgnn.codecs.pca import PCA
from fullgnn.codecs.product import Product
from fullgnn.codecs.scalar import Scalar
from fullgnn.codecs.topk import TopK
from fullgnn.errors import ConfigError

KINDS: dict[str, Any] = {
    "none": Unencoded,
    "bfloat16": BFloat16,
    "topk": TopK,
    "scalar": Scalar,
    "product": Product,
    "pca": PCA,
}


def make(key: str, keys: Mapping[str, Any]) -> Codec:
    """The codec with the ``name`` and the other values of ``keys``.

    Args:
        key: of the configuration, for messages.

    Raises:
        ConfigError: there is no such codec, or it has not these keys.
    """
    others = dict(keys)
    name = others.pop("name", None)
    if name not in KINDS:
        raise ConfigError(f"{key}.name={name} is not known: choose one of {', '.join(KINDS)}")
    try:
        return KINDS[name](**others)
    except TypeError as error:
        said = str(error).rpartition("__init__() ")[2]
        raise ConfigError(f"{key} does not fit codec={name} ({said}): conf/codec/{name}.yaml has its keys") from error
