"""The checks: the tests of this checkout on this machine's GPU (op=checks), and how a job ends (op=drill).

For ``op=checks`` pytest runs in a process of its own. The tests at the size of a GPU, of NCCL and of several ranks
(``tests/gpu``) come first, then those of the kernels and of sampling. Then the tools of compute-sanitizer watch a
sample of small tests.

For ``op=drill`` the last rank of a job raises an error or is killed. The models here fail while they are trained:

python -m fullgnn.train dataset=karate runtime.nproc=2 model._target_=fullgnn.bench.gpu.checks.Raises

With several GPUs the ranks have one each, over NCCL; otherwise two ranks share one, or a CPU, over gloo.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch
from torch import Tensor

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.harness import Budget, Cases, Check, Missing, Outcome, Results, attempt
from fullgnn.bench.process import finished
from fullgnn.distributed import World
from fullgnn.models.gcn import GCN
from fullgnn.storage.folder import temporary_folder

ROOT = Path(__file__).parents[3]
TESTS = ("tests/gpu", "tests/kernels", "tests/sampling/test_gpu_neighbors.py", "tests/sampling/test_gpu_training.py")
TOY_TESTS = ("tests/gpu/test_nccl.py", "tests/gpu/test_ranks.py", "tests/gpu/test_replay.py")
NAMED = ("tests.gpu.test_nccl", "tests.gpu.test_ranks", "tests.gpu.test_replay")
"""The record names every test of these modules: one that passed is a check, and one that was skipped is missing."""

NOT = ("-k", "not test_every_width")  # which compiles for hundreds of widths
SANITIZED = (
    "tests/kernels/spmm/test_gpu_kernels.py::test_weights_and_double_precision",
    "tests/kernels/dense/test_gradient_gpu.py::test_any_stride",
    "tests/kernels/loss/test_cross_entropy.py::test_far_apart",
    "tests/kernels/pairs/test_scores_gpu.py::test_any_layout_and_a_nan",
)
TOOLS = {"memcheck": r"ERROR SUMMARY: (\d+) error", "racecheck": r"RACECHECK SUMMARY: (\d+) hazard"}
"""Tools of compute-sanitizer, and the line that each ends with."""

_MOST_PROCESSES = 8  # each holds a context of about half a GB on the GPU, and the large tests 9 GB or more
_OPTIONS = ("-q", "-p", "no:cacheprovider", "-o", "junit_duration_report=call")
_STATES = {"failure": "failed", "error": "failed", "skipped": "skipped"}  # by what JUnit's XML has of a test
_END_S = 8.0  # for pytest to write its results after an interrupt


def run(cfg: BenchConfig, world: World) -> Results:
    """All tests as they are; then the tools, side by side."""
    budget, toy = Budget(cfg.limit_s), world.device.type == "cpu"
    pytest = [sys.executable, "-m", "pytest"]
    parallel = ["-n", str(min(len(os.sched_getaffinity(0)), _MOST_PROCESSES))] if find_spec("xdist") else []
    command = [*pytest, *(TOY_TESTS if toy else ("--all", *parallel, *NOT, *TESTS))]

    def outcome(tool: str = "") -> Outcome:
        """The checks of pytest, or of the ``tool`` that watches a sample of its tests."""
        watched = ["compute-sanitizer", "--tool", tool, "--target-processes", "all", *pytest, *SANITIZED]
        made, _, reason = attempt(lambda: run_tests(watched if tool else command, budget.left - _END_S, tool))
        return Outcome(missing=[Missing(f"pytest under {tool}" if tool else "pytest", reason)]) if reason else made

    if find_spec("pytest") is None or not (ROOT / "tests").is_dir():
        reason = "pytest is not installed" if find_spec("pytest") is None else "this installation has no tests"
        yield Outcome(missing=[Missing("pytest", reason)])
        return
    yield outcome()
    if toy or shutil.which("compute-sanitizer") is None:
        reason = "a toy has no GPU" if toy else "it is not on the PATH"
        yield Outcome(missing=[Missing("compute-sanitizer", reason)])
    else:
        with ThreadPoolExecutor() as threads:
            yield from threads.map(outcome, TOOLS)


def run_tests(command: list[str], seconds: float, tool: str = "") -> Outcome:
    """Run a command of pytest for at most ``seconds``; see :func:`summary`, and :func:`verdict` of a ``tool``.

    Raises:
        RuntimeError: pytest left no results; the message has its last words.
    """
    with temporary_folder() as folder:
        results, in_time = folder / "results.xml", True
        try:
            output, errors, _ = finished([*command, *_OPTIONS, f"--junitxml={results}"], seconds, _END_S, ROOT)
        except subprocess.TimeoutExpired:
            output, errors, in_time = "", f"it was interrupted after {seconds:.0f} s", False
        if not results.exists():
            raise RuntimeError(f"pytest left no results: {' '.join((output + errors).split())[-300:]}")
        outcome = summary(results.read_text(), in_time)
    outcome.checks += [verdict(tool, output + errors)] if tool else []
    return outcome


def summary(junit_xml: str, in_time: bool) -> Outcome:
    """The outcome of a run of pytest: a check for all tests, with their counts, and one for each test that failed or
    that ``NAMED`` asks for; of the latter those that were skipped are missing."""
    counts, outcome = Counter[str](), Outcome()
    for case in ElementTree.fromstring(junit_xml).iter("testcase"):
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))  # a skipped module has no class name
        trouble = next((child for child in case if child.tag in _STATES), ElementTree.Element("passed"))
        over = not in_time and not float(case.get("time", 0))
        state = _STATES.get(trouble.tag) or ("interrupted" if over else "passed")
        counts[state] += 1
        message = trouble.get("message") or ""
        reason = trouble.text or "" if message == "collection skipped" else message  # of a whole module: in the text
        said = " ".join(reason.split())[:300]
        if state == "failed" or (state == "passed" and name.startswith(NAMED)):
            outcome.checks.append(Check(name, "test", passed=state == "passed", said=said))
        elif state == "skipped" and name.startswith(NAMED):
            outcome.missing.append(Missing(name, said))
    counted = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    counted += "" if in_time else "; then time was over"
    passed = counts["failed"] == 0 and counts["passed"] > 0
    outcome.checks.insert(0, Check("pytest", "all tests", counted, passed=passed))
    return outcome


def verdict(tool: str, output: str) -> Check:
    """What the summary of a tool of compute-sanitizer says.

    Raises:
        RuntimeError: it printed none; the message has its last words.
    """
    counts = re.findall(TOOLS[tool], output)
    if not counts:
        raise RuntimeError(f"{tool} did not finish: {' '.join(output.split())[-300:]}")
    count = sum(map(int, counts))
    first = next((line.strip("= ") for line in output.splitlines() if "Invalid" in line or "hazard" in line), "")
    said = f"{count}: {first}"[:200] if count else ""
    return Check("compute-sanitizer", tool, "a sample of tests", passed=count == 0, said=said)


FAILS_AT = 3
"""The epoch, from 1 on, in which it fails: before epochs are replayed as a CUDA graph, which runs no Python."""

SAYS = "the drill fails at"
"""What it writes before, with the time."""

ENDS_WITHIN_S = 30.0
"""A job whose rank has failed should have ended after so many seconds."""

WAYS = {"raises an error": ("Raises", "the drill has raised this error"), "is killed": ("Dies", "")}
"""How the last rank fails: the class, and words that the output must have."""

_LEAST_S, _MOST_S = 20.0, 120.0


class Raises(GCN):
    """A GCN that raises a ``RuntimeError`` in the forward pass of epoch ``FAILS_AT``, on the last rank alone."""

    _num_calls = 0

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        self._num_calls += self.training
        last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
        if self.training and self._num_calls == FAILS_AT and last:
            print(f"{SAYS} {time.time()}", file=sys.stderr, flush=True)
            self.fail()
        return super().forward(*args, **kwargs)

    def fail(self) -> None:
        raise RuntimeError("the drill has raised this error on the last rank")


class Dies(Raises):
    """The same, but its process is killed, as by a machine that has too little memory."""

    def fail(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def run_drill(cfg: BenchConfig, world: World) -> Results:
    """A check for each of ``WAYS``."""
    cases, on_gpu = Cases(cfg.limit_s, world.device), world.device.type == "cuda"
    num_gpus = torch.cuda.device_count() if on_gpu else 0
    num_ranks, backend = (min(num_gpus, 8), "nccl") if num_gpus > 1 else (2, "gloo")

    def check(way: str) -> Outcome:
        name, words = WAYS[way]
        command = drill_command(name, num_ranks, world.device.type, backend, Path(cfg.out) / name)
        output, errors, status = finished(command, min(_MOST_S, cases.budget.left))
        return Outcome(checks=[ending(way, num_ranks, words, output + errors, status, time.time())])

    for way in WAYS:
        yield cases.run(f"a rank {way}", partial(check, way), {}, _LEAST_S * on_gpu, _MOST_S + 5)


def drill_command(name: str, num_ranks: int, device: str, backend: str, out: Path) -> list[str]:
    """``python -m fullgnn.train`` of a model that fails on the last rank."""
    keys = ["dataset=digits", "train.epochs=1000", f"model._target_=fullgnn.bench.gpu.checks.{name}"]
    keys += [f"runtime.nproc={num_ranks}", f"runtime.device={device}", f"runtime.backend={backend}", f"run_dir={out}"]
    return [sys.executable, "-m", "fullgnn.train", *keys]


def ending(way: str, num_ranks: int, words: str, output: str, status: int, ended: float) -> Check:
    """How the job has ended.

    Args:
        words: what the output must have.
        output: all that the command has written; status: its exit status; ended: when it had ended, ``time.time()``.
    """
    begun, reasons, case = re.search(rf"{SAYS} ([\d.]+)", output), list[str](), f"{num_ranks} ranks"
    if begun is None:
        reasons.append("the drill did not take place")
    else:
        took_s = ended - float(begun[1])
        reasons += [f"it ended after {took_s:.0f} s"] if took_s > ENDS_WITHIN_S else []
        case += f", ended after {took_s:.1f} s with status {status}"
    reasons += ["its status is 0"] if status == 0 else []
    reasons += ["the reason is not in its output"] if words not in output else []
    said = f"{'; '.join(reasons)}: {' '.join(output.split())[-200:]}" if reasons else ""
    return Check("ranks", f"one {way}", case, passed=not said, said=said)
