"""Labels of all nodes of a graph: their check, and what every rank knows of them before it trains."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph.checks import to_array

MAX_CLASSES = 1 << 20
"""Labels that stand for more classes than this are no classes but other numbers."""

NUMBERED = "numpy.unique(labels, return_inverse=True)[1]"
"""What an error tells a user to pass in place of labels that are no class numbers."""


def check_labels(value: Any, num_nodes: int, num_classes: int) -> tuple[np.ndarray, int]:
    """Check the labels of all nodes, and derive the number of classes if ``num_classes`` is 0.

    The dtype says what the labels are: integers and booleans are classes, or in several columns several labels a node,
    and floats are values. Nothing else is converted: the error names the numpy call to make.

    Raises:
        DataError: one line that says what is wrong, and what to pass.

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
    labels = _numbers(to_array(value, "labels"))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim not in (1, 2) or len(labels) != num_nodes or 0 in labels.shape[1:]:
        flat = labels.ndim > 1 and labels.size == num_nodes
        cure = "numpy.ravel(labels)" if flat else "one class per node, or one row of 0 and 1 per node"
        raise DataError(f"labels has shape {labels.shape} but the graph has {num_nodes} nodes: pass {cure}")
    if labels.ndim == 2 and num_classes not in (0, labels.shape[1]):
        raise DataError(f"labels has {labels.shape[1]} columns but num_classes is {num_classes}: they must agree")
    if labels.dtype.kind == "f":
        return _check_values(labels), num_classes or _num_classes(labels)
    if not np.can_cast(labels.dtype, np.int64):
        raise DataError(f"labels has dtype {labels.dtype}: pass numpy.asarray(labels, dtype=numpy.int64)")
    low, high = int(labels.min()), int(labels.max())
    if labels.ndim == 2:
        if low < -1 or high > 1:
            raise DataError(
                f"labels of {labels.shape[1]} columns hold {low if low < -1 else high}: a column says whether a node"
                " has this label, 0 or 1 (-1: unknown); to regress numbers, pass numpy.asarray(labels, dtype=float)"
            )
        return labels.astype(np.int8, copy=False), num_classes or labels.shape[1]
    if low < -1:
        raise DataError(
            f"label {low} is out of range: classes count from 0, and -1 means unlabelled; to number classes, pass"
            f" {NUMBERED}"
        )
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


def describe_labels(labels: np.ndarray, num_classes: int) -> str:
    """What checked ``labels`` are, in a few words."""
    if not is_known(labels).any():
        return "no labels"
    of_columns = "" if labels.ndim == 1 else f"{labels.shape[1]} "
    if labels.dtype.kind == "f":
        return f"{of_columns}{labels.dtype} labels{' a node' if of_columns else ''}"
    return f"{of_columns}labels a node" if of_columns else f"{num_classes} classes"


@dataclass(frozen=True)
class LabelFacts:
    """What every rank knows of the labels of the whole graph. Counts are GLOBAL."""

    num_classes: int
    columns: int | None = None  # labels of a node; None: one class or value
    integral: bool = True  # whether all known labels are whole numbers of at least 0; classes: below num_classes
    binary: bool = False  # whether all known labels are 0 or 1
    num_train: int = 1  # training nodes
    train_known: tuple[int, ...] = (1,)  # by column, known labels of training nodes
    train_sum: tuple[float, ...] = (0.0,)  # by column, their sum
    class_counts: tuple[int, ...] = ()  # by class, training nodes; empty unless these are MAX_CLASSES classes at most
    class_names: tuple[str, ...] | None = None  # as ``Graph.class_names``

    def check(self) -> None:
        """Refuse facts that contradict each other, as those of a damaged file may.

        Raises:
            DataError: one line that names the field.
        """
        if self.columns is not None and self.columns < 1:
            raise DataError(f"columns is {self.columns}")
        if not len(self.train_known) == len(self.train_sum) == (self.columns or 1):
            raise DataError(f"train_known has {len(self.train_known)} columns, and not {self.columns or 1}")
        if len(self.class_counts) not in (0, self.num_classes):
            raise DataError(f"class_counts has {len(self.class_counts)} classes, and not {self.num_classes}")
        if self.class_names is not None and len(self.class_names) != self.num_classes:
            raise DataError(f"class_names has {len(self.class_names)} classes, and not {self.num_classes}")

    @classmethod
    def of(
        cls,
        labels: np.ndarray,
        num_classes: int,
        train_mask: np.ndarray,
        class_names: tuple[str, ...] | None = None,
    ) -> "LabelFacts":
        """The facts of checked ``labels`` of a graph."""
        known, columns = is_known(labels), labels.shape[1] if labels.ndim == 2 else None
        values = labels[known]
        integral = bool(labels.dtype.kind != "f" or ((values >= 0) & (values == np.floor(values))).all())
        if columns is None and integral:
            integral = bool((values < num_classes).all())
        of_train, known = labels[train_mask], known[train_mask]
        counts: np.ndarray = np.empty(0, np.int64)
        if columns is None and integral and num_classes <= MAX_CLASSES:
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
            class_names=class_names,
        )


def _numbers(labels: np.ndarray) -> np.ndarray:
    """``labels`` themselves, if they are numbers or booleans.

    Raises:
        DataError: the numpy call that turns them into numbers.
    """
    if labels.dtype.kind in "biuf":
        return labels
    if labels.ndim == 0:
        raise DataError(f"labels is a {type(labels.item()).__name__}: pass a list or an array, one class per node")
    kinds = {type(label) for label in labels.ravel()} if labels.dtype == object else set()
    held = f"objects of type {', '.join(sorted(kind.__name__ for kind in kinds))}" if kinds else str(labels.dtype)
    if labels.dtype.kind in "SUTMm" or (kinds and all(issubclass(kind, (str, bytes)) for kind in kinds)):
        held, cure = "dates" if labels.dtype.kind in "Mm" else "text", f"pass {NUMBERED}"
    elif kinds and all(issubclass(kind, (Integral, np.bool_)) for kind in kinds):
        cure = "pass numpy.asarray(labels, dtype=int)"
    elif kinds and all(issubclass(kind, (Real, np.bool_, type(None))) for kind in kinds):
        cure = "pass numpy.asarray(labels, dtype=float)" + (
            "; None becomes NaN, unknown" if type(None) in kinds else ""
        )
    else:
        cure = "give each node a class 0, 1, ..., and -1 where it is unknown"
    raise DataError(f"labels hold {held}, and a Graph keeps numbers: {cure}")


def _check_values(labels: np.ndarray) -> np.ndarray:
    if labels.dtype.itemsize > 8:
        raise DataError(f"labels has dtype {labels.dtype}: pass numpy.asarray(labels, dtype=float)")
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
