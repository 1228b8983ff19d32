"""The public names of a package, and modules of compiled loops, each imported when it is first used.

The ``__init__.py`` of such a package imports its public names under ``if TYPE_CHECKING``, where editors and mypy read
them, and ends with ``import_on_use(__name__)``, which reads them there too. A process then loads the modules that it
uses and no others. scikit-image and others do this with the package ``lazy_loader``, from a file ``__init__.pyi``.

A module that calls compiled loops names their modules in the same way: a process that calls none of them does not
import numba or Triton, and a step of a training that calls them finds them imported.

    if TYPE_CHECKING:
        from fullgnn.tasks import _draws_cpu
    else:
        _draws_cpu = module_on_use("fullgnn.tasks._draws_cpu")
"""

import ast
import sys
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any


def import_on_use(package: str) -> None:
    """Let ``package`` import each name that stands under its ``if TYPE_CHECKING`` when somebody asks for the name.

    Args:
        package: the ``__name__`` of the package that calls this, after it has assigned ``__all__``.
    """
    sys.modules[package].__class__ = _Room


def module_on_use(name: str) -> Any:
    """What stands for the module ``name``, which is imported when somebody asks for a name of it."""
    return _ModuleOnUse(name)


class _ModuleOnUse:
    def __init__(self, name: str):
        self._name = name

    @cached_property
    def _module(self) -> ModuleType:
        return import_module(self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Room(ModuleType):
    """A package of which some names are imported on use.

    Its methods could be the functions ``__getattr__`` and ``__dir__`` of a module (PEP 562), were it not for
    ``__setattr__``, which only a class can have.
    """

    __all__: list[str]

    def __getattr__(self, name: str) -> Any:
        if name not in self.__all__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_module_of(self)[name]), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Python binds each module that it imports to a name of the package. Where a function has the name of its
        module, as ``fullgnn.reorder.rcm`` has, the name keeps standing for the function."""
        if isinstance(value, ModuleType) and name in self.__all__:
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *self.__all__})


def _module_of(room: _Room) -> dict[str, str]:
    """By name, the module from which ``room`` imports it under ``if TYPE_CHECKING``."""
    if "_module_of" not in vars(room):
        source = room.__loader__.get_source(room.__name__)  # type: ignore[union-attr]
        blocks = [node.body for node in ast.parse(source).body if isinstance(node, ast.If)]
        imports = [node for body in blocks for node in body if isinstance(node, ast.ImportFrom)]
        vars(room)["_module_of"] = {alias.name: node.module for node in imports for alias in node.names}
    return vars(room)["_module_of"]
