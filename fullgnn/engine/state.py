"""All that training changes: the model, the optimizer, and how far it has come.

Some parameters are *sharded*: they have one row for each node of this rank, see ``nn/node_embedding.py``. All others
are replicated: every rank holds the same bits.
"""

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import Tensor

from fullgnn.config import Config, TrainConfig
from fullgnn.engine.optimizers import DeviceRates, clip_gradients, make_optimizer, make_schedule
from fullgnn.errors import ConfigError, message_of
from fullgnn.nn.contract import PlacesRows, contract_of
from fullgnn.schemes.block import SumsRows
from fullgnn.tasks import Task

EXTRA = 2  # elements of the flat gradients that are no gradients
_LOSS, _STOP = -2, -1


@dataclass(frozen=True)
class Best:
    """The best evaluation so far."""

    epoch: int
    metrics: dict[str, float | None]  # of all splits, see ``Task.measure``
    model: dict[str, Tensor]  # the model's parameters at that epoch


@dataclass
class Batches:
    """The batches of an epoch that have been trained."""

    count: int = 0
    loss_sum: float = 0.0
    """The sum of their losses, each times its ``total``."""
    total: float = 0.0
    """What the losses of these batches are divided by, see ``NodeTask.total``."""
    num_parts: int = 0
    """Into how many parts the training nodes are divided, on which the batches depend; 0: they do not."""


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
        self.optimizer = make_optimizer(cfg.optimizer, model, cfg.train.decay_biases, cfg.train.weight_decay_of)
        self.schedule = make_schedule(cfg.schedule, self.optimizer, cfg.train.epochs)
        self.clip_norm = cfg.train.clip_norm
        self.rates: DeviceRates | None = None
        """The learning rates for a step on a GPU; None: the optimizer reads its own."""
        self.gradients = FlatGradients(model)
        self.epoch = 0
        """Epochs that have been trained."""
        self.batches = Batches()
        """What has been trained of the next epoch, in sampled training."""
        self.best: Best | None = None
        """By validation metric, the earliest on ties; without a validation split, the last evaluation."""
        self.stale = 0
        """Evaluations since the best one."""

    def note(self, metrics: dict[str, float | None], task: Task) -> None:
        """Take the ``metrics`` of the current epoch: they are the best, or one more evaluation without progress."""
        name = validation_metric(task)
        value, best = metrics[name], None if self.best is None else self.best.metrics.get(name)
        if best is not None and math.isfinite(best):
            better = value is not None and math.isfinite(value) and task.is_better(value, best)
        else:  # the first finite value; without a validation split, the last evaluation
            better = value is None or math.isfinite(value)
        if better:
            self.best = Best(self.epoch, metrics, copy.deepcopy(self.model.state_dict()))
            self.stale = 0
        else:
            self.stale += 1

    def has_validated(self, metric: str) -> bool:
        """Whether there is a best evaluation, and its validation metric, called ``metric``, is a finite number."""
        value = None if self.best is None else self.best.metrics.get(metric)
        return value is not None and math.isfinite(value)

    def is_finished(self, train: TrainConfig) -> bool:
        """Whether the last epoch has been trained, or the evaluations have not improved for too long."""
        return self.epoch >= train.epochs or (train.patience > 0 and self.stale >= train.patience)

    def state_dict(self) -> dict[str, Any]:
        """What every rank has: all but the rows of sharded parameters, which ``rows`` returns, and but the best model.

        It holds numbers, texts, None, lists, dicts and tensors, which ``torch.load`` reads with ``weights_only=True``.
        """
        optimizer, rows = self.optimizer.state_dict(), self.rows()
        for name in rows:
            kind, _, key = name.partition("/")
            if kind == "optimizer":
                number, _, entry = key.partition("/")
                optimizer["state"][int(number)] = dict(optimizer["state"][int(number)])
                del optimizer["state"][int(number)][entry]
        return {
            "epoch": self.epoch,
            "stale": self.stale,
            "batches": asdict(self.batches),
            "model": _without(self.model.state_dict(), sharded_names(self.model)),
            "optimizer": optimizer,
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "rows": {name: list(tensor.shape[1:]) for name, tensor in rows.items()},
        }

    def best_dict(self) -> dict[str, Any] | None:
        """The best evaluation, without the rows of sharded parameters; None before the first evaluation."""
        if self.best is None:
            return None
        model = _without(self.best.model, sharded_names(self.model))
        return {"epoch": self.best.epoch, "metrics": self.best.metrics, "model": model}

    def rows(self) -> dict[str, Tensor]:
        """The sharded parameters and what the optimizer keeps of them, each (num_local_nodes, ...); not copies.

        The names are ``model/<parameter>`` and ``optimizer/<number of the parameter>/<name of its state>``.
        """
        named, numbers = dict(self.model.named_parameters()), self._numbers()
        rows = {}
        for name in sharded_names(self.model):
            parameter = named[name]
            rows[f"model/{name}"] = parameter.detach()
            for key, value in self.optimizer.state[parameter].items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    rows[f"optimizer/{numbers[parameter]}/{key}"] = value
        return rows

    def best_rows(self) -> dict[str, Tensor]:
        """The sharded parameters at the best epoch, by ``model/<parameter>``; none before the first evaluation."""
        names = [] if self.best is None else sharded_names(self.model)
        return {f"model/{name}": self.best.model[name] for name in names if self.best is not None}

    def load_state_dict(self, state: dict[str, Any], best: dict[str, Any] | None) -> None:
        """Take over a ``state_dict`` and a ``best_dict``. The rows of sharded parameters are then to be written into
        the tensors of ``rows`` and ``best_rows``.

        Raises:
            ConfigError: the model or the optimizer has other parameters than the one that was saved.
        """
        named, device = dict(self.model.named_parameters()), self.gradients.flat.device
        try:
            missing, unknown = self.model.load_state_dict(state["model"], strict=False)
            if unknown or set(missing) != set(sharded_names(self.model)):
                raise ValueError(f"parameters {unknown or missing}")
            self._load_optimizer(state)
            if self.schedule is not None:
                self.schedule.load_state_dict(state["schedule"])
        except (KeyError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"resume: the checkpoint does not fit this model and optimizer ({message_of(error)[:200]})"
            ) from error
        self.epoch, self.stale, self.best = state["epoch"], state["stale"], None
        self.batches = Batches(**state["batches"])
        if best is not None:
            rows = {name: torch.zeros_like(named[name]) for name in sharded_names(self.model)}
            model = {name: value.to(device) for name, value in best["model"].items()} | rows
            self.best = Best(best["epoch"], best["metrics"], model)

    def _load_optimizer(self, state: dict[str, Any]) -> None:
        """Load the optimizer's state, with zeros for the rows of sharded parameters. Its settings are those of now,
        but for the learning rates."""
        numbers = {number: parameter for parameter, number in self._numbers().items()}
        saved = copy.deepcopy(state["optimizer"])
        for name, shape in state["rows"].items():
            if name.startswith("optimizer/"):
                _, number, key = name.split("/", 2)
                parameter = numbers[int(number)]
                saved["state"][int(number)][key] = parameter.detach().new_zeros(len(parameter), *shape)
        settings = [dict(group) for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(saved)
        for group, old in zip(self.optimizer.param_groups, settings, strict=True):
            group.update({key: value for key, value in old.items() if key not in ("params", "lr", "initial_lr")})

    def _numbers(self) -> dict[torch.nn.Parameter, int]:
        """The number of each parameter in the optimizer's ``state_dict``."""
        parameters = (parameter for group in self.optimizer.param_groups for parameter in group["params"])
        return {parameter: number for number, parameter in enumerate(parameters)}

    def tensors(self) -> list[Tensor]:
        """The tensors that training holds, for counting memory. The optimizer has no state before the first epoch."""
        states = self.optimizer.state.values()
        kept = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        return [*self.model.parameters(), self.gradients.flat, *self.gradients.grad_rows, *kept]


def _without(named: Mapping[str, Tensor], left_out: Collection[str]) -> dict[str, Tensor]:
    return {name: value for name, value in named.items() if name not in left_out}


def validation_metric(task: Task) -> str:
    """The name of the metric that chooses the best epoch; it is null without a validation split."""
    return f"val_{task.metrics[0]}"


class FlatGradients:
    """All gradients of replicated parameters in one buffer, so that one collective sums them.

    Each ``parameter.grad`` is a view of the buffer. Two more elements are summed with the gradients: the loss, and the
    number of ranks that have been asked to stop. Gradients of sharded parameters are not summed.
    """

    def __init__(self, model: torch.nn.Module):
        parameters, sharded = split_parameters(model)
        sizes = [parameter.numel() for parameter in parameters]
        self.flat = (parameters + sharded)[0].detach().new_zeros(sum(sizes) + EXTRA)
        for parameter, piece in zip(parameters, self.flat.split([*sizes, EXTRA])):
            parameter.grad = piece.view_as(parameter)
        for parameter in sharded:
            parameter.grad = torch.zeros_like(parameter)
        self.grad_rows = [parameter.grad for parameter in sharded if parameter.grad is not None]
        """Gradients of the sharded parameters, each (num_local_nodes, ...)."""
        self._stop = self.flat.new_zeros(())

    @property
    def results(self) -> Tensor:
        """(2,), after ``sum_with``: the loss, and the number of ranks that have been asked to stop."""
        return self.flat[-EXTRA:]

    @property
    def has_replicated(self) -> bool:
        """Whether there are gradients of replicated parameters."""
        return self.flat.numel() > EXTRA

    def ask_to_stop(self) -> None:
        """Let the next steps tell all ranks that this one has been asked to stop."""
        self._stop.fill_(1)

    def clip(self, clip_norm: float, ranks: SumsRows) -> None:
        """Scale all gradients so that their L2 norm is at most ``clip_norm``; called after ``sum_with``."""
        clip_gradients(self.flat[:-EXTRA], clip_norm, self.grad_rows, ranks.sum_over_rows)

    def zero(self) -> None:
        for gradient in (self.flat, *self.grad_rows):
            gradient.zero_()

    def note(self, loss: Tensor) -> None:
        """Write this rank's ``loss`` and its wish to stop into the results, without a sum over the ranks."""
        self.flat[_LOSS], self.flat[_STOP] = loss, self._stop

    def sum_with(self, loss: Tensor, ranks: SumsRows) -> None:
        """Sum the gradients, this rank's ``loss``, and its wish to stop, over the rows of all ranks."""
        self.note(loss)
        ranks.sum_over_rows(self.flat)


def place_rows(model: torch.nn.Module, node_id: Tensor) -> None:
    """Create the sharded parameters of ``model`` for the rows with the original ids ``node_id`` (num_local_nodes,)."""
    for module in model.modules():
        if contract_of(module).sharded:
            cast(PlacesRows, module).place(node_id)


def sharded_names(model: torch.nn.Module) -> list[str]:
    """The names of the sharded parameters of ``model``, as ``named_parameters`` has them."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        for name in contract_of(module).sharded
    ]


def split_parameters(model: torch.nn.Module) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """The replicated and the sharded parameters of ``model``."""
    names = set(sharded_names(model))
    replicated: list[torch.nn.Parameter] = []
    sharded: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (sharded if name in names else replicated).append(parameter)
    return replicated, sharded
