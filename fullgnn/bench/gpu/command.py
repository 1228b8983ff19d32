"""Other programs that a job runs."""

import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path


def finished(
    command: list[str], seconds: float, grace_s: float = 0.0, folder: Path | None = None
) -> tuple[str, str, int]:
    """stdout, stderr and status of a command, which is ended with all that it started if it takes longer.

    Args:
        grace_s: seconds between an interrupt and the end, in which the command may write what it has.
        folder: the working directory; None: that of this process.

    Raises:
        TimeoutExpired: it took longer.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
        # A job in the background of a shell ignores interrupts, and so would the command.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL) if grace_s else None,
    )
    try:
        output, errors = process.communicate(timeout=max(0.1, seconds))
        return output, errors, process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=grace_s)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def run_or_raise(command: list[str], seconds: float) -> None:
    """Run a command for at most ``seconds``.

    Raises:
        RuntimeError: its status is not 0; the message has the last words that it wrote.
        TimeoutExpired: it took longer.
    """
    output, errors, status = finished(command, seconds)
    if status:
        raise RuntimeError(f"status {status}: {(errors or output).strip()[-300:]}")
