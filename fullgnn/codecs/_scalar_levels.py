"""The levels of :mod:`fullgnn.codecs.scalar`: low, low + step, low + 2 step, ..., of each column or row.

What is found for columns is (1, F), along axis 0 of the features; (m, 1) for rows, along axis 1. Sums are in float64.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from collections.abc import Callable
from functools import partial

import numpy as np

from fullgnn.codecs.features import Features
from fullgnn.errors import DataError
from fullgnn.kernels.support.process import even_slices, parallel_for

GAUSSIAN_STEP = {2: 0.9957, 4: 0.3352, 8: 0.0308}
"""By bits: the best step for a Gaussian, in standard deviations (Max, "Quantizing for minimum distortion", 1960)."""

PARTS = 16  # of a block of features, for any number of threads
Levels = tuple[np.ndarray, np.ndarray, np.ndarray]
"""``low``; ``step``; and in float64 what numbers are compared with to encode them: with one bit the mean, else low."""


@np.errstate(over="ignore", invalid="ignore")
def levels_of_rows(x: np.ndarray, bits: int) -> Levels:
    """The lowest level and the HIGHEST one, in float32, of the rows of (m, F) ``x`` with F > 0."""
    total, low, high = _ranges(x, 1)
    mean = _below_highest(total / x.shape[1], low, high)
    if bits == 1:
        low, high = _two_means(_sides(x, mean, low, high, 1), x.shape[1], low, high)
    low, high = low.astype(np.float32) + 0, high.astype(np.float32) + 0
    return *_checked(low, high, high - low), mean if bits == 1 else low.astype(np.float64)


@np.errstate(over="ignore", invalid="ignore")
def levels_of_columns(features: Features, bits: int, sample_nodes: int, seed: int) -> Levels:
    """``low`` and ``step`` have the dtype of ``features``, which are read twice.

    With more than one bit, the first of three choices with the least squared error on a sample is taken: from the
    smallest number of a column in steps of its smallest two, if they reach its largest; from its smallest to its
    largest; as if it were Gaussian. So equally spaced numbers stay exact, also those that the sample lacks.
    """
    num_nodes, dtype, top = features.num_nodes, features.dtype, 2**bits - 1
    if not num_nodes:
        return *np.zeros((2, 1, features.num_columns), dtype), np.zeros((1, features.num_columns))
    total, low, high = _joined(features, lambda x: _ranges(x, 0), np.add, np.minimum, np.maximum)
    mean = _below_highest(total / num_nodes, low, high)
    if bits == 1:
        sides = _joined(features, lambda x: _sides(x, mean, low, high, 0), np.add, np.add, np.add)
        first, second = _two_means(sides, num_nodes, low, high)
        low, step = first.astype(dtype) + 0, (second - first).astype(dtype)
        return *_checked(low, step, low + step), mean
    squares, second = _joined(features, lambda x: _spread(x, mean, low), np.add, np.minimum)
    gap, even, gaussian = second - low, (high - low) / top, GAUSSIAN_STEP[bits] * np.sqrt(squares / num_nodes)
    even_or_gap = np.where((low < high) & (high - low < (top + 0.5) * gap), gap, even)
    choices = (low, even_or_gap), (low, even), (mean - gaussian * top / 2, gaussian)
    rounded = [(low.astype(dtype) + 0, step.astype(dtype)) for low, step in choices]  # -0 becomes 0
    sample = Features(features.sample(sample_nodes, seed), dtype.name)
    errors = [_joined(sample, partial(_errors, *levels, top), np.add)[0] for levels in rounded]
    low, step = (np.choose(np.argmin(errors, 0), arrays) for arrays in zip(*rounded))
    return *_checked(low, step, step * top), low.astype(np.float64)


def _joined(features: Features, function: Callable[[np.ndarray], np.ndarray], *joins: np.ufunc) -> np.ndarray:
    """(k, ...): the (k, ...) results of a function for parts of the rows, joined by k operations in a fixed order."""
    parts: list[np.ndarray] = []
    for _, x in features.blocks("codec=scalar: the levels of columns are learnt"):
        parts += _in_parts(function, x)
        parts = [np.stack([join.reduce(results) for join, results in zip(joins, zip(*parts))])]
    return parts[0]


def _in_parts(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> list[np.ndarray]:
    by_start: dict[int, np.ndarray] = {}
    parallel_for(lambda rows: by_start.update({rows.start: function(x[rows])}), even_slices(len(x), min(len(x), PARTS)))
    return [by_start[first] for first in sorted(by_start)]


def _ranges(x: np.ndarray, axis: int) -> np.ndarray:
    """Sums, smallest and largest numbers."""
    return np.stack([x.sum(axis, np.float64, keepdims=True), x.min(axis, keepdims=True), x.max(axis, keepdims=True)])


def _below_highest(mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The mean. Rounding must not bring it up to the largest number, if there are others."""
    return np.clip(mean, low, np.maximum(low, np.nextafter(high, -np.inf)))


def _sides(x: np.ndarray, mean: np.ndarray, low: np.ndarray, high: np.ndarray, axis: int) -> np.ndarray:
    """How many numbers are above the mean, the sum of their distances from the largest number, and the sum of those of
    the others from the smallest: these sums are 0, without rounding, where the numbers of a side are equal."""
    above = x > mean
    sides = above, np.where(above, high - x, 0), np.where(above, 0, x - low)
    return np.stack([side.sum(axis, np.float64, keepdims=True) for side in sides])


def _two_means(sides: np.ndarray, count: int, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the numbers up to the mean, and that of the numbers above it; where there are none, again that."""
    num_above, above, below = sides
    first = low + below / np.maximum(1, count - num_above)
    return first, np.where(num_above > 0, high - above / np.maximum(1, num_above), first)


def _spread(x: np.ndarray, mean: np.ndarray, low: np.ndarray) -> np.ndarray:
    """The sums of squared distances from the mean, and the smallest numbers above ``low``, of columns."""
    return np.stack([np.square(x - mean).sum(0, keepdims=True), np.where(x > low, x, np.inf).min(0, keepdims=True)])


@np.errstate(over="ignore", invalid="ignore")
def _errors(low: np.ndarray, step: np.ndarray, top: int, x: np.ndarray) -> np.ndarray:
    """The sums of squared errors of columns, (1, 1, F)."""
    code = np.rint((x - low.astype(np.float64)) / np.where(step > 0, step, 1)).clip(0, top).astype(x.dtype)
    errors = np.square(x - (low + step * code), dtype=np.float64).sum(0, keepdims=True)
    return np.nan_to_num(errors, nan=np.inf)[None]  # nan: numbers so large that low + step code is beyond the dtype


def _checked(low: np.ndarray, other: np.ndarray, distance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not all(np.isfinite(numbers).all() for numbers in (low, other, distance)):
        raise DataError(f"features are too large for codec=scalar, which keeps levels in {low.dtype}: scale them down")
    return low, other
