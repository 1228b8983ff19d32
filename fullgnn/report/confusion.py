"""The section of the confusion matrices."""

from collections.abc import Iterator, Sequence
from typing import Any

from fullgnn.report.content import COUNT, Block, Table
from fullgnn.report.metrics import SPLITS
from fullgnn.report.runs import Run
from fullgnn.report.spread import shown
from fullgnn.telemetry.table import percent

MOST_CLASSES = 24
"""Classes up to which the page shows a whole matrix."""
MOST_PAIRS = 24
"""Pairs of classes that the page shows of a larger one."""


def confusion(runs: list[Run]) -> Iterator[Block]:
    """The matrices of the test nodes, or else of the validation nodes, of each run that has counted them."""
    for run in runs:
        found = run.record.get("confusion") or {}
        split = next((one for one in ("test", "val", "train") if found.get(one)), None)
        if split is None:
            continue
        matrix, caption = found[split], f"{run.prefix}{SPLITS[split]} nodes at the best epoch"
        if len(matrix) <= MOST_CLASSES:
            yield "table", Table(f"{caption}: class (row) and predicted class", *_whole(matrix))
        else:
            yield "table", Table(f"{caption}: the most frequent confusions", *_pairs(matrix))


def _whole(matrix: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a matrix, with the share of each class that is predicted right."""
    header = ["class", *map(str, range(len(matrix))), "recall"]
    return header, [[str(k), *(shown(one, COUNT) for one in row), _share(row[k], row)] for k, row in enumerate(matrix)]


def _pairs(matrix: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[str]]]:
    """The pairs of classes of which most nodes of the first are predicted to be of the second."""
    pairs = [(one, k, j) for k, row in enumerate(matrix) for j, one in enumerate(row) if j != k and one]
    pairs = sorted(pairs, key=lambda pair: (-pair[0], *pair[1:]))[:MOST_PAIRS]
    header = ["class", "predicted class", "nodes", "of the nodes of the class"]
    return header, [[str(k), str(j), shown(one, COUNT), _share(one, matrix[k])] for one, k, j in pairs]


def _share(number: Any, row: Sequence[Any]) -> str:
    total = sum(map(float, row))
    return percent(float(number) / total if total else None)
