"""Full-batch training: one gradient step an epoch, exactly the single-process step on any number of ranks."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.config import TrainConfig
from fullgnn.engine.evaluate import Accuracies, evaluate
from fullgnn.engine.memory import TensorPeak
from fullgnn.meter import Cost, Meter
from fullgnn.nn import cross_entropy, set_epoch
from fullgnn.process import keep_freed_memory
from fullgnn.schemes.base import Scheme, ShardedGraph


@dataclass(frozen=True)
class EpochRecord:
    """One epoch on this rank. ``accuracy`` is None where the epoch was not evaluated; evaluation is not in ``cost``."""

    epoch: int  # from 1
    loss: float  # training loss before the update, global mean
    cost: Cost  # of the training step
    accuracy: Accuracies | None


@dataclass(frozen=True)
class FitResult:
    epochs: list[EpochRecord]
    best: EpochRecord  # best validation accuracy, earliest on ties; the last evaluation without a validation split
    best_state: dict[str, Tensor]  # the model's parameters at ``best``
    peak_tensor_bytes: int


def fit(
    model: torch.nn.Module,
    graph: ShardedGraph,
    scheme: Scheme,
    train: TrainConfig,
    meter: Meter,
    on_epoch: Callable[[EpochRecord], None] = lambda record: None,
) -> FitResult:
    """Train ``model`` in place; called on every rank with the same model.

    Every decision (best epoch, early stop) is taken from numbers that all ranks share.
    """
    keep_freed_memory()
    optimizer = make_optimizer(model, train)
    gradients = FlatGradients(model)
    peak = TensorPeak(graph.labels.device)
    epochs: list[EpochRecord] = []
    best: EpochRecord | None = None
    best_state: dict[str, Tensor] = {}
    stale = 0
    for epoch in range(1, train.epochs + 1):
        meter.take()
        watching = peak.watch(*graph.tensors(), *model.parameters(), gradients.flat) if epoch == 1 else nullcontext()
        with watching:
            loss = train_step(model, graph, scheme, optimizer, gradients, meter, epoch)
        cost = meter.take()

        due = epoch % train.eval_every == 0 if train.eval_every else False
        accuracy = evaluate(model, graph, scheme) if due or epoch == train.epochs else None
        record = EpochRecord(epoch, loss, cost, accuracy)
        epochs.append(record)
        if accuracy is not None:
            if best is None or _is_better(accuracy, best.accuracy):
                best, stale = record, 0
                best_state = copy.deepcopy(model.state_dict())
            else:
                stale += 1
        on_epoch(record)
        if train.patience and stale >= train.patience:
            break
    assert best is not None  # the last epoch is always evaluated
    return FitResult(epochs, best, best_state, peak.bytes)


def _is_better(accuracy: Accuracies, best: Accuracies | None) -> bool:
    """Whether a later evaluation replaces the best: strictly better on validation, or always without validation."""
    return best is None or best.val is None or accuracy.val is None or accuracy.val > best.val


def train_step(
    model: torch.nn.Module,
    graph: ShardedGraph,
    scheme: Scheme,
    optimizer: torch.optim.Optimizer,
    gradients: "FlatGradients",
    meter: Meter,
    epoch: int,
) -> float:
    """Forward, backward, sum of the gradients over the ranks, update. Returns the global mean loss before it."""
    with meter.phase("epoch"):
        with meter.phase("other"):
            model.train()
            set_epoch(model, epoch)
            gradients.flat.zero_()
            if isinstance(graph.features, Tensor):
                graph.features.grad = None  # there is one where it is asked for, see WorkConfig
        logits = loss_logits(model, graph)
        loss, gradient = node_loss(logits, graph)
        logits.backward(gradient)
        del logits, gradient
        total = gradients.sum_with(loss, scheme)
        with meter.phase("other"):
            optimizer.step()
    return total.item()


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

    def sum_with(self, loss: Tensor, scheme: Scheme) -> Tensor:
        """Sum the gradients and this rank's ``loss`` over the rows of all ranks; returns the sum of the losses."""
        self.flat[-1] = loss
        scheme.sum_over_rows(self.flat)
        return self.flat[-1]
