"""The tests as an operation, which reports failures and tests that had no time; and how a job ends."""

import sys
from pathlib import Path

import pytest

from fullgnn.bench.gpu import checks as checks_module
from fullgnn.bench.gpu.checks import ENDS_WITHIN_S, NAMED, ROOT, SANITIZED, TESTS, WAYS, drill_command, ending, verdict
from fullgnn.bench.harness import Check
from tests.cases import config

SOME = """
import time
import pytest

def test_right(): time.sleep(0.01)
def test_wrong(): assert 1 == 2, "one is not two"
@pytest.mark.skip(reason="no CUDA device is visible")
def test_elsewhere(): pass
"""

FAILED = "epoch 2\nthe drill fails at 1000.5\nRuntimeError: the drill has raised this error on the last rank\n"


def run_tests(folder: Path, text: str, seconds: float) -> list[Check]:
    (folder / "test_some.py").write_text(text)
    return checks_module.run_tests([sys.executable, "-m", "pytest", str(folder / "test_some.py")], seconds).checks


@pytest.mark.sample(3)
def test_failures_and_counts(tmp_path: Path) -> None:
    whole, failed = run_tests(tmp_path, SOME, 100)
    assert not whole.passed and whole.case == "1 failed, 1 passed, 1 skipped"
    assert failed.subject.endswith("test_some.test_wrong") and "one is not two" in failed.said
    (whole,) = run_tests(tmp_path, "def test_right(): pass", 100)
    assert whole.passed


@pytest.mark.sample(3)
def test_some_tests_are_named_whatever_their_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["test_some.test_right", "test_some.test_elsewhere", "test_absent"]
    monkeypatch.setattr(checks_module, "NAMED", tuple(names))
    (tmp_path / "test_some.py").write_text(SOME)
    (tmp_path / "test_absent.py").write_text("import pytest\npytest.importorskip('no_such_library')\n")
    command = [sys.executable, "-m", "pytest", f"--rootdir={tmp_path}", str(tmp_path)]
    outcome = checks_module.run_tests(command, 100)
    passed = {check.subject: check.passed for check in outcome.checks[1:]}
    skipped = {missing.method: missing.reason for missing in outcome.missing}
    assert passed == {names[0]: True, "test_some.test_wrong": False}
    assert "No module named" in skipped.pop("test_absent") and skipped == {names[1]: "no CUDA device is visible"}


@pytest.mark.sample(6)
def test_what_has_run_counts_when_time_is_over(tmp_path: Path) -> None:
    (whole,) = run_tests(tmp_path, SOME.replace("assert 1 == 2", "time.sleep(600)"), 15)
    assert whole.passed and whole.case.endswith("1 passed; then time was over"), whole


def test_no_results() -> None:
    with pytest.raises(RuntimeError, match="no results: .*No module named nothing"):
        checks_module.run_tests([sys.executable, "-m", "nothing"], 100)


def test_the_tests_are_there() -> None:
    for name in (*TESTS, *SANITIZED, *(f"{module.replace('.', '/')}.py" for module in NAMED)):
        file, _, function = name.partition("::")
        assert (ROOT / file).exists() and (not function or f"def {function}(" in (ROOT / file).read_text())


def test_verdicts_of_compute_sanitizer() -> None:
    fine = "========= ERROR SUMMARY: 0 errors\n"
    assert verdict("memcheck", fine).passed
    invalid = verdict("memcheck", f"========= Invalid __global__ read of size 4 bytes\n{fine}".replace(": 0", ": 3"))
    assert not invalid.passed and "Invalid __global__ read" in invalid.said
    races = "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
    assert not verdict("racecheck", races).passed
    with pytest.raises(RuntimeError, match="did not finish"):
        verdict("memcheck", "device not supported")


@pytest.mark.parametrize("way", WAYS)
def test_the_model_of_the_drill_is_known(way: str, tmp_path: Path) -> None:
    name, _ = WAYS[way]
    cfg = config(*drill_command(name, 2, "cuda", "gloo", tmp_path)[3:])
    assert cfg.model["_target_"].endswith(name) and cfg.runtime.nproc == 2


@pytest.mark.parametrize(
    ("output", "status", "after_s", "said"),
    [
        (FAILED, 1, 2.0, ""),
        (FAILED, 0, 2.0, "its status is 0"),
        (FAILED, 1, ENDS_WITHIN_S + 1, "it ended after 31 s"),
        (FAILED.replace("this error", "it"), 1, 2.0, "the reason is not in its output"),
        ("", 1, 2.0, "the drill did not take place; the reason is not in its output"),
    ],
)
def test_a_job_has_ended_well_or_not(output: str, status: int, after_s: float, said: str) -> None:
    check = ending("raises an error", 4, WAYS["raises an error"][1], output, status, 1000.5 + after_s)
    assert check.passed == (not said) and check.said.startswith(said) and check.case.startswith("4 ranks")
    if output:
        assert check.case == f"4 ranks, ended after {after_s:.1f} s with status {status}"
