"""Start ranks on this machine as new processes."""

import os
import subprocess
import sys

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.supervise import Rank, run_ranks


def launch_workers(arguments: list[str], nproc: int, runtime: RuntimeConfig) -> None:
    """Run ``python arguments...`` as ``nproc`` ranks on this machine and wait for them.

    Raises: as ``run_ranks``.
    """

    def start(variables: dict[str, str]) -> Rank:
        # In a session of its own, a rank does not see a terminal's Ctrl-C, which would end imports with a traceback.
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, env={**os.environ, **variables}, start_new_session=True)
        return Rank(process.pid, process.poll)

    run_ranks(start, nproc, runtime)
