"""Replicates, runs that differ in what was drawn for them: the keys that make them, the mean and the spread of their
numbers, and how tables write these."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

SEED = "seed"
SPLIT_NUMBERS = ("split", "split_id", "split_index", "split_number", "fold")
"""Last parts of keys that number the splits of a dataset."""
T = TypeVar("T")
K = TypeVar("K")
NOTHING = "–"
HeaderAndRows = tuple[Sequence[str], Sequence[Sequence[str]]]
Records = Sequence[Mapping[Any, Any]]
Show = Callable[[Any], str]
"""Writes a value as the text of a cell."""
Noise = Literal["clock", "sample", "count"]
"""How a quantity varies; see ``summary.py``."""


def is_draw(key: str, value: str) -> bool:
    """Whether a dotted ``key`` draws one of many equal runs: a seed, also that of a dataset, of a split or of held-out
    links, or the number of a split. The name of a split is a setting."""
    last = key.rpartition(".")[2].lstrip("+")
    return last == SEED or last.endswith(f"_{SEED}") or (last in SPLIT_NUMBERS and value.lstrip("-").isdigit())


def without_draws(overrides: str) -> str:
    """Words, such as ``dataset.seed=3``, without those that are overrides of such keys."""
    words = overrides.split(" ")
    return " ".join(word for word in words if "=" not in word or not is_draw(*word.split("=", 1)))


def by_key(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items of each key; keys and items in the order in which they come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


class Quantity(NamedTuple):
    """A row, or a column, of a table of several records."""

    label: str
    key: Any  # of the records
    show: Show = str
    best: Callable[..., Any] | None = None  # ``min`` or ``max``; None: no value is better
    noise: Noise = "sample"


def are_distinct(names: Sequence[str]) -> bool:
    """Whether each of the names says something, and no other one says the same."""
    return all(names) and len(set(names)) == len(names)


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


def shown(value: Any, show: Show, nothing: str = NOTHING) -> str:
    """``show(value)``, with the standard deviation of a ``Mean``; ``nothing`` where there is no value.

    The unit stands once: ``12.30 ± 0.42 ms``.
    """
    if value in (None, "") or value != value:
        return nothing
    text = show(value)
    if not isinstance(value, Mean):
        return text
    around = show(value.std)
    digits, space, unit = text.rpartition(" ")
    return f"{digits} ± {around}" if space and around.endswith(f" {unit}") else f"{text} ± {around}"


def rows_of(quantities: Iterable[Quantity], records: Records, nothing: str = NOTHING) -> list[list[str]]:
    """A row for each quantity: its label, and its value in each of the records."""
    return [
        [label, *(shown(record.get(key), show, nothing) for record in records)] for label, key, show, *_ in quantities
    ]


def by_record(columns: Iterable[Quantity], records: Records, nothing: str = NOTHING) -> HeaderAndRows:
    """The header and the rows of a table with a row for each record, and a column for each quantity."""
    header, *rows = zip(*rows_of(columns, records, nothing))
    return header, rows
