"""Runs by the command line compute what they did in the version that ``recorded.json`` is from, to the bit.

One test runs the commands of one case. ``record.py`` tells when and how to record again.
"""

import json
import os
from pathlib import Path

import pytest

from tests.commands import run_command  # noqa: F401  # conftest.py lets files that run commands begin first
from tests.guard.cases import CASES
from tests.guard.compare import differences
from tests.guard.record import RECORDED
from tests.guard.runs import run_case, signature

_FILE = json.loads(Path(os.environ.get("FULLGNN_GUARD", RECORDED)).read_text())


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CASES)
def test_a_case_is_what_it_was(name: str, tmp_path: Path) -> None:
    now = json.loads(json.dumps(run_case(name, tmp_path)))
    lines = differences(_FILE["cases"][name], now, exact=_FILE["signature"] == signature())
    assert not lines, "\n".join(lines[:40])
