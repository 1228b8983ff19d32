"""All that training changes: the model, the optimizer, and how far it has come."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.engine.optimizers import DeviceRates, clip_gradients, make_optimizer, make_schedule
from fullgnn.engine.sharded import split_parameters
from fullgnn.schemes.base import Scheme
from fullgnn.tasks import Task

EXTRA = 2  # elements of the flat gradients that are no gradients
_LOSS, _STOP = -2, -1


@dataclass(frozen=True)
class Best:
    """The best evaluation so far."""

    epoch: int
    metrics: dict[str, float | None]  # of all splits, see ``Task.measure``
    model: dict[str, Tensor]  # the model's parameters at that epoch


class TrainState:
    """The state of a run on one rank. Replicas of parameters are equal to the bit on all ranks.

    Args:
        model: a model with equal parameters on every rank.
        cfg: the optimizer, the schedule of the learning rate and how gradients are clipped.

    Raises:
        ConfigError: the optimizer or the schedule cannot be used; the same on every rank.
    """

    def __init__(self, model: torch.nn.Module, cfg: Config):
        self.model = model
        self.optimizer = make_optimizer(cfg.optimizer, model, cfg.train.decay_biases)
        self.schedule = make_schedule(cfg.schedule, self.optimizer, cfg.train.epochs)
        self.clip_norm = cfg.train.clip_norm
        self.rates: DeviceRates | None = None
        """The learning rates for a step on a GPU; None: the optimizer reads its own."""
        self.gradients = FlatGradients(model)
        self.epoch = 0
        """Epochs that have been trained."""
        self.best: Best | None = None
        """By validation metric, the earliest on ties; without a validation split, the last evaluation."""
        self.stale = 0
        """Evaluations since the best one."""

    def note(self, metrics: dict[str, float | None], task: Task) -> None:
        """Take the ``metrics`` of the current epoch: they are the best, or one more evaluation without progress."""
        value, best = _val(metrics, task), None if self.best is None else _val(self.best.metrics, task)
        if value is None or best is None or task.is_better(value, best):
            self.best = Best(self.epoch, metrics, copy.deepcopy(self.model.state_dict()))
            self.stale = 0
        else:
            self.stale += 1

    def tensors(self) -> list[Tensor]:
        """The tensors that training holds, for counting memory. The optimizer has no state before the first epoch."""
        states = self.optimizer.state.values()
        kept = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        return [*self.model.parameters(), self.gradients.flat, *self.gradients.of_rows, *kept]


def _val(metrics: dict[str, float | None], task: Task) -> float | None:
    """The validation metric that chooses the best epoch; None without a validation split."""
    return metrics[f"val_{task.metrics[0]}"]


class FlatGradients:
    """All gradients of replicated parameters in one buffer, so that one collective sums them.

    Each ``parameter.grad`` is a view of the buffer. Two more elements are summed with the gradients: the loss, and the
    number of ranks that have been asked to stop. Gradients of sharded parameters are not summed; see ``sharded.py``.
    """

    def __init__(self, model: torch.nn.Module):
        parameters, sharded = split_parameters(model)
        sizes = [parameter.numel() for parameter in parameters]
        self.flat = (parameters + sharded)[0].detach().new_zeros(sum(sizes) + EXTRA)
        for parameter, piece in zip(parameters, self.flat.split([*sizes, EXTRA])):
            parameter.grad = piece.view_as(parameter)
        for parameter in sharded:
            parameter.grad = torch.zeros_like(parameter)
        self.of_rows = [parameter.grad for parameter in sharded if parameter.grad is not None]
        """Gradients of the sharded parameters, each (num_local_nodes, ...)."""
        self._stop = self.flat.new_zeros(())

    @property
    def results(self) -> Tensor:
        """(2,), after ``sum_with``: the loss, and the number of ranks that have been asked to stop."""
        return self.flat[-EXTRA:]

    def ask_to_stop(self) -> None:
        """Let the next steps tell all ranks that this one has been asked to stop."""
        self._stop.fill_(1)

    def clip(self, clip_norm: float, scheme: Scheme) -> None:
        """Scale all gradients so that their L2 norm is at most ``clip_norm``; called after ``sum_with``."""
        clip_gradients(self.flat[:-EXTRA], clip_norm, self.of_rows, scheme.sum_over_rows)

    def zero(self) -> None:
        for gradient in (self.flat, *self.of_rows):
            gradient.zero_()

    def sum_with(self, loss: Tensor, scheme: Scheme) -> None:
        """Sum the gradients, this rank's ``loss``, and its wish to stop, over the rows of all ranks."""
        self.flat[_LOSS], self.flat[_STOP] = loss, self._stop
        scheme.sum_over_rows(self.flat)
