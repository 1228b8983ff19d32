"""Train in a process that belongs to someone else, such as a script or a notebook, and leave it as it was.

A run that has a process of its own begins with the defaults of Python, NumPy and torch, and may change them. Here it
begins with the same defaults, whatever its caller has chosen, and the caller finds its own choices again, also after an
error. What cannot be given back is told in the docstring of ``train_graph``.
"""

import gc
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType

import numpy as np
import torch

from fullgnn.config import RuntimeConfig
from fullgnn.distributed.launch import StopRequest, environment, stop_signals_call, stopped_by
from fullgnn.distributed.mesh import product_precision
from fullgnn.kernels.support.process import end_threads, give_back_freed_memory
from fullgnn.telemetry.log import setup_logging

RequestContext = Callable[[], AbstractContextManager[StopRequest]]
"""As ``stop_requests``: inside of its block, signals are recorded."""


@contextmanager
def as_guest(runtime: RuntimeConfig, seed: int) -> Iterator[None]:
    """Inside the ``with`` block, this process has the settings of a new one; afterwards it has its own again.

    These are torch's threads, its default dtype and device, its modes (gradients, inference, autocast, deterministic
    algorithms, anomaly detection) and its matmul precision, NumPy's error handling, the environment, the current GPU,
    ``sys.excepthook``, and the logger ``fullgnn``. The random states of torch, NumPy and ``random`` are seeded, so that
    a model that draws from them draws the same numbers in every call.

    Args:
        runtime: tells whether the block uses a GPU, which is then in use by this process from here on.
        seed: of the random states.
    """
    uses_gpu = runtime.device != "cpu" and torch.cuda.is_available()
    with environment({}), ExitStack() as stack:
        stack.callback(setattr, sys, "excepthook", sys.excepthook)  # torch wraps it once more for each process group
        _keep_logger(stack)
        _keep_memory(stack, uses_gpu)
        _keep_random_states(stack, seed, uses_gpu)
        _keep_torch_settings(stack)
        stack.enter_context(product_precision(runtime.precision))
        _enter_torch_modes(stack)
        stack.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
        yield


@contextmanager
def signals_of_guest() -> Iterator[RequestContext]:
    """What a stop signal does inside the ``with`` block, in place of ``stop_requests``, which may end the process.

    A signal raises KeyboardInterrupt, or SystemExit if it is not Ctrl-C's. Inside the block of the context that is
    returned, the first signal is recorded, and a second one raises. Signals that are ignored stay ignored. Outside of
    the main thread nothing is changed: Python calls no signal handler there.

    Raises:
        KeyboardInterrupt, SystemExit: a signal was recorded, and its block has ended well.
    """
    request, recording = StopRequest(), [False]

    def handle(number: int, frame: FrameType | None) -> None:
        request.receive(number)
        if not recording[0] or request.is_urgent:
            raise stopped_by(number)

    @contextmanager
    def recorded() -> Iterator[StopRequest]:
        recording[0] = True
        try:
            yield request
        finally:
            recording[0] = False

    with stop_signals_call(handle):
        yield recorded
    if request.signal is not None:
        raise stopped_by(request.signal)


def _keep_logger(stack: ExitStack) -> None:
    """Log to stderr as a rank does. A logger that the caller has given a level or handlers is left as it is."""
    package = logging.getLogger("fullgnn")
    stack.callback(package.setLevel, package.level)
    stack.callback(setattr, package, "handlers", package.handlers)
    stack.callback(setattr, package, "propagate", package.propagate)
    if not package.handlers and package.level == logging.NOTSET:
        setup_logging()


def _keep_memory(stack: ExitStack, uses_gpu: bool) -> None:
    """The current GPU; and threads and memory that are used meanwhile are given back.

    CUDA begins here, so that random states of a GPU exist before the block.
    """
    stack.callback(give_back_freed_memory)
    if uses_gpu:
        torch.cuda.init()
        stack.callback(torch.cuda.empty_cache)
        stack.callback(torch.cuda.set_device, torch.cuda.current_device())
    stack.callback(gc.collect)
    stack.callback(end_threads)


def _keep_random_states(stack: ExitStack, seed: int, uses_gpu: bool) -> None:
    stack.callback(torch.set_rng_state, torch.get_rng_state())
    stack.callback(np.random.set_state, np.random.get_state())
    stack.callback(random.setstate, random.getstate())
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
    if uses_gpu:
        stack.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
        torch.cuda.manual_seed_all(seed)


def _keep_torch_settings(stack: ExitStack) -> None:
    """Settings of the whole process: threads, default dtype, deterministic algorithms."""
    stack.callback(torch.set_num_threads, torch.get_num_threads())
    stack.callback(torch.set_default_dtype, torch.get_default_dtype())
    stack.callback(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
    torch.set_default_dtype(torch.float32)
    torch.set_deterministic_debug_mode("default")


def _enter_torch_modes(stack: ExitStack) -> None:
    """Modes of this thread: gradients are on, and inference, autocast, anomaly detection and a default device off."""
    stack.enter_context(torch.inference_mode(False))
    stack.enter_context(torch.enable_grad())
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    if torch.is_anomaly_enabled():
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
    if torch.get_default_device().type != "cpu":  # a mode costs time in every call of torch
        stack.enter_context(torch.device("cpu"))
