"""Compile the kernels of a step on several threads before the step.

Triton compiles a kernel where it is launched for the first time, and the launch waits. A step of training has dozens of
kernels, so that the first epoch would wait for one after the other. In a rehearsal the host's code of the step runs as
always, but a kernel in Triton is not launched: if it has not been compiled yet, a thread begins to compile it. The
rehearsal ends when all threads have ended. Operations of torch, and collectives, run; they read whatever is in the
memory that the kernels would have written. So the caller saves what the step changes, and restores it afterwards:
``engine/rehearse.py`` does so for a step of training.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

from fullgnn.kernels.support import compile_time

_rehearses = False


def rehearsing() -> bool:
    """Whether kernels are compiled and not launched, so that there is nothing to time or to compare."""
    return _rehearses


@contextmanager
def rehearsal(num_threads: int) -> Iterator[None]:
    """Compile the kernels that the ``with`` block launches, and launch none.

    The clocks of ``compile_time`` hear of the time whenever a kernel is finished, so that they tell of it while it
    lasts. In Triton's interpreter, which compiles nothing, the block launches nothing either.

    Raises:
        Exception: of any kind, with which the compiler refuses a kernel.
    """
    global _rehearses
    # Imported here, since only GPUs need Triton.
    from triton import AsyncCompileMode
    from triton.runtime._async_compile import active_mode
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        # torch runs the backward pass of a GPU in a thread of its own, in which Triton would not know of the mode.
        before = active_mode.set(mode)
        try:
            return run(self, *args, grid=grid, warmup=True, **kwargs)
        finally:
            active_mode.reset(before)

    def leave_out(self: Any, *args: Any, **kwargs: Any) -> None:
        return None

    begin = time.perf_counter()
    _rehearses = True
    try:
        with (
            ThreadPoolExecutor(num_threads) as threads,
            _method(InterpretedFunction, "run", leave_out),
            _method(JITFunction, "run", compile_only),
            AsyncCompileMode(threads) as mode,
        ):
            yield
            for _ in as_completed(mode.raw_futures):
                begin, before = time.perf_counter(), begin
                compile_time.waited(begin - before)
    finally:
        _rehearses = False


@contextmanager
def _method(of: type, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of Triton in the ``with`` block: it has no way of its own to launch nothing."""
    original = getattr(of, name)
    setattr(of, name, replacement)
    try:
        yield
    finally:
        setattr(of, name, original)
