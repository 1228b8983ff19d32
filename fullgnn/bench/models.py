"""The models of two layers that ``op=epoch`` trains: their keys in a run of ours, and the shapes of their weights."""

from collections.abc import Callable
from dataclasses import dataclass

Shapes = list[tuple[int, int]]

HEADS = 8
"""Attention heads of the hidden layer, side by side in its columns; the last layer has one."""


@dataclass(frozen=True)
class BenchModel:
    """A model that every library has."""

    keys: Callable[[int], list[str]]
    """Number of hidden columns -> keys of a run."""
    shapes: Callable[[list[int]], Shapes]
    """Widths (features, hidden, classes) -> shapes of the weight matrices, in the order of the model's parameters."""


def _gcn_keys(hidden: int) -> list[str]:
    return [f"model.hidden_channels={hidden}"]


def _gcn_shapes(widths: list[int]) -> Shapes:
    return list(zip(widths, widths[1:]))


def _gat_keys(hidden: int) -> list[str]:
    per_head = [f"model.heads={HEADS}", f"model.hidden_channels={max(1, hidden // HEADS)}"]
    return ["model=gat", *per_head, "model.attention_dropout=0"]


def _gat_shapes(widths: list[int]) -> Shapes:
    """Each layer has a weight matrix, and the (heads, columns) attention parameters of sources and of targets."""
    features, hidden, classes = widths
    by_head = (HEADS, hidden // HEADS)
    return [(features, hidden), by_head, by_head, (hidden, classes), (1, classes), (1, classes)]


MODELS = {"gcn": BenchModel(_gcn_keys, _gcn_shapes), "gat": BenchModel(_gat_keys, _gat_shapes)}
