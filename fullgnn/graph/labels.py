"""Labels of all nodes of a graph: their check, and what every rank knows of them before it trains."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import to_numpy


def check_labels(value: Any, num_nodes: int, num_classes: int) -> tuple[np.ndarray, int]:
    """Check the labels of all nodes, and derive the number of classes if ``num_classes`` is 0.

    Returns:
        the labels as one of
        (num_nodes,) int64, the class of each node, -1 if unknown. None gives -1 for every node;
        (num_nodes, c) int8, whether each node has each of c labels, -1 if unknown;
        (num_nodes,) or (num_nodes, c) float32 or float64, NaN if unknown.
        A single column, (num_nodes, 1), becomes (num_nodes,).
    """
    if num_classes < 0:
        raise DataError(f"num_classes is {num_classes}: pass the number of classes, or 0 to derive it from labels")
    if value is None:
        return np.full(num_nodes, -1, np.int64), num_classes
    labels = to_numpy(value, "labels")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim not in (1, 2) or len(labels) != num_nodes or 0 in labels.shape[1:]:
        raise DataError(
            f"labels has shape {labels.shape} but the graph has {num_nodes} nodes: pass one class per node, or one row"
            " of 0 and 1 per node"
        )
    if labels.ndim == 2 and num_classes not in (0, labels.shape[1]):
        raise DataError(f"labels has {labels.shape[1]} columns but num_classes is {num_classes}: they must agree")
    if labels.dtype.kind == "f":
        return _check_values(labels), num_classes or _num_classes(labels)
    if not np.can_cast(labels.dtype, np.int64):
        raise DataError(f"labels has dtype {labels.dtype}: pass integers that fit int64")
    low, high = int(labels.min()), int(labels.max())
    if labels.ndim == 2:
        if low < -1 or high > 1:
            raise DataError(
                f"labels of {labels.shape[1]} columns hold {low if low < -1 else high}: a column says whether a node"
                " has this label, 0 or 1 (-1: unknown); pass values to regress as floats"
            )
        return labels.astype(np.int8, copy=False), num_classes or labels.shape[1]
    if low < -1:
        raise DataError(f"label {low} is out of range: classes count from 0, and -1 means unlabelled")
    if 0 < num_classes <= high:
        raise DataError(f"label {high} is out of range: num_classes={num_classes} allows 0 to {num_classes - 1}")
    return labels.astype(np.int64, copy=False), num_classes or high + 1


def is_labelled(labels: np.ndarray) -> np.ndarray:
    """(num_nodes,) bool, the nodes of which at least one label is known."""
    known = is_known(labels)
    return known if known.ndim == 1 else np.any(known, axis=1)


def is_known(labels: np.ndarray) -> np.ndarray:
    """Which entries of checked ``labels`` are known; of the same shape, bool."""
    return ~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0


@dataclass(frozen=True)
class LabelFacts:
    """What every rank knows of the labels of the whole graph. Counts are GLOBAL."""

    num_classes: int
    columns: int | None = None  # labels of a node; None: one class or value
    integral: bool = True  # whether all known labels are integers of at least 0
    binary: bool = False  # whether all known labels are 0 or 1
    num_train: int = 1  # training nodes
    train_known: tuple[int, ...] = (1,)  # by column, known labels of training nodes
    train_sum: tuple[float, ...] = (0.0,)  # by column, their sum
    class_counts: tuple[int, ...] = ()  # by class, training nodes; empty unless the labels are one class a node

    @classmethod
    def of(cls, labels: np.ndarray, num_classes: int, train_mask: np.ndarray) -> "LabelFacts":
        """The facts of checked ``labels`` of a graph."""
        known, columns = is_known(labels), labels.shape[1] if labels.ndim == 2 else None
        values = labels[known]
        integral = bool(labels.dtype.kind != "f" or ((values >= 0) & (values == np.floor(values))).all())
        of_train, known = labels[train_mask], known[train_mask]
        counts: np.ndarray = np.empty(0, np.int64)
        if columns is None and integral:
            counts = np.bincount(of_train[known].astype(np.int64), minlength=num_classes)
        shape = len(of_train), columns or 1
        sums = np.where(known, of_train, 0).reshape(shape).sum(axis=0, dtype=np.float64)
        return cls(
            num_classes=num_classes,
            columns=columns,
            integral=integral,
            binary=bool(integral and (values <= 1).all()),
            num_train=int(train_mask.sum()),
            train_known=tuple(known.reshape(shape).sum(axis=0).tolist()),
            train_sum=tuple(sums.tolist()),
            class_counts=tuple(counts.tolist()),
        )


def _check_values(labels: np.ndarray) -> np.ndarray:
    if labels.dtype.itemsize > 8:
        raise DataError(f"labels has dtype {labels.dtype}: convert to float64 or float32 first")
    labels = labels.astype(np.float64 if labels.dtype.itemsize == 8 else np.float32, copy=False)
    if np.isinf(labels).any():
        raise DataError("labels hold Inf: pass finite values, and NaN where a label is unknown")
    return labels


def _num_classes(labels: np.ndarray) -> int:
    """The number of classes that floats stand for; 0 if they are not integers."""
    if labels.ndim == 2:
        return labels.shape[1]
    known = labels[~np.isnan(labels)]
    return int(known.max()) + 1 if known.size and (known == np.floor(known)).all() and known.min() >= 0 else 0
