"""The precision of float32 products that torch computes: a run multiplies all digits, and never in TF32.

TF32 keeps 11 significant bits of each factor. Torch uses it where a process has asked for it, or where the environment
has ``TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1``, as some container images set it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Inside the ``with`` block float32 products have all digits of float32; afterwards this process has its own
    setting again."""
    before = _precision()
    for where, name, _ in before:
        _set_precision(where, name, "highest" if where is None else "ieee")
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
