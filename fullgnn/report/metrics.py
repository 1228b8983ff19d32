"""What the names of metrics in the files of a run say: ``val_micro_f1`` is the micro F1 of the validation nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fullgnn.telemetry.screen import percent

SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Prefix of the name of a metric -> its title."""
LOWER = ("rmse", "mse", "mae", "mape", "loss", "error", "nll")
"""Last words of metrics of which a lower value is better."""
HIGHER = ("accuracy", "f1", "auc", "ap", "mrr", "precision", "recall", "r2", "ndcg", "hits", "mcc", "kappa")
"""Last words of metrics of which a higher value is better, also with a number, as in ``recall@20``."""


def metrics_in(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """The metrics that any of ``lines`` has for a split, without the split, in the order in which they appear."""
    values = ((name, value) for line in lines for name, value in line.items() if split_of(name))
    names = (name for name, value in values if value is None or isinstance(value, (int, float)))
    return list(dict.fromkeys(name.partition("_")[2] for name in names))


def split_of(name: str) -> str:
    """``train``, ``val`` or ``test``; empty for a name that is not a metric of a split."""
    split, _, metric = name.partition("_")
    return split if split in SPLITS and metric else ""


def is_accuracy(name: str) -> bool:
    """Whether the metric ``name`` is an accuracy, which is shown in per cent."""
    return name.endswith("_accuracy")


def title(name: str) -> str:
    """``val_micro_f1`` in words: validation micro_f1."""
    split = split_of(name)
    return f"{SPLITS[split]} {name.partition('_')[2]}" if split else name


def show_as(name: str) -> Callable[[Any], str]:
    """How the values of a metric are written: an accuracy in per cent, any other metric as a number."""
    return percent if is_accuracy(name) else "{:.6g}".format


def better(name: str) -> Callable[[Sequence[float]], float] | None:
    """``min`` or ``max``, which finds the best of several values of a metric; None: the name does not say which."""
    last = name.split("_")[-1].lower().partition("@")[0]
    if last in LOWER:
        return min
    return max if last in HIGHER else None
