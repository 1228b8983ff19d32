"""The update of the parameters: torch's optimizers, torch's schedules of the learning rate, and clipped gradients.

    gradients, summed over the ranks -> clip_gradients -> optimizer.step        in every epoch
    schedule.step                                                               after every epoch, on the host

Every rank computes the same numbers from the same sums, so no parameter and no learning rate is ever sent.

The optimizer and the schedule hold learning rates as Python numbers, also on a GPU: their ``state_dict`` is the same on
every device. A step that is captured as a CUDA graph cannot read Python numbers, since a replay would repeat the number
of the capture. ``DeviceRates`` gives such a step tensors instead, which are written before each epoch.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ConstantLR, LinearLR, LRScheduler, SequentialLR

from fullgnn.config import Config, build, target_of
from fullgnn.config.compose import WARMUP, resolved_schedule
from fullgnn.errors import ConfigError

_CLIP_CHUNK = 1024
"""Numbers whose norm one thread computes; see ``clip_gradients``."""


def make_optimizer(
    node: Mapping[str, Any],
    model: torch.nn.Module,
    decay_biases: bool = True,
    weight_decay_of: Mapping[str, float] | None = None,
) -> torch.optim.Optimizer:
    """Build the optimizer that the configuration ``node`` names, for the parameters of ``model``.

    Args:
        decay_biases: False puts the parameters with less than two dimensions, which are the biases and the parameters
            of norms, into a group of their own without weight decay.
        weight_decay_of: the weight decay of the parameters whose dotted names begin with a key; the longest key
            counts. All others have the weight decay of ``node``.

    Raises:
        ConfigError: the optimizer refuses its keys or the parameters, or has no weight decay, or no parameter's name
            begins with a key of ``weight_decay_of``.
    """
    target = target_of(node)
    keys = {key: value for key, value in node.items() if not key.startswith("_") and key != "name"}
    if inspect.isclass(target) and issubclass(target, torch.optim.Optimizer):
        if issubclass(target, (torch.optim.Adam, torch.optim.AdamW)):
            keys.setdefault("fused", True)
        elif "capturable" in inspect.signature(target).parameters and next(model.parameters()).is_cuda:
            keys.setdefault("capturable", True)
        target = without_compiler(target)
    parameters = _parameters(model, decay_biases, weight_decay_of or {})
    try:
        optimizer = target(parameters, **keys)
    except Exception as error:
        raise ConfigError(f"optimizer={node['name']} cannot be used: {_one_line(error)}") from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(f"optimizer={node['name']} cannot be used: {node['_target_']} is no torch.optim.Optimizer")
    if (weight_decay_of or not decay_biases) and "weight_decay" not in optimizer.defaults:
        key = "train.weight_decay_of" if weight_decay_of else "train.decay_biases=false"
        raise ConfigError(f"{key}: optimizer={node['name']} has no weight_decay: leave it out")
    return optimizer


def _parameters(model: torch.nn.Module, decay_biases: bool, weight_decay_of: Mapping[str, float]) -> list[Any]:
    """The argument ``params`` of an optimizer: all parameters, or groups of them by their weight decay."""
    if decay_biases and not weight_decay_of:
        return list(model.parameters())
    _check_decay(weight_decay_of)
    groups: dict[float | None, list[torch.nn.Parameter]] = {}
    unused = set(weight_decay_of)
    for name, parameter in model.named_parameters():
        keys = [key for key in weight_decay_of if f"{name}.".startswith(f"{key}.")]
        unused -= set(keys)
        decay = weight_decay_of[max(keys, key=len)] if keys else None
        groups.setdefault(decay if decay_biases or parameter.dim() >= 2 else 0.0, []).append(parameter)
    if unused:
        known = dict.fromkeys(name.partition(".")[0] for name, _ in model.named_parameters())
        raise ConfigError(
            f"train.weight_decay_of: no parameter's name begins with {min(unused)}: the model has {', '.join(known)}"
        )
    return [
        {"params": members} | ({} if decay is None else {"weight_decay": decay}) for decay, members in groups.items()
    ]


def _check_decay(given: Any) -> None:
    """Refuse a ``train.weight_decay_of`` that is no weight decay by name."""
    values = given.values() if isinstance(given, Mapping) else [None]
    if not all(isinstance(value, (int, float)) and 0 <= value < float("inf") for value in values):
        raise ConfigError(
            f"train.weight_decay_of={given} does not fit: give names of parameters and numbers of at least 0, as in"
            " {layers:0.01,first:0.0005}"
        )


def without_compiler(optimizer: type[torch.optim.Optimizer]) -> Any:
    """The same ``optimizer`` without the wrappers with which ``torch.compile`` traces it.

    These wrappers import ``torch._dynamo``, which takes every rank more than a second of its start. Methods that are
    not torch's stay as they are.
    """
    names = ("add_param_group", "load_state_dict", "state_dict", "step", "zero_grad")
    methods = {name: getattr(optimizer, name) for name in names}
    methods = {
        name: inspect.unwrap(method) for name, method in methods.items() if method.__module__.startswith("torch.")
    }
    if "step" in methods:
        methods["step"] = torch.no_grad()(methods["step"])
    return type(optimizer.__name__, (optimizer,), methods)


def make_schedule(node: Mapping[str, Any], optimizer: torch.optim.Optimizer, epochs: int) -> LRScheduler | None:
    """Build the schedule of the learning rate that the configuration ``node`` names; None: the rate never changes.

    A warm-up comes first: in epoch e of ``warmup_epochs`` = W, the rate is that of the optimizer times
    ``warmup_start`` + (1 - ``warmup_start``) (e - 1) / W. The schedule itself begins in epoch W + 1. A length of the
    schedule that is null is the number of epochs after the warm-up.

    Args:
        optimizer: its learning rates are set to those of epoch 1.
        epochs: number of epochs of the whole training.

    Returns:
        a schedule whose ``step()`` is due after each epoch.

    Raises:
        ConfigError: the schedule refuses its keys or the optimizer.
    """
    warmup, start = node.get("warmup_epochs", 0), node.get("warmup_start", 0.01)
    keys = {key: value for key, value in resolved_schedule(node, epochs).items() if key not in WARMUP}
    if not warmup and target_of(keys) is ConstantLR and keys.get("factor") == 1:
        return None
    try:
        schedule = build(keys, optimizer=optimizer)
        if not isinstance(schedule, LRScheduler):
            raise TypeError(f"{node['_target_']} is no torch.optim.lr_scheduler.LRScheduler")
        if warmup:
            rise = LinearLR(optimizer, start, total_iters=warmup)
            schedule = SequentialLR(optimizer, [rise, schedule], [warmup])
    except Exception as error:
        raise ConfigError(f"schedule={node['name']} cannot be used: {_one_line(error)}") from error
    return schedule


def check_optimizer(cfg: Config) -> None:
    """Take one step of the optimizer and of the schedule of ``cfg`` with a weight and a bias, without random numbers.

    Raises:
        ConfigError: the optimizer or the schedule cannot be used; the same on every rank.
    """
    model = torch.nn.ParameterList([torch.zeros(1, 1), torch.zeros(1)])
    optimizer = make_optimizer(cfg.optimizer, model, cfg.train.decay_biases)
    schedule = make_schedule(cfg.schedule, optimizer, cfg.train.epochs)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for group, part in (("optimizer", optimizer), ("schedule", schedule)):
        try:
            if part is not None:
                part.step()
        except Exception as error:
            name = getattr(cfg, group)["name"]
            raise ConfigError(f"{group}={name} cannot be used: {_one_line(error)}") from error


def clip_gradients(
    gradients: Tensor,
    clip_norm: float,
    grad_rows: Sequence[Tensor] = (),
    sum_over_rows: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> None:
    """Scale all gradients in place by min(1, clip_norm / norm), where norm is their L2 norm.

    Unlike ``torch.nn.utils.clip_grad_norm_``, this adds no 1e-6 to the norm: gradients below the limit keep their bits.
    Nothing waits for the device.

    The factor must have the same bits on every rank. torch splits one long sum among the threads of a process, whose
    number may differ between ranks, and does not promise that it leaves a norm whole. It does not split a sum over a
    row of a matrix, so the norms of rows come first.

    Args:
        gradients: (n,), those of the replicated parameters, equal on every rank.
        grad_rows: those of the sharded parameters, each (num_local_nodes, ...).
        sum_over_rows: sums a tensor over the rows of all ranks; called only if there are sharded parameters.
    """
    norms = gradients
    while norms.numel() > _CLIP_CHUNK:
        num_whole = norms.numel() // _CLIP_CHUNK * _CLIP_CHUNK
        rows, rest = norms[:num_whole].view(-1, _CLIP_CHUNK), norms[num_whole:]
        norms = torch.cat([torch.linalg.vector_norm(rows, dim=1), torch.linalg.vector_norm(rest).view(1)])
    norm = torch.linalg.vector_norm(norms)
    if grad_rows:
        squares = [torch.linalg.vector_norm(rows, dtype=torch.float64) ** 2 for rows in grad_rows]
        norm = (norm.double() ** 2 + sum_over_rows(torch.stack(squares).sum())).sqrt().to(norm.dtype)
    factor = (clip_norm / norm).clamp(max=1.0)
    for each in (gradients, *grad_rows):
        each.mul_(factor)


def is_replayable(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step of ``optimizer`` may be captured as a CUDA graph: its state is on the device alone."""
    return "capturable" in optimizer.defaults or isinstance(optimizer, torch.optim.SGD)


class DeviceRates:
    """Learning rates as tensors on the device, for the step of an optimizer that is captured as a CUDA graph.

    On a GPU the tensors are float32, the type that torch's fused kernels read there.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device):
        self._optimizer = optimizer
        dtype = torch.float32 if device.type == "cuda" else torch.float64
        self.rates = [torch.zeros((), dtype=dtype, device=device) for _ in optimizer.param_groups]

    def write(self) -> None:
        """Write the optimizer's learning rates of now into the tensors, without a wait for the device."""
        for group, rate in zip(self._optimizer.param_groups, self.rates, strict=True):
            rate.fill_(group["lr"])

    def step(self) -> None:
        """Take a step of the optimizer with the learning rates of the last ``write``."""
        groups = self._optimizer.param_groups
        before = [dict(group) for group in groups]
        try:
            for group, rate in zip(groups, self.rates, strict=True):
                group["lr"] = rate
                if isinstance(self._optimizer, torch.optim.SGD):
                    group["fused"] = True  # SGD's other kernels read the learning rate on the host
            self._optimizer.step()
        finally:
            for group, old in zip(groups, before, strict=True):
                group.update(lr=old["lr"], **({"fused": old["fused"]} if "fused" in old else {}))


def device_rates(
    optimizer: torch.optim.Optimizer, schedule: LRScheduler | None, device: torch.device, replays: bool
) -> DeviceRates | None:
    """The ``DeviceRates`` of a step whose learning rate changes; None if the step can read Python numbers.

    On a GPU a step that is never replayed has them too, so that ``runtime.cuda_graph`` does not change the results.
    """
    changes = schedule is not None and is_replayable(optimizer)
    return DeviceRates(optimizer, device) if changes and (replays or device.type == "cuda") else None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
