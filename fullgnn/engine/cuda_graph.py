"""Capture the training step as a CUDA graph on all ranks, and undo a capture that failed on one of them."""

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fullgnn.distributed import all_gather_objects

log = logging.getLogger(__name__)

EAGER_EPOCHS = 4
"""Epochs that run before the step is captured: one to warm up and three to measure."""

REPLAYED = "replayed"


class StepGraph(Protocol):
    """The CUDA graph of one step; ``kernels/support/cuda_graph.py`` implements it."""

    def capture(self, step: Callable[[], None]) -> None:
        """Record the kernels that ``step`` launches, without running them."""

    def replay(self) -> None:
        """Launch the recorded step."""

    def idle_bytes(self) -> int:
        """Bytes of memory that the graph holds beyond the tensors that the allocator counts."""

    def reset(self) -> None:
        """Free the graph, also after a failed capture. A freed graph must not be replayed."""


@dataclass(frozen=True)
class Replay:
    """Whether epochs may be replayed from a CUDA graph; the same on every rank."""

    make_graph: Callable[[], StepGraph] | None
    reason: str = ""  # the reason, if ``make_graph`` is None


EAGER = Replay(None, "no CUDA graph was requested")


class StateSnapshot:
    """A snapshot of parameters, gradients, optimizer state and random states, which ``restore`` puts back.

    Args:
        inputs: other leaves of the autograd graph, whose gradients are restored as well.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        gradients: Tensor,
        inputs: Sequence[Tensor] = (),
    ):
        self._optimizer = optimizer
        self._tensors = [*model.parameters(), *model.buffers(), gradients]
        self._values = [tensor.detach().clone() for tensor in self._tensors]
        self._grads = [(leaf, leaf.grad) for leaf in (*model.parameters(), *inputs)]
        self._optimizer_state = copy.deepcopy(optimizer.state_dict())
        self._device = gradients.device
        self._random = torch.get_rng_state()
        self._random_on_gpu = torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None

    @torch.no_grad()
    def restore(self) -> None:
        for tensor, value in zip(self._tensors, self._values):
            tensor.copy_(value)
        for leaf, grad in self._grads:
            leaf.grad = grad
        self._optimizer.load_state_dict(self._optimizer_state)
        torch.set_rng_state(self._random)
        if self._random_on_gpu is not None:
            torch.cuda.set_rng_state(self._random_on_gpu, self._device)


def capture_on_all(
    step: Callable[[], None], state: StateSnapshot, make_graph: Callable[[], StepGraph]
) -> tuple[StepGraph | None, str]:
    """Capture ``step`` as a CUDA graph on every rank. Every rank calls it.

    A capture runs no kernel, but it runs the Python code of the step, which may replace tensors. If the capture fails
    on one rank, every rank restores ``state``.

    Args:
        state: a snapshot of all that ``step`` changes, taken before the capture.

    Returns:
        the graph and an empty text if every rank has captured; otherwise None and the error of the first failed rank.
    """
    problem, graph, all_captured = "", None, False
    try:
        try:
            graph = make_graph()
            graph.capture(step)
        except Exception as error:
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        problems = all_gather_objects(problem)
        all_captured = not any(problems)
    finally:
        if not all_captured:
            if graph is not None:
                graph.reset()
            state.restore()
    if all_captured:
        return graph, ""
    failed = next(f"rank {rank}: {problem}" for rank, problem in enumerate(problems) if problem)
    log.info("epochs are not replayed as a CUDA graph: %s", failed)
    return None, failed
