"""What the targets of papers share: their ranks start as forks, which have imported everything already."""

import os
import sys
from pathlib import Path

import pytest

from fullgnn.distributed import launch
from fullgnn.startup import LAUNCHER_PID
from tests.commands import Forked, environment


@pytest.fixture(autouse=True)
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the ranks of ``launch_workers`` as ``run_command`` starts commands: a new Python imports for seconds."""

    def fork(command: list[str], env: dict[str, str], start_new_session: bool) -> Forked:
        assert command[:2] == [sys.executable, "-m"] and start_new_session
        own = environment(**env)
        del own[LAUNCHER_PID]  # the parent of a fork is another process
        return Forked(command[2:], Path.cwd(), os.devnull, own)

    class Forks:
        Popen = staticmethod(fork)

    monkeypatch.setattr(launch, "subprocess", Forks)
