"""The gradient step of one run on one rank, launched once per epoch.

    epochs 1 to EAGER_EPOCHS    the step runs eagerly; the first epoch allocates and autotunes, the others give the
                                phases that are reported
    before the next epoch       every rank captures the step as a CUDA graph, if ``Replay`` allows it
    from there on               all ranks replay the graph; if the capture failed on one rank, all continue eagerly

The step reads and writes the same memory in every epoch. The number of the epoch, which the dropout masks read, and a
learning rate that changes are written before the step. On a GPU with a CUDA graph the eager epochs, too, run on a
separate stream: a capture needs one, and no step may leave work behind on another stream.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.engine.blocks import loss_logits
from fullgnn.engine.cuda_graph import EAGER, EAGER_EPOCHS, REPLAYED, Replay, StateSnapshot, StepGraph, capture_on_all
from fullgnn.engine.optimizers import clip_gradients, device_rates, is_replayable, make_optimizer, make_schedule
from fullgnn.kernels.support.trials import free_kept_formats
from fullgnn.nn import cross_entropy, set_epoch
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.telemetry.meter import Cost, Meter, PendingCost


@dataclass(frozen=True)
class Launched:
    """An epoch that the GPU may still be computing."""

    epoch: int
    loss: "AsyncScalar"  # training loss before the update, the global mean
    cost: PendingCost  # the meter's counts and times of this epoch
    replayed: bool  # as a CUDA graph


class TrainStep:
    """Forward, backward, sum of the gradients over the ranks, and update. The call takes the number of the epoch.

    Args:
        model: a model with equal parameters on every rank.
        graph: this rank's part of the graph.
        cfg: the optimizer, the schedule of the learning rate and how gradients are clipped.
        replay: whether the step may be replayed as a CUDA graph; the same on every rank.

    Raises:
        ConfigError: the optimizer or the schedule cannot be used; the same on every rank.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        graph: ShardedGraph,
        scheme: Scheme,
        cfg: Config,
        meter: Meter,
        replay: Replay = EAGER,
    ):
        self.model, self.graph, self.scheme, self.meter = model, graph, scheme, meter
        self.optimizer = make_optimizer(cfg.optimizer, model, cfg.train.decay_biases)
        self.schedule = make_schedule(cfg.schedule, self.optimizer, cfg.train.epochs)
        self.gradients, self._clip_norm = FlatGradients(model), cfg.train.clip_norm
        if replay.make_graph is not None and not is_replayable(self.optimizer):
            replay = Replay(None, f"the state of optimizer={cfg.optimizer['name']} is not on the device alone")
        self.outcome = f"no: {replay.reason or 'the run ended before its step was captured'}"
        self.idle_bytes = 0  # memory of the CUDA graph beyond the tensors that the allocator counts
        self._replay = replay
        self._num_launched = self._num_run = 0
        self._cuda_graph: StepGraph | None = None
        self._captured = Cost()  # bytes and counts of one replay
        self._device = graph.labels.device
        self._rates = device_rates(self.optimizer, self.schedule, self._device, replay.make_graph is not None)
        own_stream = replay.make_graph is not None and self._device.type == "cuda"
        self._stream = torch.cuda.Stream(self._device) if own_stream else None

    def __call__(self, epoch: int) -> Launched:
        """Launch ``epoch``. The result holds the meter's counts since its last ``lap``."""
        self._num_launched += 1
        if self._num_launched == 2:
            free_kept_formats()  # the first epoch has multiplied every width of H
        with self._on_own_stream():
            self._capture_if_due(epoch)
            replayed = self._cuda_graph is not None
            with self.meter.phase("epoch"):
                if self._cuda_graph is not None:
                    self.begin(epoch)
                    self._cuda_graph.replay()
                else:
                    with self.meter.phase("other"):
                        self.begin(epoch)
                    self.run()
                    self._num_run += 1
            if replayed:
                self.meter.add(self._captured)
        if self.schedule is not None:
            self.schedule.step()
        return Launched(epoch, AsyncScalar(self.gradients.flat[-1]), self.meter.lap(), replayed)

    def begin(self, epoch: int) -> None:
        """Write the only inputs that differ between epochs: the number that seeds the dropout masks, and the learning
        rates."""
        self.model.train()
        set_epoch(self.model, epoch)
        if self._rates is not None:
            self._rates.write()

    def run(self) -> None:
        """Run one step. It is CUDA-graph safe: fixed buffers, the same launches every time, no host synchronisation."""
        graph, meter = self.graph, self.meter
        with meter.phase("other"):
            self.gradients.flat.zero_()
            if isinstance(graph.features, Tensor):
                graph.features.grad = None  # set by the backward pass if skip_input_gradient=false
        loss = node_loss(loss_logits(self.model, graph), graph)
        loss.backward()
        self.gradients.sum_with(loss.detach(), self.scheme)
        with meter.phase("other"):
            if self._clip_norm is not None:
                clip_gradients(self.gradients.flat[:-1], self._clip_norm)
            (self._rates or self.optimizer).step()

    def save(self) -> StateSnapshot:
        """Take a snapshot of all that ``run`` changes, to restore it after a failed capture."""
        inputs = [self.graph.features] if isinstance(self.graph.features, Tensor) else []
        state = StateSnapshot(self.model, self.optimizer, self.gradients.flat, inputs)
        if self._device.type == "cuda":
            for group in self.optimizer.param_groups:
                group["capturable"] = True  # Adam refuses a capture otherwise; its state is on the GPU already
        return state

    def tensors(self) -> list[Tensor]:
        """The tensors that training holds, for counting memory. The optimizer has no state before the first epoch."""
        states = self.optimizer.state.values()
        kept = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        return [*self.model.parameters(), self.gradients.flat, *kept]

    def close(self) -> None:
        """Free the CUDA graph. NCCL destroys its process group only when no graph holds its collectives any more
        (github.com/pytorch/pytorch/issues/115388)."""
        graph, self._cuda_graph, self.idle_bytes = self._cuda_graph, None, 0
        if graph is not None:
            graph.reset()

    def _capture_if_due(self, epoch: int) -> None:
        if self._num_run != EAGER_EPOCHS or self._cuda_graph is not None or self._replay.make_graph is None:
            return
        self.begin(epoch)
        with self.meter.untimed() as captured:
            graph, problem = capture_on_all(self.run, self.save(), self._replay.make_graph)
        self.outcome = f"no: {problem}"
        if graph is not None:
            self._cuda_graph, self._captured = graph, captured
            self.outcome, self.idle_bytes = REPLAYED, graph.idle_bytes()

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


class AsyncScalar:
    """Copies a number from its device now, to be read later; later writes to the number do not change the copy."""

    def __init__(self, number: Tensor):
        if number.device.type == "cuda":
            self._host = torch.empty((), dtype=number.dtype, pin_memory=True)
            self._host.copy_(number, non_blocking=True)
            self._arrived: torch.cuda.Event | None = torch.cuda.Event()
            self._arrived.record()
        else:
            self._host, self._arrived = number.clone(), None

    def read(self) -> float:
        """Wait for this number only, not for work that was launched after it."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host.item()


def node_loss(logits: Tensor, graph: ShardedGraph) -> Tensor:
    """Return this rank's part of the cross-entropy of (num_local_train, num_classes) ``logits``, a scalar.

    The part is the sum over this rank's training rows, divided by the global number of training rows. A rank without
    training rows contributes 0 and still takes part in the backward pass.
    """
    return _CrossEntropy.apply(logits, graph.train_labels, 1 / graph.num_split_nodes[0])


class _CrossEntropy(torch.autograd.Function):
    """The last operation of a step: the forward pass computes the loss and its gradient at once."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, scale: float) -> Tensor:
        loss, gradient = cross_entropy(logits, labels, scale)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient_of_loss: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the logits. ``gradient_of_loss`` is 1, since no operation follows the loss."""
        return ctx.saved_tensors[0], None, None


class FlatGradients:
    """All gradients of a model in one buffer, so that one collective sums them. Each ``parameter.grad`` is a view.

    The last element of the buffer holds the loss, which is summed with the gradients.
    """

    def __init__(self, model: torch.nn.Module):
        parameters = list(model.parameters())
        self.flat = parameters[0].detach().new_zeros(sum(parameter.numel() for parameter in parameters) + 1)
        pieces = self.flat[:-1].split([parameter.numel() for parameter in parameters])
        for parameter, piece in zip(parameters, pieces):
            parameter.grad = piece.view_as(parameter)

    def sum_with(self, loss: Tensor, scheme: Scheme) -> None:
        """Sum the gradients, and this rank's ``loss`` in the last element, over the rows of all ranks."""
        self.flat[-1] = loss
        scheme.sum_over_rows(self.flat)
