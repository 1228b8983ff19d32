"""Invalid memory accesses and races in the kernels: what compute-sanitizer finds in a tiny case of each.

The worker starts compute-sanitizer over this same file as a program, which runs every kernel of float32 quality once.
"""

import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from functools import partial

from fullgnn.bench.gpu.check import Check
from fullgnn.bench.gpu.hits import finished
from fullgnn.bench.gpu.worker import Report, Task

TOOLS = ("memcheck", "racecheck")
_SUMMARY = {
    "memcheck": re.compile(r"ERROR SUMMARY: (\d+) error"),
    "racecheck": re.compile(r"RACECHECK SUMMARY: (\d+) hazard"),
}


def command(sanitizer: str, tool: str) -> list[str]:
    """compute-sanitizer over this program."""
    return [sanitizer, "--tool", tool, sys.executable, "-m", "fullgnn.bench.gpu.sanitize"]


def verdict(tool: str, output: str) -> Check:
    """What a tool's summary says.

    Raises:
        ValueError: it printed none; the message has its last words.
    """
    found = _SUMMARY[tool].search(output)
    if found is None or "cases: " not in output:
        raise ValueError(f"{tool} did not finish: {' '.join(output.split())[-300:]}")
    count = int(found.group(1))
    ran = output.rpartition("cases: ")[2].splitlines()[0]
    first = next((line.strip("= ") for line in output.splitlines() if "Invalid" in line or "hazard" in line), "")
    said = ran if not count else f"{count}: {first}"[:200]
    return Check("compute-sanitizer", tool, "tiny", None, None, 0.0, count == 0, said)


def run(task: Task, report: Report) -> None:
    """Argument of the task: ``tool``."""
    tool, sanitizer = task.arguments["tool"], shutil.which("compute-sanitizer") or "compute-sanitizer"

    def once() -> None:
        try:
            output, errors, _ = finished(command(sanitizer, tool), max(5.0, report.budget.left - 3))
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{tool} was not ready in {error.timeout:.0f} s") from error
        report.add(["checks"], asdict(verdict(tool, output + errors)))

    report.item(tool, partial(once), limit_s=report.budget.left + 1)


def program() -> None:
    """What compute-sanitizer watches."""
    import torch

    from fullgnn.bench.gpu.blocks import ragged
    from fullgnn.bench.gpu.checks import check_dropout
    from fullgnn.bench.gpu.contestants import CONTESTANTS
    from fullgnn.bench.gpu.operations import check_cross_entropy, check_gradients, check_matmul

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    block = ragged(device, toy=True)
    cases = []
    for one in CONTESTANTS.values():
        if one.is_float32 and one.mode != "ieee" or one.kind in ("TritonCSR", "PersistentCSR"):
            if one.kind != "AutoKernel" and one.missing(device) is None:
                check_dropout(one, "tiny", block, 41)
                cases.append(one.name)
    check_matmul(97, 20, 8, device)
    check_gradients(97, 20, 8, device)
    check_cross_entropy(97, 8, device)
    torch.cuda.synchronize()
    print(f"cases: {', '.join([*cases, 'dense operations'])}", flush=True)


if __name__ == "__main__":
    program()
