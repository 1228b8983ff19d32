"""Weights of classes in a loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.graph.labels import LabelFacts

BALANCED = "balanced"


class ClassWeight:
    """A weight for each class. Sums of weights are float64, whatever the outputs of the model are.

    Args:
        values: (num_classes,).
    """

    def __init__(self, values: Sequence[float]):
        self._values = torch.tensor(values, dtype=torch.float64)
        self._like: Tensor | None = None  # as the outputs are; a CUDA graph reads this very tensor

    def like(self, output: Tensor) -> Tensor:
        """(num_classes,), with the type and on the device of ``output``."""
        if self._like is None or (self._like.dtype, self._like.device) != (output.dtype, output.device):
            self._like = self._values.to(output)
        return self._like

    def sum_of(self, targets: Tensor) -> float:
        """The sum of the weights of the (n,) int64 ``targets``, whatever their order and the number of threads are."""
        counts = torch.bincount(targets.cpu(), minlength=len(self._values)).tolist()
        return sum(count * weight for count, weight in zip(counts, self._values.tolist(), strict=True))


def class_weights(given: Any, labels: LabelFacts, balanced: Sequence[float]) -> list[float]:
    """The weights of all classes, from the key ``task.class_weight``.

    Args:
        given: numbers, or ``balanced``, which stands for those of ``balanced``.

    Raises:
        ConfigError: there is not one finite number of at least 0 for each class.
    """
    if given == BALANCED:
        return list(balanced)
    try:
        if isinstance(given, Mapping):
            raise TypeError
        weights = [float(weight) for weight in given]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"task.class_weight={given} does not fit: give {BALANCED}, or a list of numbers") from error
    if len(weights) != labels.num_classes:
        raise ConfigError(
            f"task.class_weight has {len(weights)} numbers and the graph {labels.num_classes} classes: give one number"
            " of at least 0 for each class"
        )
    if not all(0 <= weight < float("inf") for weight in weights):
        raise ConfigError(f"task.class_weight={weights} does not fit: give finite numbers of at least 0")
    return weights
