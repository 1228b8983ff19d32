"""The same step every epoch: run a few times, then captured as one CUDA graph and replayed.

    epochs 1 to EAGER_EPOCHS    run; the first allocates and tunes, the others have the phases that are reported
    before the next             every rank captures the step, which runs nothing, and says whether it could
    from there on               all ranks replay, or, where one could not, all go on running: no rank decides alone

The step reads and writes the same memory each time. What changes from one epoch to the next, the number that the
dropout masks read, is written before a replay. On a GPU all of this is on a stream of its own, as a capture wants: no
step has left anything behind on another.
"""

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fullgnn.distributed import World, all_gather_objects
from fullgnn.kernels.support.cuda_graph import CudaGraph
from fullgnn.telemetry.meter import Cost, Meter

log = logging.getLogger(__name__)

EAGER_EPOCHS = 4
"""One to warm up and three to measure, before the step is captured."""

REPLAYED = "replayed"


class StepGraph(Protocol):
    """The recording of one step: ``CudaGraph``."""

    def capture(self, step: Callable[[], None]) -> None:
        """Record what ``step`` launches. Nothing of it runs."""

    def replay(self) -> None:
        """Launch all of it."""

    def idle_bytes(self) -> int:
        """Memory that the graph holds beyond the tensors that the allocator counts."""

    def reset(self) -> None:
        """Free it, also after a capture that failed; it is not replayed again."""


@dataclass(frozen=True)
class Replay:
    """Whether epochs may be replayed, the same on every rank."""

    make_graph: Callable[[], StepGraph] | None
    why_not: str = ""  # without a graph


EAGER = Replay(None, "not asked for")


def replay_for(choice: str, world: World) -> Replay:
    """By ``runtime.cuda_graph`` and what the ranks run on."""
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


class Step(Protocol):
    """What ``RepeatedStep`` repeats."""

    def begin(self, epoch: int) -> None:
        """What comes before the step of ``epoch``; it may differ from epoch to epoch."""

    def run(self) -> None:
        """The same launches, on the same memory, every time."""

    def save(self) -> TrainingState:
        """Called before a capture; what undoes it, should it fail."""


class RepeatedStep:
    """See the head of this file; called once for each epoch, on every rank."""

    def __init__(self, step: Step, meter: Meter, replay: Replay, device: torch.device):
        self._step, self._meter, self._replay = step, meter, replay
        self._num_eager = 0
        self._graph: StepGraph | None = None
        self._captured = Cost()
        self.idle_bytes = 0  # of the graph, see ``StepGraph``
        self.outcome = f"no: {replay.why_not or 'the run ended before its step was captured'}"
        aside = replay.make_graph is not None and device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if aside else None

    def __call__(self, epoch: int) -> bool:
        """Launch ``epoch``; returns whether it was replayed."""
        with self._on_own_stream():
            if self._num_eager == EAGER_EPOCHS and self._graph is None and self._replay.make_graph is not None:
                self._step.begin(epoch)
                self._graph = self._captured_by_all(self._replay.make_graph)
            if self._graph is not None:
                with self._meter.phase("epoch"):
                    self._step.begin(epoch)
                    self._graph.replay()
                self._meter.add(self._captured)
                return True
            with self._meter.phase("epoch"):
                with self._meter.phase("other"):
                    self._step.begin(epoch)
                self._step.run()
            self._num_eager += 1
            return False

    def close(self) -> None:
        """Free the graph. The collectives that it holds are free as well."""
        graph, self._graph, self.idle_bytes = self._graph, None, 0
        if graph is not None:
            graph.reset()

    def _captured_by_all(self, make_graph: Callable[[], StepGraph]) -> StepGraph | None:
        """The step's graph, if every rank has one. If not, everything is as before.

        A capture runs no kernel, yet it runs the step's Python, which may have put other tensors in some places.
        """
        state, problem, graph, whole = self._step.save(), "", None, False
        try:
            with self._meter.untimed() as self._captured:
                try:
                    graph = make_graph()
                    graph.capture(self._step.run)
                except Exception as error:
                    problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
            problems = all_gather_objects(problem)
            whole = not any(problems)
        finally:
            if not whole:
                if graph is not None:
                    graph.reset()
                state.restore()
        if graph is not None and whole:
            self.outcome, self.idle_bytes = REPLAYED, graph.idle_bytes()
            return graph
        failed = next((rank, problem) for rank, problem in enumerate(problems) if problem)
        self.outcome = f"no: rank {failed[0]}: {failed[1]}"
        log.info("epochs are not replayed as a CUDA graph: rank %d: %s", *failed)
        return None

    @contextmanager
    def _on_own_stream(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        outside = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(outside)
        with torch.cuda.stream(self._stream):
            yield
        outside.wait_stream(self._stream)
