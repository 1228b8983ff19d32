"""Signals that ask a process to stop, to a rank and to a launcher."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fullgnn.distributed import WorkerError, fork_workers, launch_workers, stop_requests
from fullgnn.distributed import launch as launch_module
from fullgnn.distributed.command import fail
from fullgnn.distributed.launch import STOP_SIGNALS, use_default_handlers
from fullgnn.errors import TrainingStopped
from fullgnn.telemetry.log import setup_logging
from tests.commands import ROOT
from tests.distributed.launch import runtime


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_first_signal_is_recorded(number: signal.Signals) -> None:
    before = [signal.getsignal(name) for name in STOP_SIGNALS]
    with stop_requests() as request:
        assert request.signal is None
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGTERM)  # too soon to be a second request
        assert request.signal == number and not request.is_urgent
    assert [signal.getsignal(name) for name in STOP_SIGNALS] == before


def test_ignored_signals_stay_ignored_and_another_thread_records_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requests() as request:
            os.kill(os.getpid(), signal.SIGHUP)
            assert request.signal is None
    finally:
        signal.signal(signal.SIGHUP, before)
    handlers: list[object] = []

    def record() -> None:
        with stop_requests():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=record)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGTERM)]


def receives_two_signals() -> None:
    use_default_handlers()
    launch_module.REPEATED_AFTER_S = 0.05
    with stop_requests():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGQUIT)
        os._exit(0)


def loses_a_connection_while_it_stops() -> None:
    with stop_requests():
        os.kill(os.getpid(), signal.SIGTERM)
        raise ConnectionError("another rank has ended")


@pytest.mark.parametrize(
    ("function", "number"),
    [(receives_two_signals, signal.SIGQUIT), (loses_a_connection_while_it_stops, signal.SIGTERM)],
)
def test_a_process_that_cannot_stop_in_order_ends(capfd, function: Callable, number: int) -> None:
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    process.join(30)
    assert process.exitcode == -number
    assert capfd.readouterr().err == ""


# Ranks. Each writes a file when it is ready for signals, and rank 0 then sends them to the launcher.


def signal_launcher(*numbers: int) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    Path(f"ready{rank}").write_text(str(os.getpid()))
    while rank == 0 and not all(Path(f"ready{other}").exists() for other in range(size)):
        time.sleep(0.01)
    if rank == 0:
        for number in numbers:
            os.kill(os.getppid(), number)
            time.sleep(0.1)


def stops_in_order(number: int = signal.SIGTERM) -> None:
    with stop_requests() as request:
        signal_launcher(number)
        while request.signal is None:
            time.sleep(0.01)
        time.sleep(0.3)  # finishes its epoch
        Path(f"stopped{os.environ['RANK']}").write_text(str(request.signal))


def never_stops(*numbers: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal_launcher(*numbers)
    time.sleep(600)


def assert_ended() -> None:
    for rank in range(2):
        assert not Path(f"/proc/{Path(f'ready{rank}').read_text()}").exists()


def fork(function: Callable, *args: object) -> None:
    fork_workers(function, *args, nproc=2, runtime=runtime())


def launch(function: Callable) -> None:
    script = f"from tests.distributed.test_stop import {function.__name__} as rank; rank()"
    launch_workers(["-c", script], 2, runtime())


@pytest.mark.parametrize("start", [fork, pytest.param(launch, marks=pytest.mark.sample(4))])
def test_ranks_may_stop_in_order(monkeypatch, tmp_path: Path, start: Callable) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        start(stops_in_order)
    assert ended.value.code == 128 + signal.SIGTERM
    assert [Path(f"stopped{rank}").read_text() for rank in range(2)] == [str(int(signal.SIGTERM))] * 2


def test_ranks_that_do_not_stop_are_killed(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch_module, "STOP_TIMEOUT_S", 0.5)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fork(never_stops, signal.SIGINT)
    assert 0.5 < time.monotonic() - begin < 10
    assert_ended()


def test_a_second_signal_kills_ranks_at_once(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch_module, "STOP_TIMEOUT_S", 60)
    monkeypatch.setattr(launch_module, "REPEATED_AFTER_S", 0.05)
    begin = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        fork(never_stops, signal.SIGHUP, signal.SIGINT)
    assert ended.value.code == 128 + signal.SIGHUP
    assert time.monotonic() - begin < 10
    assert_ended()


def stops_by_itself() -> None:
    rank = int(os.environ["RANK"])
    setup_logging(rank)
    try:
        raise TrainingStopped("stopped after epoch 3", signal.SIGTERM)
    except TrainingStopped as error:
        if rank == 0:
            time.sleep(0.3)  # writes the checkpoint
        fail(error)


def test_ranks_that_alone_received_a_signal_end_the_job_with_one_line(capfd) -> None:
    with pytest.raises(SystemExit) as ended:
        fork(stops_by_itself)
    assert ended.value.code == 128 + signal.SIGTERM
    assert capfd.readouterr().err == "stopped after epoch 3\n"


def fails_while_another_waits() -> None:
    if os.environ["RANK"] == "1":
        raise ConnectionError("another rank has ended")
    time.sleep(0.2)
    raise ValueError("the cause")


def test_the_rank_that_failed_first_shows_its_traceback_alone(capfd) -> None:
    begin = time.monotonic()
    with pytest.raises(WorkerError, match="ValueError: the cause"):
        fork(fails_while_another_waits)
    assert time.monotonic() - begin < 4
    output = capfd.readouterr().err
    assert output.count("Traceback") == 1 and "another rank has ended" not in output
