"""The threads and the memory of this process, as kernels use them: threads for compiled code that releases the GIL, and
freed memory that is kept instead of returned to the system."""

import bisect
import ctypes
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import numpy as np
import torch

Item = TypeVar("Item")

PIECES = 64
"""Into how many pieces a large array is cut for the threads, which take one after the other."""

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4  # parameters of glibc's mallopt
_KEEP = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 1 << 26}
_USUAL = {_M_MMAP_MAX: 1 << 16, _M_MMAP_THRESHOLD: 1 << 25, _M_TRIM_THRESHOLD: 1 << 26, _M_TOP_PAD: 1 << 17}
"""glibc's own values. It raises the two thresholds to these by itself, as large arrays are freed."""


def keep_freed_memory() -> bool:
    """Keep freed memory in this process, and return whether that is possible: only on Linux with glibc.

    Every epoch frees and allocates the same tensors. By default glibc returns large ones to the system, which then
    provides zeroed pages one page fault at a time: an epoch on a CPU can spend a third of its time on these faults.
    """
    return _set(_KEEP)


def give_back_freed_memory() -> None:
    """Undo ``keep_freed_memory``, and return the memory that was kept to the system."""
    _set(_USUAL)
    return_freed_memory()


def _set(parameters: dict[int, int]) -> bool:
    """Set ``parameters`` of glibc's allocator, and return whether that is possible."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return all([mallopt(parameter, value) for parameter, value in parameters.items()])


def return_freed_memory() -> None:
    """Return memory that is kept and not used to the system, where that is possible."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def parallel_for(function: Callable[[Item], object], tasks: Iterable[Item]) -> None:
    """Call ``function(task)`` for every task, on as many threads as torch may use.

    The calling thread is one of these threads. Each thread takes the next task when it has finished one, which balances
    tasks of unequal size and cores that are busy elsewhere. Any thread may run any task.

    numba's own threads are not used: numba's OpenMP layer resets the thread count of the whole process, torch's
    included, and its ``workqueue`` threads poll while idle, which takes a tenth of a core each. torch's threads poll as
    well, for milliseconds after each torch operation, and take a core from these tasks, unless OMP_WAIT_POLICY is
    ``passive`` when torch is loaded: ``fullgnn`` and its launcher set this variable.

    Raises:
        BaseException: the exception of a task, after the running tasks have ended. Tasks that wait are not run.
    """
    # The pool may hold ``work`` a little longer than this call: only ``waiting``, empty by then, may hold tensors.
    waiting = deque(functools.partial(function, task) for task in tasks)
    num_threads = min(torch.get_num_threads(), len(waiting))

    def work() -> None:
        try:
            while True:
                try:
                    call = waiting.popleft()
                except IndexError:
                    return
                call()
        except BaseException:
            waiting.clear()
            raise

    helpers = [pool_of(torch.get_num_threads()).submit(work) for _ in range(num_threads - 1)]
    try:
        work()
    finally:
        # Helpers that have not begun are cancelled, since no task is left. So the caller never waits for threads that
        # are busy with other work, or that do not exist in this process because it was forked.
        errors = [helper.exception() for helper in helpers if not helper.cancel()]
    for error in errors:
        if error is not None:
            raise error


def even_slices(length: int, count: int) -> list[slice]:
    """Cut ``length`` rows into ``count`` consecutive slices whose lengths differ by at most one."""
    return [slice(length * k // count, length * (k + 1) // count) for k in range(count)]


def even_work(starts: np.ndarray, num_rows: int, row_cost: int, count: int) -> list[int]:
    """The bounds of ``count`` consecutive chunks of the rows of a CSR matrix, about equal in work.

    Args:
        starts: (num_rows + 1,) or more, where the edges of each row begin.
        row_cost: cost of one more row, in edges.
    """

    def work_before(row: int) -> int:
        return int(starts[row]) + row * row_cost

    total, rows = work_before(num_rows), range(num_rows + 1)
    return [bisect.bisect_left(rows, total * chunk // count, key=work_before) for chunk in range(count + 1)]


@functools.cache
def pool_of(num_threads: int) -> ThreadPoolExecutor:
    """The threads of this process that share work in so many parts."""
    return ThreadPoolExecutor(num_threads, thread_name_prefix="fullgnn")


def end_threads() -> None:
    """Let the threads of ``parallel_for`` end, which wait for more work otherwise. New ones begin where needed."""
    pool_of.cache_clear()
