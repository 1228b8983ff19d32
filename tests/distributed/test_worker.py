"""Workers: forks and new processes that answer calls, or send what they like, until nobody asks them any more."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

from fullgnn.distributed.worker import Worker, WorkerLost, answer_calls, receive, send
from fullgnn.errors import ConfigError
from tests.commands import ROOT

pytestmark = pytest.mark.sample(2)  # its tests take seconds, or compile kernels

START = pytest.mark.parametrize("start", [Worker.forked, Worker.started], ids=["fork", "new"])


def refuse(text: str) -> None:
    raise ConfigError(text)


class Unpicklable(Exception):
    def __init__(self, first: str, second: str):
        super().__init__(first)


def fail() -> None:
    raise Unpicklable("a bug", "more")


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def count(connection: Connection, limit: int) -> None:
    """Sends the numbers below ``limit``, and then doubles what it is sent."""
    for number in range(limit):
        send(connection, number)
    while True:
        send(connection, 2 * receive(connection))


@START
def test_calls_are_answered_one_after_the_other(start: Callable[..., Worker]) -> None:
    worker = start(answer_calls, 7)
    pid = worker.call(pid_of)
    assert pid == worker.process.pid != os.getpid()
    assert worker.call(divmod, 2) == (3, 1)  # divmod(7, 2): 7 comes first
    with pytest.raises(ConfigError, match="^7$"):
        worker.call(refuse)
    worker.close()
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def pid_of(first: int) -> int:
    return os.getpid()


@START
def test_an_error_says_where_it_was_raised(start: Callable[..., Worker]) -> None:
    worker = start(answer_calls)
    with pytest.raises(RuntimeError, match="^Unpicklable: a bug$") as caught:
        worker.call(fail)
    assert "in another process" in str(caught.value.__cause__) and "in fail" in str(caught.value.__cause__)
    worker.close()


@START
def test_a_worker_sends_what_it_likes(start: Callable[..., Worker]) -> None:
    worker = start(count, 3)
    assert [worker.receive() for _ in range(3)] == [0, 1, 2]
    worker.send(21)
    assert worker.receive() == 42
    worker.close()
    assert worker.wait(0) == 0


@START
def test_a_lost_worker_is_noticed(start: Callable[..., Worker]) -> None:
    worker = start(answer_calls, timeout_s=60)
    with pytest.raises(WorkerLost) as lost:
        worker.call(die, signal.SIGKILL)
    assert lost.value.status == -signal.SIGKILL
    with pytest.raises(WorkerLost):
        worker.call(os.getpid)
    stopped = start(answer_calls, timeout_s=0.5)
    with pytest.raises(WorkerLost) as lost:
        stopped.call(die, signal.SIGSTOP)
    assert lost.value.status is None
    begin = time.monotonic()
    stopped.close()
    assert stopped.wait(0) == -signal.SIGKILL and time.monotonic() - begin < 10


def test_a_later_fork_does_not_keep_the_pipe_of_an_earlier_one_open() -> None:
    first, second = Worker.forked(answer_calls), Worker.forked(answer_calls)
    assert second.call(os.getpid) == second.process.pid
    first.close()  # would wait for ever
    second.close()


@START
def test_a_worker_ends_with_the_process_that_it_works_for(start: Callable[..., Worker]) -> None:
    """Which is killed, and so closes nothing itself, while the worker is busy."""
    script = f"""
import os, time
from fullgnn.distributed.worker import Worker, answer_calls
worker = Worker.{start.__name__}(answer_calls)
worker.send((time.sleep, (60,)))
print(worker.process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")
