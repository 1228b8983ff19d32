"""The kernels' tests as a job of the GPU benchmark: what fails is found, and what there is no time for is said."""

import sys
from pathlib import Path

import pytest

from fullgnn.bench.gpu import kernel_tests
from fullgnn.bench.gpu.kernel_tests import ROOT, SANITIZED, TESTS, verdict
from fullgnn.bench.gpu.record import Check

SOME = """
import time
import pytest

def test_right(): time.sleep(0.01)
def test_wrong(): assert 1 == 2, "one is not two"
@pytest.mark.skip(reason="no CUDA device is visible")
def test_elsewhere(): pass
"""


def run_tests(folder: Path, text: str, seconds: float) -> list[Check]:
    (folder / "test_some.py").write_text(text)
    return kernel_tests.tested([sys.executable, "-m", "pytest", str(folder / "test_some.py")], seconds)[0]


def test_failures_and_counts(tmp_path: Path) -> None:
    whole, failed = run_tests(tmp_path, SOME, 100)
    assert not whole.passed and whole.case == "1 failed, 1 passed, 1 skipped"
    assert failed.subject.endswith("test_some.test_wrong") and "one is not two" in failed.said
    (whole,) = run_tests(tmp_path, "def test_right(): pass", 100)
    assert whole.passed


def test_what_has_run_counts_when_time_is_over(tmp_path: Path) -> None:
    (whole,) = run_tests(tmp_path, SOME.replace("assert 1 == 2", "time.sleep(600)"), 15)
    assert whole.passed and whole.case.endswith("1 passed; then time was over"), whole


def test_no_results() -> None:
    with pytest.raises(RuntimeError, match="no results: .*No module named nothing"):
        kernel_tests.tested([sys.executable, "-m", "nothing"], 100)


def test_the_tests_are_there() -> None:
    for name in (*TESTS, *SANITIZED):
        file, _, function = name.partition("::")
        assert (ROOT / file).exists() and (not function or f"def {function}(" in (ROOT / file).read_text())


def test_verdicts_of_compute_sanitizer() -> None:
    fine = "========= ERROR SUMMARY: 0 errors\n"
    assert verdict("memcheck", fine).passed
    found = verdict("memcheck", f"========= Invalid __global__ read of size 4 bytes\n{fine}".replace(": 0", ": 3"))
    assert not found.passed and "Invalid __global__ read" in found.said
    races = "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
    assert not verdict("racecheck", races).passed
    with pytest.raises(RuntimeError, match="did not finish"):
        verdict("memcheck", "device not supported")


@pytest.mark.gpu
def test_nccl_with_one_rank_on_a_gpu(tmp_path: Path) -> None:
    import torch
    import torch.distributed as dist

    from fullgnn.bench.gpu import collectives

    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        assert all(check.passed for check in collectives.check_captured(torch.device("cuda"), capture=True))
    finally:
        dist.destroy_process_group()
