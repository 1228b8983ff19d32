"""Helpers that test_source.py shares with other test modules."""

import ast
from collections.abc import Iterator
from pathlib import Path

import fullgnn

ROOT = Path(fullgnn.__file__).parent


def kernels(text: str) -> Iterator[ast.FunctionDef]:
    """The functions in ``text`` that ``triton.jit`` decorates, with or without arguments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and any("triton.jit" in ast.unparse(expr) for expr in node.decorator_list):
            yield node
