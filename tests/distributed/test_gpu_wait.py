"""A wait for a GPU ends when its event comes, or when a rank would be lost. The events of these tests are made up."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import torch.distributed as dist

from fullgnn.distributed import gpu_wait, presence, wait_for_gpu
from fullgnn.distributed.presence import Presence, Process, join
from fullgnn.engine.step_runner import AsyncNumbers


class Completes:
    """An event to which the GPU comes after some seconds."""

    def __init__(self, after_s: float = 0.0):
        self._end, self.num_queries, self.synchronized = time.monotonic() + after_s, 0, False

    def query(self) -> bool:
        self.num_queries += 1
        return time.monotonic() >= self._end

    def synchronize(self) -> None:
        self.synchronized = True


@contextmanager
def job(num_ranks: int, timeout_s: float) -> Iterator[None]:
    """Take part in a job of ranks that are all this process."""
    ranks = Presence(dist.HashStore(), 0, [Process.current()] * num_ranks, timeout_s, True)
    with join(ranks, dist.HashStore):
        yield


@pytest.mark.parametrize("num_ranks", [0, 1])
def test_alone_a_process_waits_for_as_long_as_it_takes(num_ranks: int) -> None:
    event = Completes(after_s=1e9)
    with job(num_ranks, 0.01) if num_ranks else ExitStack():
        wait_for_gpu(event)
    assert event.synchronized and event.num_queries == 0


def test_an_event_in_the_past_costs_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it slept"))
    event = Completes()
    with job(2, 60):
        wait_for_gpu(event)
    assert event.num_queries == 1 and not event.synchronized


def test_a_late_event_is_waited_for_and_hardly_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    naps, now = list[float](), 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        naps.append(seconds)
        now += seconds

    def monotonic() -> float:
        nonlocal now
        now += 1e-5  # a question takes some microseconds
        return now

    with job(2, 60):
        monkeypatch.setattr(time, "sleep", sleep)
        monkeypatch.setattr(time, "monotonic", monotonic)
        event = Completes(after_s=0.25)
        wait_for_gpu(event)
    assert now - 0.25 < 0.25 / 50
    assert event.num_queries - len(naps) > 10  # it asks without a nap at first
    assert naps == sorted(naps) and naps[-1] <= gpu_wait.LONGEST_NAP_S


@pytest.mark.parametrize("by", ["wait_for_gpu", "AsyncNumbers"])
def test_an_event_that_never_comes_ends_the_wait(by: str) -> None:
    begin, event = time.monotonic(), Completes(after_s=1e9)
    numbers = AsyncNumbers.__new__(AsyncNumbers)  # as they are on a GPU
    numbers.arrived = event  # type: ignore[assignment]
    with job(2, 0.2), pytest.raises(TimeoutError, match=r"^a GPU did not complete its work within 0\.2 s$"):
        wait_for_gpu(event) if by == "wait_for_gpu" else numbers.read()
    assert 0.2 < time.monotonic() - begin < 5


def test_a_job_that_was_suspended_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours in which this process was stopped are not hours in which the GPU has done nothing."""
    clock = iter([0.0, 0.0, 0.0, 0.0, 0.0, 10_000.0, 10_000.0, 20_000.0])
    event = Completes()
    answers = iter([False, False, True])
    monkeypatch.setattr(event, "query", lambda: next(answers))
    with job(2, 3 * presence.LOOK_S):
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        monkeypatch.setattr(time, "monotonic", lambda: next(clock, 20_000.0))
        wait_for_gpu(event)
