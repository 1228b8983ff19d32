"""The precision of dense float32 products on a GPU: all digits, unless ``runtime.precision`` asks for TF32.

TF32 keeps 11 significant bits of each factor. Torch uses it where a process has asked for it, or where the environment
has ``TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1``, as some container images set it. A run follows its own key alone.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

log = logging.getLogger(__name__)


LEVELS = {"float32": ("highest", "ieee"), "tf32": ("high", "tf32")}
"""What torch calls the choices of ``runtime.precision``: in the function of all versions, and in attributes."""


@contextmanager
def product_precision(choice: str = "float32") -> Iterator[None]:
    """Inside the ``with`` block float32 products have the precision of ``choice``, one of ``LEVELS``; afterwards this
    process has its own setting again."""
    if choice != "float32":
        log.info("runtime.precision=%s rounds the factors of dense products on a GPU: the run is not exact", choice)
    before = _precision()
    for where, name, _ in before:
        _set_precision(where, name, LEVELS[choice][0 if where is None else 1])
    try:
        yield
    finally:
        for where, name, value in before:
            _set_precision(where, name, value)


def _precision() -> list[tuple[Any, str, str]]:
    """The precision of float32 products: where torch has it (None: in the function of all versions), and the value."""
    try:
        return [(None, "", torch.get_float32_matmul_precision())]
    except RuntimeError:  # the caller uses the attributes that have taken the place of this function
        places = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        return [(place, "fp32_precision", place.fp32_precision) for place in places]


def _set_precision(where: Any, name: str, value: str) -> None:
    if where is None:
        torch.set_float32_matmul_precision(value)
    else:
        setattr(where, name, value)
