"""Numbers of several runs that differ in the seed alone: their mean, and how far they are spread."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

NOTHING = "–"


class Mean(float):
    """The mean of numbers that are not all equal. It takes part in arithmetic as a plain number."""

    std: float
    """Sample standard deviation, with n - 1 in the denominator."""
    low: float
    """The smallest of the numbers, or the smallest of their own ``low``."""
    high: float

    def __new__(cls, numbers: Sequence[float]) -> "Mean":
        mean = super().__new__(cls, statistics.fmean(numbers))
        mean.std = statistics.stdev(numbers)
        mean.low, mean.high = min(numbers), max(numbers)
        return mean


def low(number: float) -> float:
    """The smallest of the numbers behind ``number``: itself unless it is a ``Mean``."""
    return number.low if isinstance(number, Mean) else number


def high(number: float) -> float:
    """The largest of the numbers behind ``number``: itself unless it is a ``Mean``."""
    return number.high if isinstance(number, Mean) else number


def std(number: float) -> float:
    """The standard deviation of the numbers behind ``number``: 0 unless it is a ``Mean``."""
    return number.std if isinstance(number, Mean) else 0.0


def merged(values: Sequence[Any]) -> Any:
    """One value in place of several, leaf by leaf in dictionaries and lists.

    Equal values stay as they are. Numbers become their ``Mean``. Where one is null, so is the result: a mean over the
    others would hide it. Texts are listed. Of lists of several lengths, the first one stays.
    """
    first = values[0]
    if all(isinstance(value, dict) for value in values):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: merged([value[key] for value in values if key in value]) for key in keys}
    if all(isinstance(value, list) and len(value) == len(first) for value in values):
        return [merged(items) for items in zip(*values)]
    if all(value == first for value in values):
        return first
    if any(value is None for value in values):
        return None
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return Mean(values) if all(map(math.isfinite, values)) else None
    if any(isinstance(value, (dict, list)) for value in values):
        return first
    return ", ".join(dict.fromkeys(map(str, values)))


def shown(number: float | None, show: Callable[[Any], str], nothing: str = NOTHING) -> str:
    """``show(number)``, with the standard deviation of a ``Mean``; ``nothing`` where there is no number.

    The unit stands once: ``12.30 ± 0.42 ms``.
    """
    if number is None or math.isnan(number):
        return nothing
    text = show(number)
    if not isinstance(number, Mean):
        return text
    around = show(number.std)
    digits, space, unit = text.rpartition(" ")
    return f"{digits} ± {around}" if space and around.endswith(f" {unit}") else f"{text} ± {around}"
