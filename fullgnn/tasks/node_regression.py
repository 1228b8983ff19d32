"""Node regression: one or more numbers a node."""

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn import functional

from fullgnn.errors import ConfigError
from fullgnn.graph.labels import LabelFacts
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.tasks.own_metrics import OwnMetrics
from fullgnn.tasks.task import (
    SPLITS,
    OwnLossStatesAnew,
    TaskContract,
    by_split,
    check_trainable,
    chosen_metrics,
    is_larger,
    is_smaller,
    normalized_sum,
    states,
)

LOSSES: dict[str, Callable[..., Tensor]] = {
    "mse": functional.mse_loss,
    "mae": functional.l1_loss,
    "huber": functional.huber_loss,
}
METRICS = ("rmse", "mae", "r2")


@states(TaskContract(learns_labels=True, learns_batches=True))
def node_regression(
    labels: LabelFacts,
    metrics: Optional[list[str]] = None,
    loss: str = "mse",
    own_metrics: Optional[dict[str, Any]] = None,
) -> "NodeRegression":
    """Build the task for labels (num_nodes,) or (num_nodes, c).

    Args:
        metrics: of rmse, mae and r2, by default all. The first one chooses the best epoch.
        loss: mse, mae or huber, the mean over the known labels of the training nodes.
        own_metrics: by name, functions of a user's own, see ``OwnMetrics``.

    Raises:
        ConfigError: an unknown choice.
        DataError: there is nothing to train on.
    """
    if loss not in LOSSES:
        raise ConfigError(f"task.loss={loss} is not known: choose one of {', '.join(LOSSES)}")
    check_trainable(labels)
    own = OwnMetrics(own_metrics, METRICS) if own_metrics else None
    return NodeRegression(labels, chosen_metrics(metrics, METRICS, own_metrics or ()), loss, own)


class NodeRegression(OwnLossStatesAnew):
    """Numbers of a node: the mean loss over the known labels of the training nodes.

    Metrics, over all known labels of a split: the root of the mean squared error ``rmse``, the mean absolute error
    ``mae``, and ``r2``, the coefficient of determination, the mean over the columns, as in scikit-learn. A column whose
    labels are all equal has no ``r2`` and does not count.
    """

    contract = TaskContract(learns_batches=True)

    def __init__(
        self,
        labels: LabelFacts,
        metrics: tuple[str, ...] = METRICS,
        loss: str = "mse",
        own: OwnMetrics | None = None,
    ):
        self.num_outputs, self.metrics, self._own = labels.columns or 1, metrics, own
        self._loss, self._normalizer = LOSSES[loss], sum(labels.train_known)
        means = [total / max(1, count) for total, count in zip(labels.train_sum, labels.train_known)]
        self._shift = torch.tensor(means, dtype=torch.float64)  # sums of squares lose no digits around the mean

    def targets(self, labels: Tensor) -> Tensor:
        """(n, num_outputs) floats; NaN if unknown."""
        if not labels.is_floating_point():
            labels = labels.double().masked_fill(labels < 0, float("nan"))
        return labels.reshape(len(labels), self.num_outputs)

    def loss(self, output: Tensor, targets: Tensor, total: float | None = None) -> Tensor:
        """See ``Task.loss``."""
        known = ~targets.isnan()
        wanted = targets.to(output.dtype).where(known, output.detach())  # an unknown label has no loss and no gradient
        total = self._normalizer if total is None else total
        return normalized_sum(self._loss(output, wanted, reduction="none"), total)

    def total(self, targets: Tensor) -> float:
        """The number of known labels."""
        return int((~targets.isnan()).sum())

    def measure(self, output: Tensor, graph: ShardedGraph, scheme: Scheme) -> dict[str, float | None]:
        """See ``Task.measure``."""
        known = ~graph.labels.isnan()
        wanted = graph.labels.double().where(known, 0) - self._shift.to(output.device)
        errors = (output.double() - self._shift.to(output.device) - wanted).where(known, 0)
        wanted = wanted.where(known, 0)
        terms = torch.stack([known.double(), errors.abs(), errors**2, wanted, wanted**2])
        sums = torch.stack([terms[:, mask].sum(dim=1) for mask in graph.masks])  # (3, 5, num_outputs)
        measured: dict[str, float | None] = {}
        for split, of_split in zip(SPLITS, scheme.sum_over_rows(sums).cpu()):
            measured |= {f"{split}_{name}": value for name, value in _scores(of_split).items()}
        if self._own is not None:
            measured |= self._own.measure(self.prediction(output), output, graph, scheme)
        return by_split(self.metrics, measured)

    def is_better(self, metric: float, best: float) -> bool:
        """See ``Task.is_better``: a smaller error is better, and a larger ``r2`` or metric of a user's own."""
        return is_smaller(metric, best) if self.metrics[0] in ("rmse", "mae") else is_larger(metric, best)

    def prediction(self, output: Tensor) -> Tensor:
        """(n, num_outputs), the output itself."""
        return output


def _scores(sums: Tensor) -> dict[str, float | None]:
    """The metrics from the (5, num_outputs) GLOBAL sums of one split."""
    count, absolute, squared, wanted, wanted_squared = sums
    total = count.sum().item()
    if not total:
        return dict.fromkeys(METRICS)
    spread = wanted_squared - wanted**2 / count.clamp(min=1)
    has_r2 = spread > 1e-14 * wanted_squared  # what rounding leaves of equal labels is no spread
    r2 = (1 - squared[has_r2] / spread[has_r2]).mean().item() if has_r2.any() else None
    return {"rmse": (squared.sum().item() / total) ** 0.5, "mae": absolute.sum().item() / total, "r2": r2}
