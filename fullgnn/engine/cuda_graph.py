"""The training step as a CUDA graph: whether it may be one, what a capture changes, and a capture on all ranks."""

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fullgnn.distributed import World, all_gather_objects
from fullgnn.kernels.support.cuda_graph import CudaGraph

log = logging.getLogger(__name__)

EAGER_EPOCHS = 4
"""One to warm up and three to measure, before the step is captured."""

REPLAYED = "replayed"


class StepGraph(Protocol):
    """The CUDA graph of one step; ``kernels/support/cuda_graph.py`` has the real one."""

    def capture(self, step: Callable[[], None]) -> None:
        """Record what ``step`` launches, without running any of it."""

    def replay(self) -> None:
        """Launch the recorded step."""

    def idle_bytes(self) -> int:
        """Memory that the graph holds beyond the tensors that the allocator counts."""

    def reset(self) -> None:
        """Free the graph, also after a capture that failed. A freed graph is not replayed again."""


@dataclass(frozen=True)
class Replay:
    """Whether epochs may be replayed, the same on every rank."""

    make_graph: Callable[[], StepGraph] | None
    why_not: str = ""  # without a graph


EAGER = Replay(None, "not asked for")


def replay_for(choice: str, world: World) -> Replay:
    """Whether the step may be replayed, by ``runtime.cuda_graph`` (``choice``), the device and the backend."""
    if choice == "never":
        return Replay(None, "runtime.cuda_graph=never")
    if world.device.type != "cuda":
        return Replay(None, "the device is a CPU")
    if world.size > 1 and world.backend != "nccl":
        return Replay(None, f"the ranks exchange over {world.backend}, which is the host's work")
    return Replay(CudaGraph)


class TrainingState:
    """Parameters, gradients, optimizer and random numbers as they are now, to be put back.

    Args:
        inputs: other leaves of the model's graph; their gradients are put back as well.
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
    step: Callable[[], None], state: TrainingState, make_graph: Callable[[], StepGraph]
) -> tuple[StepGraph | None, str]:
    """Capture ``step`` on every rank; called on every rank.

    A capture runs no kernel, yet it runs the Python of the step, which may leave other tensors in some places. If a
    rank fails, every rank puts ``state`` back.

    Args:
        state: what ``step`` changes, as it was before.

    Returns:
        the graph and an empty text if every rank has a graph; else None, and the first rank that failed and why.
    """
    problem, graph, whole = "", None, False
    try:
        try:
            graph = make_graph()
            graph.capture(step)
        except Exception as error:
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        problems = all_gather_objects(problem)
        whole = not any(problems)
    finally:
        if not whole:
            if graph is not None:
                graph.reset()
            state.restore()
    if whole:
        return graph, ""
    failed = next(f"rank {rank}: {problem}" for rank, problem in enumerate(problems) if problem)
    log.info("epochs are not replayed as a CUDA graph: %s", failed)
    return None, failed
