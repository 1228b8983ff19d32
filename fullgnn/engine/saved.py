"""Check what a checkpoint holds against the run that goes on with it, before any of it is taken over.

The run's own state, at its first epoch, says what must be there: the names, the types, and the shapes of all tensors.
"""

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fullgnn.engine.state import TrainState
from fullgnn.errors import DataError, quoted

_COUNTS = ("last_epoch", "_step_count", "count")  # keys of whole numbers
_PROBE = (2, 3, 5, 7, 11)
"""Different sizes of the parameter on which an optimizer is tried, so that what it keeps shows whose sizes it has."""


class Misfit(DataError):
    """A part of a checkpoint is not what its place asks for; the message names the place and no file."""


def check_state(saved: Any, state: TrainState) -> None:
    """Check a ``TrainState.state_dict`` that was read from a file.

    Raises:
        Misfit: a part is absent, or is not what ``state`` could take over.
    """
    now = state.state_dict()
    _check_keys(saved, now, "")
    for key in ("epoch", "stale"):
        _check_count(saved[key], key)
    _check_keys(saved["batches"], now["batches"], "batches")
    for key, value in saved["batches"].items():
        _check_like(value, now["batches"].get(key, 0), f"batches.{key}")
    check_model(saved["model"], now["model"])
    _check_rows(saved["rows"], now["rows"])
    has_stepped = saved["epoch"] > 0 or saved["batches"]["count"] > 0
    _check_optimizer(saved["optimizer"], saved["rows"], state, has_stepped)
    if state.schedule is not None:
        _check_schedule(saved["schedule"], state.schedule, "schedule")


def check_best(saved: Any, model: Mapping[str, Tensor]) -> None:
    """Check a ``TrainState.best_dict`` that was read from a file.

    Args:
        model: the replicated parameters of the run.

    Raises:
        Misfit: as ``check_state``.
    """
    _check_keys(saved, {"epoch": 0, "metrics": {}, "model": {}}, "best")
    _check_count(saved["epoch"], "best.epoch")
    check_metrics(saved["metrics"])
    check_model(saved["model"], model)


def parameters_of(saved: Any) -> tuple[int, dict[str, Tensor]]:
    """The epoch and the replicated parameters of a ``state_dict`` or a ``best_dict``, to be used without training.

    Raises:
        Misfit: they are absent, or no tensors by name.
    """
    _check_keys(saved, {"epoch": 0, "model": {}}, "")
    _check_count(saved["epoch"], "epoch")
    _check_mapping(saved["model"], "model")
    for name, tensor in saved["model"].items():
        if not (isinstance(name, str) and isinstance(tensor, Tensor)):
            raise Misfit(f"model.{quoted(name)} is {_in_words(tensor)}")
    return saved["epoch"], saved["model"]


def check_metrics(metrics: Any) -> None:
    """Refuse ``metrics`` that are not numbers, or None, by name.

    Raises:
        Misfit: as ``check_state``.
    """
    _check_mapping(metrics, "metrics")
    for name, value in metrics.items():
        if not (isinstance(name, str) and (value is None or type(value) in (int, float))):
            raise Misfit(f"metrics.{quoted(name)} is no number")


def check_model(saved: Any, model: Mapping[str, Tensor]) -> None:
    """Refuse parameters whose names, types or shapes differ from those of a ``model``.

    Raises:
        Misfit: as ``check_state``.
    """
    _check_keys(saved, model, "model")
    for name, tensor in model.items():
        _check_tensor(saved[name], tensor.shape, tensor.dtype, f"model.{name}")


def _check_mapping(saved: Any, place: str) -> None:
    if not isinstance(saved, dict):
        raise Misfit(f"{place or 'state'} is no mapping but {type(saved).__name__}")


def _check_keys(saved: Any, now: Mapping[Any, Any], place: str) -> None:
    """Refuse a ``saved`` that is no mapping or lacks a key of ``now``; at a place with tensors, or that has others."""
    _check_mapping(saved, place)
    dot = f"{place}." if place else ""
    if missing := [key for key in now if key not in saved]:
        raise Misfit(f"{dot}{quoted(missing[0])} is missing")
    if place == "model" and (unknown := [key for key in saved if key not in now]):
        raise Misfit(f"{dot}{quoted(unknown[0])} is no parameter of this model")


def _check_count(value: Any, place: str) -> None:
    if type(value) is not int or not 0 <= value < 2**31:
        raise Misfit(f"{place} is no number of epochs but {_in_words(value)}")


def _check_tensor(value: Any, shape: torch.Size, dtype: torch.dtype, place: str) -> None:
    if not (isinstance(value, Tensor) and value.shape == shape and value.dtype == dtype):
        wanted = f"{str(dtype).removeprefix('torch.')} {tuple(shape)}"
        raise Misfit(f"{quoted(place)} is {_in_words(value)}, and {wanted} here")


def _in_words(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {quoted(tuple(value.shape))}"
    return quoted(value) if type(value) in (int, float, str, bool) and value == value else type(value).__name__


def _check_like(value: Any, now: Any, place: str) -> None:
    """Refuse a ``value`` of another kind than ``now``: a number, a text, None, or a list or mapping of these."""
    if isinstance(now, dict):
        _check_keys(value, now, place)
        for key, below in now.items():
            _check_like(value[key], below, f"{place}.{key}")
    elif isinstance(now, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(now):
            raise Misfit(f"{quoted(place)} is no list of {len(now)}")
        for number, (element, below) in enumerate(zip(value, now)):
            _check_like(element, below, f"{place}.{number}")
    elif type(now) in (int, float):
        whole = type(now) is int and place.rpartition(".")[2] in _COUNTS
        is_number = type(value) in ((int,) if whole else (int, float))
        if not is_number or (math.isfinite(now) and not abs(value) <= 2**62):  # a schedule may begin at infinity
            raise Misfit(f"{quoted(place)} is no number but {_in_words(value)}")
    elif now is not None and type(value) is not type(now):
        raise Misfit(f"{quoted(place)} is {_in_words(value)}")


def _check_rows(saved: Any, now: Mapping[str, list[int]]) -> None:
    """Refuse other sharded parameters than those of now. The optimizer has no state of them yet."""
    _check_mapping(saved, "rows")
    for name, shape in saved.items():
        of_optimizer = isinstance(name, str) and name.startswith("optimizer/")
        if name not in now and not of_optimizer:
            raise Misfit(f"rows.{quoted(name)} is no parameter of this model")
        if not (isinstance(shape, list) and all(type(size) is int and 0 <= size < 2**31 for size in shape)):
            raise Misfit(f"rows.{quoted(name)} is no shape")
        if not of_optimizer and shape != now[name]:
            raise Misfit(f"rows.{quoted(name)} is {quoted(shape)}, and {now[name]} here")
    _check_keys(saved, now, "rows")


def _check_optimizer(saved: Any, rows: Mapping[str, list[int]], state: TrainState, has_stepped: bool) -> None:
    """Refuse a state that ``state.optimizer`` could not go on with."""
    groups, parameters = state.optimizer.param_groups, list[Tensor]()
    _check_keys(saved, {"state": {}, "param_groups": []}, "optimizer")
    given_groups = saved["param_groups"]
    if not isinstance(given_groups, list) or len(given_groups) != len(groups):
        raise Misfit(f"optimizer.param_groups is no list of {len(groups)}")
    for number, (group, now) in enumerate(zip(given_groups, groups)):
        place = f"optimizer.param_groups.{number}"
        _check_keys(group, {"params": [], "lr": 0.0}, place)
        numbers = list(range(len(parameters), len(parameters) + len(now["params"])))
        given = group["params"]
        # The numbers of a file may be tensors, of which a comparison is no truth value.
        if not (isinstance(given, list) and all(type(index) is int for index in given) and given == numbers):
            raise Misfit(f"{place}.params has other parameters than this model")
        for key in ("lr", "initial_lr"):
            rate = group.get(key, 0.0)
            if not (type(rate) in (int, float) and 0 <= rate < math.inf):
                raise Misfit(f"{place}.{key} is no learning rate but {_in_words(rate)}")
        parameters += now["params"]
    entries = saved["state"]
    steps = {param.ndim: _after_a_step(state.optimizer, param.ndim, param.dtype) for param in parameters}
    _check_mapping(entries, "optimizer.state")
    apart = [name.split("/", 2)[1:] for name in rows if name.startswith("optimizer/")]
    for number, parameter in enumerate(parameters):
        entry, place, of_step = entries.get(number, {}), f"optimizer.state.{number}", steps[parameter.ndim]
        _check_mapping(entry, place)
        in_rows = {parts[1] for parts in apart if len(parts) == 2 and parts[0] == str(number)}
        if has_stepped and (missing := sorted(of_step.keys() - entry.keys() - in_rows, key=str)):
            raise Misfit(f"{place}.{quoted(missing[0])} is missing")
        for key, value in entry.items():
            _check_entry(value, parameter, of_step.get(key), f"{place}.{quoted(key)}")
    if unknown := [number for number in entries if number not in range(len(parameters))]:
        raise Misfit(f"optimizer.state.{quoted(unknown[0])} is no parameter of this model")
    of_number = {str(number): parameter for number, parameter in enumerate(parameters) if number in entries}
    for name in (name for name in rows if name.startswith("optimizer/")):
        index, _, key = name.removeprefix("optimizer/").partition("/")
        of_step = steps[of_number[index].ndim] if index in of_number else {}
        if index not in of_number or (of_step and key not in of_step):
            raise Misfit(f"rows.{quoted(name)} is no state of a parameter")
        if (shape := list(of_number[index].shape[1:])) != rows[name]:
            raise Misfit(f"rows.{quoted(name)} is {quoted(rows[name])}, and {shape} here")


def _check_entry(value: Any, parameter: Tensor, probe: Any, place: str) -> None:
    """Refuse what an optimizer cannot have kept of a ``parameter``.

    Args:
        probe: what it has kept of one with the sizes ``_PROBE``; None: this is not known.
    """
    if isinstance(probe, Tensor):
        sizes = dict(zip(_PROBE, parameter.shape))
        _check_tensor(value, torch.Size(sizes.get(size, size) for size in probe.shape), probe.dtype, place)
        if parameter.is_contiguous() and not value.is_contiguous():  # fused kernels read it in the order of memory
            raise Misfit(f"{place} is not contiguous")
    elif probe is not None and type(value) is not type(probe):
        raise Misfit(f"{place} is {_in_words(value)}")
    elif isinstance(value, Tensor) and value.ndim:
        _check_tensor(value, parameter.shape, value.dtype, place)
    elif not (isinstance(value, Tensor) or value is None or type(value) in (int, float, bool, str)):
        raise Misfit(f"{place} is {_in_words(value)}")


def _after_a_step(optimizer: torch.optim.Optimizer, ndim: int, dtype: torch.dtype) -> dict[str, Any]:
    """By name, what ``optimizer`` keeps of a parameter with the sizes ``_PROBE`` after a step; nothing if that cannot
    be found out."""
    taken = inspect.signature(type(optimizer)).parameters
    settings = {key: value for key, value in optimizer.defaults.items() if key in taken}
    probe = torch.nn.Parameter(torch.zeros(_PROBE[:ndim], dtype=dtype))
    probe.grad = torch.zeros_like(probe)
    try:
        copy = type(optimizer)([probe], **settings)
        copy.step()
        return dict(copy.state[probe])
    except Exception:  # an optimizer of the user may need other arguments
        return {}


def _check_schedule(saved: Any, schedule: Any, place: str) -> None:
    """Refuse a state of a ``schedule`` that has other kinds of values than its own, or other arguments."""
    now = schedule.state_dict()
    arguments = inspect.signature(type(schedule)).parameters.keys() - {"last_epoch"}
    _check_keys(saved, {key: 0 for key in ("last_epoch",) if key in now}, place)  # a ChainedScheduler has none
    for key, value in saved.items():
        below = f"{place}.{quoted(key)}"
        if key == "_schedulers" and hasattr(schedule, key):
            parts = getattr(schedule, key)
            if not isinstance(value, list) or len(value) != len(parts):
                raise Misfit(f"{below} is no list of {len(parts)}")
            for number, (element, part) in enumerate(zip(value, parts)):
                _check_schedule(element, part, f"{below}.{number}")
        elif key in now:
            _check_like(value, now[key], below)
            if key in arguments and type(now[key]) in (int, float) and value != now[key]:
                raise Misfit(f"{below} is {_in_words(value)}, and {now[key]} here")
        elif key == "optimizer" or hasattr(type(schedule), str(key)):
            raise Misfit(f"{below} is not of a schedule")
