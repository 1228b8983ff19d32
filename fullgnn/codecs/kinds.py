"""Codecs by name, for codecs that are made of others."""

import inspect
from typing import Any

import yaml

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


def make(key: str, text: str) -> Codec:
    """The codec that ``text`` describes: its name and its keys, as in ``scalar bits=4``.

    Args:
        key: of the configuration, for messages.

    Raises:
        ConfigError: there is no such codec, or it has not these keys.
    """
    name, *given = text.split() or [""]
    if name not in KINDS:
        raise ConfigError(f"{key}={text}: {name or 'nothing'} is no codec: choose one of {', '.join(KINDS)}")
    pairs = (part.partition("=") for part in given)
    keys = {keyword: yaml.safe_load(value) for keyword, _, value in pairs}
    try:
        inspect.signature(KINDS[name]).bind(**keys)
    except TypeError as error:
        raise ConfigError(f"{key}={text}: {error}: conf/codec/{name}.yaml has the keys of {name}") from error
    return KINDS[name](**keys)
