"""Targets that take the fields of a dataclass as further keys, so that several targets share their options."""

import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar

OptionTarget = TypeVar("OptionTarget", bound=Callable[..., Any])


def takes_options(options: type) -> Callable[[OptionTarget], OptionTarget]:
    """Decorate a ``_target_``, or the ``__init__`` of one, with ``**options`` so that its signature names each field of
    the dataclass ``options``.

    This lets the keys of a command line be checked against the signature of their target.
    """

    def decorate(target: OptionTarget) -> OptionTarget:
        signature = inspect.signature(target)
        own = [param for param in signature.parameters.values() if param.kind is not inspect.Parameter.VAR_KEYWORD]
        added = inspect.signature(options).parameters.values()
        named = [param.replace(kind=inspect.Parameter.KEYWORD_ONLY) for param in added]
        target.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        target.__annotations__.update(typing.get_type_hints(options))
        return target

    return decorate
