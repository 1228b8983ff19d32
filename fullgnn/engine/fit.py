"""Full-batch training: one gradient step an epoch, exactly the single-process step on any number of ranks."""

import copy
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.config import TrainConfig
from fullgnn.engine.evaluate import Accuracies, evaluate
from fullgnn.engine.graphed import EAGER, RepeatedStep, Replay, TrainingState
from fullgnn.engine.memory import TensorPeak
from fullgnn.kernels.support.process import keep_freed_memory
from fullgnn.kernels.support.trials import settle
from fullgnn.nn import cross_entropy, set_epoch
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.telemetry.meter import Cost, Meter, Spent

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpochRecord:
    """One epoch on this rank. ``accuracy`` is None where the epoch was not evaluated; evaluation is not in ``cost``."""

    epoch: int  # from 1
    loss: float  # training loss before the update, global mean
    cost: Cost  # of the training step
    accuracy: Accuracies | None
    replayed: bool = False  # as a CUDA graph: its time has no phases


@dataclass(frozen=True)
class FitResult:
    epochs: list[EpochRecord]
    best: EpochRecord  # best validation accuracy, earliest on ties; the last evaluation without a validation split
    best_state: dict[str, Tensor]  # the model's parameters at ``best``
    peak_tensor_bytes: int
    cuda_graph: str  # see RunRecord


def fit(
    model: torch.nn.Module,
    graph: ShardedGraph,
    scheme: Scheme,
    train: TrainConfig,
    meter: Meter,
    on_epoch: Callable[[EpochRecord], None] = lambda record: None,
    replay: Replay = EAGER,
) -> FitResult:
    """Train ``model`` in place; called on every rank with the same model.

    Every decision (best epoch, early stop) is taken from numbers that all ranks share. On a GPU an epoch that is not
    evaluated is read, and ``on_epoch`` called, after the next one was launched: the GPU does not wait for the host.

    Args:
        replay: whether epochs may be replayed as a CUDA graph, and how.
    """
    keep_freed_memory()
    epochs = Epochs(model, graph, scheme, train, meter, replay)
    peak = TensorPeak(graph.labels.device)
    records: list[EpochRecord] = []
    best: EpochRecord | None = None
    best_state: dict[str, Tensor] = {}
    stale = 0
    late: Launched | None = None  # launched, and not yet read

    def watched() -> AbstractContextManager[None]:
        return peak.watch(*graph.tensors(), *epochs.tensors())

    def read(launched: Launched, accuracy: Accuracies | None) -> EpochRecord:
        record = EpochRecord(launched.epoch, launched.loss.read(), launched.spent.read(), accuracy, launched.replayed)
        records.append(record)
        return record

    try:
        for epoch in range(1, train.epochs + 1):
            meter.cut()
            with watched() if epoch == 1 else nullcontext():
                launched = epochs(epoch)
            peak.hold(epochs.idle_bytes)
            if late is not None:
                on_epoch(read(late, None))
                late = None
            if epoch < train.epochs and not (train.eval_every and epoch % train.eval_every == 0):
                if reads_late(graph.labels.device):
                    late = launched
                else:
                    on_epoch(read(launched, None))
                continue
            with watched() if best is None else nullcontext():
                accuracy = evaluate(model, graph, scheme)
            if best is None:
                settle()
            record = read(launched, accuracy)
            if best is None or _is_better(accuracy, best.accuracy):
                best, stale = record, 0
                best_state = copy.deepcopy(model.state_dict())
            else:
                stale += 1
            on_epoch(record)
            if train.patience and stale >= train.patience:
                break
        assert best is not None  # the last epoch is always evaluated
        if peak.trial_bytes > peak.bytes:
            log.info("trying kernels took %.0f MB, beside %.0f MB of the run", peak.trial_bytes / 1e6, peak.bytes / 1e6)
        return FitResult(records, best, best_state, peak.bytes, epochs.outcome)
    finally:
        epochs.close()


def reads_late(device: torch.device) -> bool:
    """Whether the host should not wait for an epoch before it launches the next."""
    return device.type == "cuda"


def _is_better(accuracy: Accuracies, best: Accuracies | None) -> bool:
    """Whether a later evaluation replaces the best: strictly better on validation, or always without validation."""
    return best is None or best.val is None or accuracy.val is None or accuracy.val > best.val


@dataclass(frozen=True)
class Launched:
    """An epoch that a GPU may still be at work on."""

    epoch: int
    loss: "LateNumber"
    spent: Spent
    replayed: bool


class TrainingStep:
    """The gradient step of one run on this rank: forward, backward, sum of the gradients over the ranks, update.

    It does not refer to whoever repeats it: the CUDA graph of the step is freed with its last user, without a garbage
    collection.
    """

    def __init__(self, model: torch.nn.Module, graph: ShardedGraph, scheme: Scheme, train: TrainConfig, meter: Meter):
        self.model, self.meter = model, meter
        self.optimizer, self.gradients = make_optimizer(model, train), FlatGradients(model)
        self._graph, self._scheme = graph, scheme
        self._device = graph.labels.device

    def begin(self, epoch: int) -> None:
        """What differs from one epoch to the next: the number that dropout masks are drawn from."""
        self.model.train()
        set_epoch(self.model, epoch)

    def run(self) -> None:
        """CUDA-graph safe: the same launches on the same memory every time, no host synchronisation."""
        graph, meter = self._graph, self.meter
        with meter.phase("other"):
            self.gradients.flat.zero_()
            if isinstance(graph.features, Tensor):
                graph.features.grad = None  # there is one where it is asked for, see WorkConfig
        logits = loss_logits(self.model, graph)
        loss, gradient = node_loss(logits, graph)
        logits.backward(gradient)
        del logits, gradient
        self.gradients.sum_with(loss, self._scheme)
        with meter.phase("other"):
            self.optimizer.step()

    def save(self) -> TrainingState:
        """All that ``run`` changes, to be put back after a capture that failed."""
        inputs = [self._graph.features] if isinstance(self._graph.features, Tensor) else []
        state = TrainingState(self.model, self.optimizer, self.gradients.flat, inputs)
        if self._device.type == "cuda":
            for group in self.optimizer.param_groups:
                group["capturable"] = True  # Adam refuses a capture otherwise; its state is on the GPU already
        return state


class Epochs:
    """The training of one run on this rank: each call launches one epoch. ``close`` frees the CUDA graph, if any."""

    def __init__(
        self,
        model: torch.nn.Module,
        graph: ShardedGraph,
        scheme: Scheme,
        train: TrainConfig,
        meter: Meter,
        replay: Replay = EAGER,
    ):
        self.step = TrainingStep(model, graph, scheme, train, meter)
        self._repeated = RepeatedStep(self.step, meter, replay, graph.labels.device)
        self._launched = 0

    def __call__(self, epoch: int) -> Launched:
        """What it costs is what the meter has counted since it was last read."""
        self._launched += 1
        if self._launched == 2:
            settle()  # every width of an epoch has been seen
        replayed = self._repeated(epoch)
        return Launched(epoch, LateNumber(self.step.gradients.flat[-1]), self.step.meter.cut(), replayed)

    @property
    def outcome(self) -> str:
        """Whether epochs were replayed, or why not; see ``RunRecord.cuda_graph``."""
        return self._repeated.outcome

    @property
    def idle_bytes(self) -> int:
        """Memory of the CUDA graph beyond the tensors that the allocator counts; 0 without a graph."""
        return self._repeated.idle_bytes

    def tensors(self) -> list[Tensor]:
        """What training holds, for counting memory: before the first epoch, the optimizer has no state yet."""
        states = self.step.optimizer.state.values()
        kept = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        return [*self.step.model.parameters(), self.step.gradients.flat, *kept]

    def close(self) -> None:
        """Free the CUDA graph. NCCL leaves its process group only when no graph holds its collectives any more
        (github.com/pytorch/pytorch/issues/115388)."""
        self._repeated.close()


class LateNumber:
    """A number that was on its device when this was made; what is written there later does not matter."""

    def __init__(self, number: Tensor):
        if number.device.type == "cuda":
            self._host = torch.empty((), dtype=number.dtype, pin_memory=True)
            self._host.copy_(number, non_blocking=True)
            self._arrived: torch.cuda.Event | None = torch.cuda.Event()
            self._arrived.record()
        else:
            self._host, self._arrived = number.clone(), None

    def read(self) -> float:
        """Wait for it alone, not for what the GPU was given after it."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host.item()


def loss_logits(model: torch.nn.Module, graph: ShardedGraph) -> Tensor:
    """(num_local_train, num_classes) logits of the rows with loss; no others are computed where that is possible."""
    if graph.train_adj is not None:
        return model(graph.features, graph.train_adj)
    return model(graph.features, graph.adj).index_select(0, graph.train_index)


def node_loss(logits: Tensor, graph: ShardedGraph) -> tuple[Tensor, Tensor]:
    """This rank's share of the cross-entropy, the sum over its training rows over the global number of them, and its
    (num_local_train, num_classes) gradient.

    A rank without training rows contributes 0 and still takes part in the backward pass.
    """
    return cross_entropy(logits, graph.train_labels, 1 / graph.num_split_nodes[0])


def make_optimizer(model: torch.nn.Module, train: TrainConfig) -> torch.optim.Optimizer:
    if train.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), train.lr, train.momentum, weight_decay=train.weight_decay)
    return torch.optim.Adam(model.parameters(), train.lr, weight_decay=train.weight_decay, fused=True)


class FlatGradients:
    """All gradients of a model in one buffer, of which each ``parameter.grad`` is a view: one collective sums them.

    The last element of the buffer is free for a number that is summed with them: the loss.
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
