"""Helpers that test_extending.py shares with other test modules."""

import re
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"


def source(name: str) -> str:
    """The code of the example ``name`` in the page, a file of the package ``mygnn``."""
    match = re.search(rf"`mygnn/{name}\.py`[^\n]*:\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match is not None, name
    return match[1]


def example(name: str) -> ModuleType:
    module = ModuleType(f"mygnn.{name}")
    exec(compile(source(name), f"mygnn/{name}.py", "exec"), module.__dict__)
    return module
