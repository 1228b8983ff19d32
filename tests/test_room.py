"""What a process imports: a run what it uses, and whoever asks for a public name its module."""

import ast
import importlib
import json
import re
import subprocess
import sys
from types import ModuleType

import pytest

from tests.commands import ROOT

ROOMS = [
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in sorted((ROOT / "fullgnn").rglob("__init__.py"))
    if "import_on_use(__name__)" in path.read_text()
]

MOST_MODULES = 125
"""How many modules of the package ``import fullgnn.train`` may load."""

NOT_FOR_A_PLAIN_RUN = (
    "api",
    "config.help",
    "costs",
    "engine.link_steps",
    "engine.prediction_table",
    "graph.generate",
    "graph.ogb",
    "kernels.edges",
    "kernels.pairs",
    "kernels.spmm.autotune",
    "models",
    "nn.gat_conv",
    "partition.metis",
    "plan",
    "reorder.metis",
    "report",
    "sampling",
    "schemes.coded",
    "schemes.directory",
    "schemes.edges",
    "tasks.links",
    "tasks.node_regression",
    "telemetry.events",
)
"""Modules and packages: each is chosen by a configuration, or belongs to another command."""

LOADED = """
import json, sys
import fullgnn.train
print(json.dumps([name for name in sys.modules if name.split(".")[0] == "fullgnn"]))
"""

IN_ORDER = """
import fullgnn.reorder.rcm
from fullgnn.reorder import rcm
import fullgnn.reorder.rcm as again
from fullgnn.partition import nnz
import fullgnn.partition.nnz
import fullgnn.nn.propagate
from fullgnn.nn import *
assert fullgnn.reorder.rcm is rcm is again is sys.modules["fullgnn.reorder.rcm"].rcm
assert fullgnn.partition.nnz is nnz and nnz is sys.modules["fullgnn.partition.nnz"].nnz
assert propagate is fullgnn.nn.propagate is sys.modules["fullgnn.nn.propagate"].propagate
"""


def fresh(script: str) -> str:
    """What a new process prints."""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_imports_what_it_uses() -> None:
    loaded = json.loads(fresh(LOADED))
    assert len(loaded) <= MOST_MODULES, sorted(loaded)
    names = [f"fullgnn.{name}" for name in NOT_FOR_A_PLAIN_RUN]
    assert all(importlib.util.find_spec(name) for name in names)  # none of them has moved
    assert [name for name in loaded if any(name == unused or name.startswith(f"{unused}.") for unused in names)] == []


def test_a_room_imports_rooms_above_it_in_the_table_alone() -> None:
    rows = re.findall(r"^\| `(\w+)/` \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    folders = [path.name for path in (ROOT / "fullgnn").iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert sorted(rows) == sorted(folders)
    below: list[str] = []
    for number, name in enumerate(rows):
        for path in (ROOT / "fullgnn" / name).rglob("*.py"):
            wrong = imported_rooms(path.read_text()).intersection(rows[number + 1 :])
            below += [f"{path.relative_to(ROOT)} imports {room}" for room in wrong]
    assert below == []


def imported_rooms(source: str) -> set[str]:
    """The rooms of which ``source`` names a module, in an import or in ``module_on_use``."""
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom | ast.Import)]
    modules = [node.module or "" for node in imports if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in imports for alias in node.names]
    modules += re.findall(r'module_on_use\("([\w.]+)"\)', source)
    return {name.split(".")[1] for name in modules if name.startswith("fullgnn.")}


def test_a_name_stands_for_the_function_whichever_is_imported_first_it_or_its_module() -> None:
    fresh(f"import sys\n{IN_ORDER}")


@pytest.mark.parametrize("package", ROOMS)
def test_every_public_name_of_a_room_is_found(package: str) -> None:
    room = importlib.import_module(package)
    listed = importlib.import_module("fullgnn.room")._module_of(room)
    assert sorted(listed) == sorted(room.__all__)
    for name, module in listed.items():
        value = getattr(room, name)
        assert value is getattr(importlib.import_module(module), name) and not isinstance(value, ModuleType)
    assert {*room.__all__, "__path__"} <= {*dir(room)} and dir(room) == sorted(dir(room))
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nobody'"):
        _ = room.nobody
