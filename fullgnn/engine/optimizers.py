"""Optimizers of torch."""

import inspect
from typing import Any

import torch

from fullgnn.config import TrainConfig


def make_optimizer(model: torch.nn.Module, train: TrainConfig) -> torch.optim.Optimizer:
    """Build SGD or Adam, as ``train.optimizer`` says, for the parameters of ``model``."""
    if train.optimizer == "sgd":
        sgd = without_compiler(torch.optim.SGD)
        return sgd(model.parameters(), train.lr, train.momentum, weight_decay=train.weight_decay)
    return without_compiler(torch.optim.Adam)(model.parameters(), train.lr, weight_decay=train.weight_decay, fused=True)


def without_compiler(optimizer: type[torch.optim.Optimizer]) -> Any:
    """The same ``optimizer`` without the wrappers with which ``torch.compile`` traces it.

    These wrappers import ``torch._dynamo``, which takes every rank more than a second of its start.
    """
    names = ("add_param_group", "load_state_dict", "state_dict", "step", "zero_grad")
    methods = {name: inspect.unwrap(getattr(optimizer, name)) for name in names}
    return type(optimizer.__name__, (optimizer,), methods | {"step": torch.no_grad()(methods["step"])})
