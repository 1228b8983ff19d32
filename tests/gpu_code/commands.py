"""The commands of this folder, run by its tests."""

import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO

from tests.commands import ROOT

GENERATIONS = (80, 90, 100)
"""Compute capabilities, times 10, for which the kernels are compiled."""

FAMILIES = (
    *("attention", "attention backward", "dynamic", "dynamic backward", "largest", "messages", "weighted"),
    *("loss", "dropout", "gather", "wide", "single use", "scores", "sampler", "codec"),
    *("csr", "packed", "tile32", "dense", "rare"),
)
"""Names of the calls that ``launched.py`` compiles."""


PROCESSES: dict[int, subprocess.Popen[str]] = {}
"""By generation of GPUs, the process that runs commands which compile for it; Triton compiles for one in a process."""


def output_of(module: str, *arguments: str, generation: int = 90) -> str:
    """The output of ``python -m module``, which a process runs that compiles, without Triton's interpreter.

    The process runs one command after another, since each would spend most of its time on imports. Its stderr is that
    of this process.
    """
    process = PROCESSES.get(generation)
    if process is None or process.poll() is not None:
        command, pipe = [sys.executable, "-m", "tests.gpu_code.commands"], subprocess.PIPE
        process = subprocess.Popen(command, cwd=ROOT, env=_environ(), stdin=pipe, stdout=pipe, text=True)
        PROCESSES[generation] = process
    assert process.stdin is not None and process.stdout is not None
    try:
        print(json.dumps([module, *arguments]), file=process.stdin, flush=True)
        answer = process.stdout.readline()
    except BaseException:  # such as a time-out, after which the next command would read this answer
        stop_processes()
        raise
    assert answer, f"{module} {' '.join(arguments)} has failed: see stderr"
    return json.loads(answer)


def stop_processes() -> None:
    while PROCESSES:
        _, process = PROCESSES.popitem()
        with process:
            process.kill()


def output_of_program(program: str) -> str:
    """The output of a program in Python in a new process of the same kind."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=_environ(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


def _serve() -> None:
    """Run the commands that stdin names, one a line, and answer with the output of each."""
    for line in sys.stdin:
        module, *arguments = json.loads(line)
        with redirect_stdout(StringIO()) as output:
            import_module(module).main(arguments)
        print(json.dumps(output.getvalue()), flush=True)


if __name__ == "__main__":
    _serve()
