"""Real command lines, as a user types them, run from a folder of their own."""

import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from fullgnn.distributed.worker import Worker

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 150

OWN = [sys.executable, "-m", "fullgnn.train"]
"""The command that starts its own ranks."""


def torchrun(nproc: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}"]


@dataclass(frozen=True)
class Finished:
    status: int
    output: str
    """stdout and stderr, in the order of writing."""

    @property
    def errors(self) -> list[str]:
        """The lines in which a rank or the command reports an error."""
        return [line for line in self.output.splitlines() if "error: " in line]


def environment(*folders: Path, **variables: str) -> dict[str, str]:
    """This process's environment with ``variables``, and with the checkout and ``folders`` importable before others."""
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([*map(str, (*folders, ROOT)), *([inherited] if inherited else [])])
    return {**os.environ, "PYTHONPATH": path, **variables}


def forkserver() -> ForkServerContext:
    """A context that starts processes as forks of a process that has imported ``preloaded.py``.

    Nothing else runs in that process, so that a fork behaves like a new process that has imported these modules.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    return context


def forked_worker(serve: Callable[..., object], *args: Any) -> Worker:
    """A fork of the same kind that runs ``serve(connection, *args)``, and ends with this process."""
    context = forkserver()
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, *args), daemon=True)
    process.start()
    there.close()
    assert process.pid is not None

    def wait(timeout_s: float | None) -> int | None:
        process.join(timeout_s)
        return process.exitcode

    return Worker(here, process.pid, wait)


class Forked:
    """A command that runs as a fork, with those methods of ``subprocess.Popen`` that tests need."""

    def __init__(
        self,
        line: list[str],
        cwd: Path,
        output: str,
        env: dict[str, str],
        first: Callable[[], object] | None = None,
    ):
        self._process = forkserver().Process(target=_run_module, args=(line, cwd, env, output, first))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def start_command(
    command: list[str],
    *arguments: str,
    cwd: Path,
    log: Path,
    first: Callable[[], object] | None = None,
    env: dict[str, str] | None = None,
) -> Forked | subprocess.Popen[bytes]:
    """Start ``command arguments...`` in ``cwd`` and a session of its own; its output goes to ``log``.

    A command ``python -m module`` is forked, as by ``run_command``.

    Args:
        first: called in the new process before the command.
    """
    line = [*command, *arguments]
    env = environment() if env is None else env
    log.touch()
    if line[:2] == [sys.executable, "-m"]:
        return Forked(line[2:], cwd, str(log), env, first)
    with log.open("w") as output:
        return subprocess.Popen(
            line, cwd=cwd, env=env, stdout=output, stderr=output, start_new_session=True, preexec_fn=first
        )


def run_command(
    command: list[str],
    *arguments: str,
    cwd: Path,
    env: dict[str, str] | None = None,
    new: bool = False,
    first: Callable[[], object] | None = None,
) -> Finished:
    """Run ``command arguments...`` in ``cwd`` to its end.

    A command ``python -m module`` runs in this checkout and is forked, since it would spend most of its time on
    imports. Any other command runs in a new process, and so does every command with ``new``: for tests of what is read
    or done while modules are imported.

    Args:
        first: called before the command in a process that is forked.
    """
    line = [*command, *arguments]
    env = environment() if env is None else env
    with tempfile.NamedTemporaryFile("r+") as output:
        if line[:2] == [sys.executable, "-m"] and not new:
            process = Forked(line[2:], cwd, output.name, env, first)
            try:
                status = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{line} did not end in {TIMEOUT_S} s:\n{output.read()}") from None
            finally:
                process.kill()
        else:
            status = subprocess.run(line, cwd=cwd, env=env, stdout=output, stderr=output, timeout=TIMEOUT_S).returncode
        output.seek(0)
        return Finished(status, output.read())


def _run_module(
    line: list[str], cwd: Path, env: dict[str, str], output: str, first: Callable[[], object] | None
) -> None:
    """Run ``python -m line...`` in this new process, after ``first()``."""
    os.setsid()
    if first is not None:
        first()
    with open(output, "a") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # so that TMPDIR is read again
    sys.path[:0] = [str(cwd), *env["PYTHONPATH"].split(os.pathsep)]
    module, *sys.argv[1:] = line
    sys.modules.pop(module, None)  # so that runpy executes the module again, as __main__
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nothing listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.socket())) for _ in range(number)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
