"""The area under the ROC curve and the average precision of columns of scores, as torch operations on their device.

The scores of a column are sorted. All numbers of positive and negative nodes before and after a score are integers, so
that the area under the ROC curve is a quotient of integers: ties count exactly. No operation makes the host wait.
"""

import torch
from torch import Tensor

ELEMENTS_AT_ONCE = 1 << 24
"""About how many scores are sorted at a time."""


def roc_auc(scores: Tensor, targets: Tensor) -> Tensor:
    """(C,) float64 areas under the ROC curves; NaN for a column without a positive or without a negative node.

    Args:
        scores: (n, C) float64.
        targets: (n, C), 1 for positive and 0 for negative nodes; nodes with other numbers do not count.
    """
    areas = []
    for positive, negative, first, last in _sorted_pieces(scores, targets):
        above, up_to = _before(negative, first), _up_to(negative, last)  # negative nodes with a higher score, or equal
        num_positive, num_negative = positive.sum(dim=1), negative.sum(dim=1)
        wins_twice = (positive * (2 * num_negative[:, None] - above - up_to)).sum(dim=1)
        areas.append(wins_twice.double() / (2 * num_positive.double() * num_negative.double()))
    return torch.cat(areas)


def average_precision(scores: Tensor, targets: Tensor) -> Tensor:
    """(C,) float64 average precisions: at each distinct score, the precision times the gain in recall; NaN for a column
    without a positive node. See ``roc_auc`` for the arguments."""
    averages = []
    for positive, negative, first, last in _sorted_pieces(scores, targets):
        num_found = positive.cumsum(dim=1)
        gain = (num_found - _before(positive, first)).double()
        precision = num_found.double() / (num_found + negative.cumsum(dim=1)).clamp(min=1)
        averages.append(torch.where(last, gain * precision, 0.0).sum(dim=1) / positive.sum(dim=1).double())
    return torch.cat(averages)


def _sorted_pieces(scores: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """For some columns at a time, the nodes of each in the order of falling scores.

    Returns:
        (c, n) int64 1 for positive nodes, and for negative nodes, else 0; and whether a node is the first, and the
        last, of those with its score. Nodes that do not count come at the end.
    """
    step, pieces = max(1, ELEMENTS_AT_ONCE // max(1, len(scores))), []
    for some_scores, some_targets in zip(scores.T.split(step), targets.T.split(step)):
        counts = (some_targets == 0) | (some_targets == 1)
        ordered, order = some_scores.masked_fill(~counts, -torch.inf).sort(dim=1, descending=True)
        kinds = some_targets.masked_fill(~counts, -1).gather(1, order)
        first, last = torch.ones_like(counts), torch.ones_like(counts)
        first[:, 1:] = last[:, :-1] = ordered[:, 1:] != ordered[:, :-1]
        pieces.append(((kinds == 1).long(), (kinds == 0).long(), first, last))
    return pieces


def _before(numbers: Tensor, first: Tensor) -> Tensor:
    """The sum of the ``numbers`` before the first one with the same score, for each of them."""
    before = numbers.cumsum(dim=1) - numbers
    return torch.where(first, before, 0).cummax(dim=1).values  # sums do not fall


def _up_to(numbers: Tensor, last: Tensor) -> Tensor:
    """The sum of the ``numbers`` up to the last one with the same score, for each of them."""
    up_to = torch.where(last, numbers.cumsum(dim=1), torch.iinfo(torch.int64).max)
    return up_to.flip(1).cummin(dim=1).values.flip(1)
