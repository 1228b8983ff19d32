import threading
import time
import weakref
from functools import partial

import pytest
import torch

from fullgnn.kernels.support.process import even_slices, parallel_for


@pytest.mark.parametrize("num_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("num_tasks", [0, 1, 2, 50])
def test_every_task_runs_once(num_threads: int, num_tasks: int) -> None:
    torch.set_num_threads(num_threads)
    done: list[int] = []
    parallel_for(done.append, range(num_tasks))
    assert sorted(done) == list(range(num_tasks))


def test_the_calling_thread_works_beside_others() -> None:
    torch.set_num_threads(2)
    both = threading.Barrier(2, timeout=30)
    threads: set[int] = set()

    def meet(_: int) -> None:
        both.wait()
        threads.add(threading.get_ident())

    parallel_for(meet, range(2))
    assert len(threads) == 2 and threading.get_ident() in threads


def test_what_the_tasks_hold_is_free_at_the_end() -> None:
    torch.set_num_threads(2)
    for _ in range(300):
        held = torch.zeros(8)
        freed = weakref.ref(held)
        parallel_for(partial(held.add), range(4))
        del held
        assert freed() is None


def test_one_thread_is_the_calling_one() -> None:
    torch.set_num_threads(1)
    threads: list[int] = []
    parallel_for(lambda _: threads.append(threading.get_ident()), range(5))
    assert threads == [threading.get_ident()] * 5


@pytest.mark.parametrize("num_threads", [1, 2, 4])
@pytest.mark.parametrize("failing", [0, 1, 99])
def test_an_exception_reaches_the_caller_and_the_next_call_works(num_threads: int, failing: int) -> None:
    torch.set_num_threads(num_threads)
    done: list[int] = []

    def task(number: int) -> None:
        if number == failing:
            raise ValueError(f"task {number}")
        done.append(number)

    with pytest.raises(ValueError, match=f"task {failing}"):
        parallel_for(task, range(100))
    assert failing not in done
    done.clear()
    parallel_for(task, [5, 6])
    assert sorted(done) == [5, 6]


def test_no_task_is_under_way_after_an_exception() -> None:
    torch.set_num_threads(2)
    both = threading.Barrier(2, timeout=30)
    ended: list[str] = []

    def task(name: str) -> None:
        both.wait()
        if name == "fails":
            raise ValueError(name)
        time.sleep(0.05)
        ended.append(name)

    with pytest.raises(ValueError, match="fails"):
        parallel_for(task, ["fails", "is slow"])
    assert ended == ["is slow"]


def test_calls_may_be_nested() -> None:
    torch.set_num_threads(2)
    done: list[tuple[int, int]] = []
    parallel_for(lambda i: parallel_for(lambda j: done.append((i, j)), range(4)), range(4))
    assert sorted(done) == [(i, j) for i in range(4) for j in range(4)]


@pytest.mark.parametrize(("length", "count"), [(0, 1), (10, 1), (10, 3), (2, 4)])
def test_even_slices(length: int, count: int) -> None:
    rows, slices = list(range(length)), even_slices(length, count)
    assert [row for part in slices for row in rows[part]] == rows
    sizes = [part.stop - part.start for part in slices]
    assert len(sizes) == count and max(sizes) - min(sizes) <= 1
