"""Every compiled function of the package that is cached goes through ``compiled``, and knows the modules it calls."""

import ast
from collections.abc import Iterator
from pathlib import Path

import fullgnn

PACKAGE = Path(fullgnn.__file__).parent
COMPILERS = {"njit", "jit", "vectorize", "guvectorize"}
ITSELF = PACKAGE / "kernels/support/vectors.py"


def cached_calls(path: Path) -> Iterator[int]:
    """The lines of the calls of numba's compilers with ``cache=True``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and any(keyword.arg == "cache" for keyword in node.keywords):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in COMPILERS:
                yield node.lineno


def test_numba_caches_through_compiled_alone() -> None:
    assert list(cached_calls(ITSELF)), "the test finds what it looks for"
    bare = [f"{path}:{line}" for path in PACKAGE.rglob("*.py") if path != ITSELF for line in cached_calls(path)]
    assert not bare, f"numba.njit(cache=True): use compiled() of {ITSELF}"


def compiled_names(tree: ast.Module) -> set[str]:
    """The compiled functions of a module, those without a cache included."""
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(
            word in ast.unparse(decorator)
            for decorator in node.decorator_list
            for word in ("njit", "compiled", "intrinsic")
        )
    }


def fingerprinted(tree: ast.Module) -> set[str]:
    """The modules that the module passes to ``compiled_with``."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    made = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "compiled_with"]
    return {argument.id for call in made for argument in call.args if isinstance(argument, ast.Name)}


def test_loops_know_the_modules_that_they_call() -> None:
    trees = {path.stem: ast.parse(path.read_text()) for path in PACKAGE.rglob("_*_cpu.py")}
    for stem, tree in trees.items():
        imports = {
            node.module.rpartition(".")[2]: {alias.name for alias in node.names}
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module
        }
        known = fingerprinted(tree)
        for module, names in imports.items():
            if module in trees and "compiled" in names:  # made by ``compiled_with`` there
                known |= {module} | fingerprinted(trees[module])
        for module, names in imports.items():
            called = names & compiled_names(trees[module]) if module in trees else set()
            assert not called or module in known, f"{stem} calls {called} of {module}: use compiled_with({module})"
