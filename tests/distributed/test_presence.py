"""Ranks wait for ranks that work, and notice those that are lost."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import torch.distributed as dist

from fullgnn.distributed import presence
from fullgnn.distributed.presence import LostRank, Presence, Process, Silence, join, present

HERE = Process.current()
FAR = Process("another machine", 1, "0")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "LOOK_S", 0.05)
    monkeypatch.setattr(presence, "BEAT_S", 0.02)


def two(store: dist.Store, other: Process, timeout_s: float) -> tuple[Presence, Presence]:
    """Ranks 0, here, and 1, which runs as ``other``, as each of them sees the job."""
    processes = [HERE, other]
    return Presence(store, 0, processes, timeout_s, True), Presence(store, 1, processes, timeout_s, True)


def later(seconds: float, function: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, function)
    timer.start()
    return timer


@pytest.mark.parametrize("other", [HERE, FAR])
def test_a_rank_that_works_is_waited_for(other: Process) -> None:
    store = dist.HashStore()
    first, second = two(store, other, timeout_s=0.2)
    done = threading.Event()
    beats = threading.Thread(target=presence.send_beats, args=(store, 1, done))
    beats.start()
    later(0.8, lambda: second.tell("work", "what it found"))
    assert first.hear("work", 1) == "what it found"
    done.set()
    beats.join()


def test_a_silent_rank_of_another_machine_is_lost() -> None:
    first, second = two(dist.HashStore(), FAR, timeout_s=0.3)
    begin = time.monotonic()
    with pytest.raises(LostRank, match=r"^rank 1 \(process 1 on another\) did not answer within runtime.timeout_s=0.3"):
        first.meet()
    assert 0.3 < time.monotonic() - begin < 10
    assert first.silent() == first.gone() == [1] and first.pids_here([1]) == []
    second.leave()
    assert first.silent() == [1] and first.gone() == []  # it has left because it has seen an error itself


def test_a_rank_that_is_stopped_is_lost_and_one_that_has_ended_is_not_waited_for() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        other = Process.of(process.pid)
        assert other.state() == "running" and other.machine == HERE.machine
        process.send_signal(signal.SIGSTOP)
        first, _ = two(dist.HashStore(), other, timeout_s=0.3)
        with pytest.raises(LostRank, match="did not answer within runtime.timeout_s=0.3 s: it is stopped") as caught:
            first.hear("work", 1)
        assert caught.value.stopped == [process.pid] == first.pids_here(first.silent())
    finally:
        process.kill()
    with pytest.raises(ConnectionError, match="rank 1 has ended"):
        first.hear("work", 1)
    process.wait()
    assert other.state() == "ended"
    assert Process(HERE.machine, HERE.pid, "0").state() == "ended"  # another process had this id


def test_a_rank_that_has_left_is_not_waited_for_but_what_it_told_is_heard() -> None:
    first, second = two(dist.HashStore(), HERE, timeout_s=60)
    with join(second, dist.HashStore):
        assert present() is second
        second.tell("work", "found")
    assert present() is None
    assert first.hear("work", 1) == "found"
    with pytest.raises(ConnectionError, match="rank 1 has ended"):
        first.hear("work", 1)


def test_ranks_meet_as_often_as_they_like() -> None:
    first, second = two(dist.HashStore(), HERE, timeout_s=60)
    met: list[int] = []

    def other() -> None:
        for number in range(3):
            time.sleep(0.1)
            met.append(number)
            second.meet()

    thread = threading.Thread(target=other)
    thread.start()
    for number in range(3):
        first.meet()
        assert met[-1] >= number
    thread.join()


def test_a_suspended_job_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours in which this process itself was stopped hardly count as silence of another one."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    silence = Silence()
    now = 10_000.0
    assert silence.look(False) == 2 * presence.LOOK_S
    now += presence.LOOK_S
    assert silence.look(False) == pytest.approx(3 * presence.LOOK_S)
    assert silence.look(True) == 0
