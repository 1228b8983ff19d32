"""Starting ranks: their number, their threads, and the messages when a rank fails."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numba
import pytest
import torch

from fullgnn.distributed import WorkerError, can_fork, default_nproc, fork_workers, launch_workers
from fullgnn.distributed.mesh import num_threads
from tests.commands import ROOT, run_command
from tests.distributed.launch import runtime


@pytest.mark.parametrize(
    ("num_gpus", "changes", "expected"),
    [(4, {"device": "auto"}, 4), (4, {"device": "cpu"}, 1), (0, {"device": "auto"}, 1), (4, {"nproc": 3}, 3)],
)
def test_processes_to_start(monkeypatch, num_gpus: int, changes: dict, expected: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    assert default_nproc(runtime(**changes)) == expected


@pytest.mark.parametrize(
    ("num_cores", "threads", "processes", "expected"), [(8, None, 2, 4), (8, None, 3, 2), (2, None, 4, 1), (2, 5, 4, 5)]
)
def test_threads_share_the_cores(
    monkeypatch, num_cores: int, threads: int | None, processes: int, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(num_cores)))
    assert num_threads(runtime(threads=threads), processes) == expected


def test_ranks_are_numbered_share_the_cores_and_leave_no_trace(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    handler = signal.getsignal(signal.SIGTERM)
    script = "import os; e = os.environ; open(e['RANK'], 'w').write(' '.join([e['WORLD_SIZE'], e['OMP_NUM_THREADS']]))"
    monkeypatch.chdir(tmp_path)
    launch_workers(["-c", script], 2, runtime())
    assert [(tmp_path / rank).read_text() for rank in ("0", "1")] == ["2 3", "2 3"]
    assert "OMP_NUM_THREADS" not in os.environ
    assert signal.getsignal(signal.SIGTERM) is handler


def write_environment() -> None:
    handlers = {signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)}
    assert handlers == {signal.SIG_DFL}  # not the launcher's handlers, which would wait for more ranks
    names = ("WORLD_SIZE", "LOCAL_RANK", "OMP_NUM_THREADS")
    Path(os.environ["RANK"]).write_text(" ".join(os.environ[name] for name in names))


def test_forked_ranks_are_as_started_ones(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    fork_workers(write_environment, nproc=2, runtime=runtime())
    assert [(tmp_path / rank).read_text() for rank in ("0", "1")] == ["2 0 3", "2 1 3"]
    assert "OMP_NUM_THREADS" not in os.environ
    assert signal.getsignal(signal.SIGTERM) is handler


def write_threads_of_parent() -> None:
    Path(os.environ["RANK"]).write_text(str(num_native_threads(os.getppid())))


def num_native_threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_a_process_that_forks_has_started_no_threads(monkeypatch, tmp_path: Path) -> None:
    """A fork would wait forever for a lock, say of the C library's host names, that such a thread holds."""
    monkeypatch.chdir(tmp_path)
    before = num_native_threads(os.getpid())
    fork_workers(write_threads_of_parent, nproc=2, runtime=runtime())
    assert [int((tmp_path / rank).read_text()) for rank in ("0", "1")] == [before, before]


def sums_in_several_threads(size: int) -> None:
    torch.set_num_threads(2)
    assert torch.ones(size).sum() == size


def compiles_without_imports() -> None:
    before = set(sys.modules)
    assert numba.njit(lambda: 1)() == 1
    assert not [name for name in set(sys.modules) - before if name.startswith(("numba.np.", "numba.cpython."))]


@pytest.mark.sample(4)
@pytest.mark.parametrize("work", ["sums_in_several_threads, 10**6", "compiles_without_imports"])
def test_a_fork_computes_in_several_threads_and_its_compiler_is_loaded(work: str) -> None:
    """A process that may fork has started no OpenMP threads, for which its forks would wait forever. It has loaded
    numba's compiler, for which each fork would otherwise wait a second."""
    run = "from tests.distributed.test_launch import *; torch.set_num_threads(1); torch.ones(10**6).sum()"
    check = f"assert can_fork(); fork_workers({work}, nproc=2, runtime=runtime())"
    done = run_command([sys.executable, "-c", f"{run}; {check}"], cwd=ROOT)
    assert done.status == 0, done.output


@pytest.mark.parametrize(("num_threads", "num_gpus", "expected"), [(1, 0, True), (2, 0, False), (1, 1, False)])
def test_what_a_fork_would_lack(monkeypatch, num_threads: int, num_gpus: int, expected: bool) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    assert can_fork() is expected


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def failing() -> None:
    raise ValueError("one\ntwo")


@pytest.mark.parametrize(
    ("function", "expected", "said"),
    [
        (partial(sys.exit, 7), "exited with status 7", False),  # of either rank, whichever this process sees first
        (killed, "was killed (SIGKILL), as the system does when memory runs out", False),
        (failing, "ValueError: one two", True),
    ],
)
def test_the_reason_why_a_fork_failed(function: Callable[[], None], expected: str, said: bool) -> None:
    with pytest.raises(WorkerError) as caught:
        fork_workers(function, nproc=2, runtime=runtime())
    assert expected in str(caught.value)
    assert caught.value.is_logged is said


@pytest.mark.parametrize(
    ("script", "expected", "said"),
    [
        ("import sys; sys.exit(7)", "rank 0 exited with status 7", False),
        ("import os; os.kill(os.getpid(), 9)", "rank 0 was killed (SIGKILL), as the system does when", False),
        ("import os; os.kill(os.getpid(), 11)", "rank 0 was killed (SIGSEGV)", False),
        (
            "import sys; from fullgnn.distributed import report_failure as r; r(ValueError('one\\ntwo')); sys.exit(1)",
            "ValueError: one two",
            True,
        ),
    ],
)
def test_the_reason_of_a_failure(monkeypatch, script: str, expected: str, said: bool) -> None:
    root = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", root)
    with pytest.raises(WorkerError) as caught:
        launch_workers(["-c", script], 1, runtime())
    assert expected in str(caught.value)
    assert caught.value.is_logged is said
