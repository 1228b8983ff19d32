"""The section of the confusion matrices."""

from collections.abc import Iterator, Sequence
from typing import Any

from fullgnn.errors import quoted
from fullgnn.report.content import COUNT, Block, Table
from fullgnn.report.metrics import SPLITS
from fullgnn.report.runs import Run
from fullgnn.report.spread import shown
from fullgnn.telemetry.screen import percent

MOST_CLASSES = 24
"""Classes up to which the page shows a whole matrix."""
MOST_PAIRS = 24
"""Pairs of classes that the page shows of a larger one."""
MOST_CHARACTERS = 32
"""At most shown of the name of a class at the start of a row; half as many above a column of numbers."""


def confusion(runs: list[Run]) -> Iterator[Block]:
    """The matrices of the test nodes, or else of the validation nodes, of each run that has counted them."""
    for run in runs:
        found = run.record.get("confusion") or {}
        split = next((one for one in ("test", "val", "train") if found.get(one)), None)
        if split is None:
            continue
        names = run.record.get("confusion_classes") or []
        names = names if len(names) == len(found[split]) else []  # a file may be damaged
        matrix, caption = found[split], f"{run.prefix}{SPLITS[split]} nodes at the best epoch"
        if len(matrix) <= MOST_CLASSES:
            yield "table", Table(f"{caption}: class (row) and predicted class", *_whole(matrix, names))
        else:
            yield "table", Table(f"{caption}: the most frequent confusions", *_pairs(matrix, names))


def _whole(matrix: Sequence[Sequence[Any]], names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a matrix, with the share of each class that is predicted right."""
    header = ["class", *(_called(k, names, MOST_CHARACTERS // 2) for k in range(len(matrix))), "recall"]
    return header, [
        [_called(k, names), *(shown(one, COUNT) for one in row), _share(row[k], row)] for k, row in enumerate(matrix)
    ]


def _pairs(matrix: Sequence[Sequence[Any]], names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The pairs of classes of which most nodes of the first are predicted to be of the second."""
    pairs = [(one, k, j) for k, row in enumerate(matrix) for j, one in enumerate(row) if j != k and one]
    pairs = sorted(pairs, key=lambda pair: (-pair[0], *pair[1:]))[:MOST_PAIRS]
    header = ["class", "predicted class", "nodes", "of the nodes of the class"]
    return header, [
        [_called(k, names), _called(j, names), shown(one, COUNT), _share(one, matrix[k])] for one, k, j in pairs
    ]


def _called(number: int, names: Sequence[str], most: int = MOST_CHARACTERS) -> str:
    """The number of a class, and its name, cut after ``most`` characters, if it has one.

    Args:
        names: of all classes; empty: they have none.
    """
    if not names:
        return str(number)
    name = quoted(names[number])
    return f"{number} {name if len(name) <= most else name[: most - 1] + '…'}"


def _share(number: Any, row: Sequence[Any]) -> str:
    total = sum(map(float, row))
    return percent(float(number) / total if total else None)
