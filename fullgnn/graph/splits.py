"""Splits of the labelled nodes of a graph: which of them are for training, for validation and for testing.

    random      shares of the nodes
    stratified  shares of the nodes of every class
    per_class   a number of nodes of every class for training, and a number of others for validation, as Planetoid has
    group       shares of the nodes, where all nodes of a group are in one part
    kfold       one of several disjoint test parts, which are together all labelled nodes

All that is random is one order of the labelled nodes, drawn from the seed. So a split is a function of the labels, the
keys and the seed, whatever the number of ranks and the edges are. Only ``kfold`` draws a second time, from the seed and
the number of the fold: the validation nodes among those that are not for testing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.checks import to_array
from fullgnn.graph.labels import MAX_CLASSES, is_labelled
from fullgnn.graph.masks import MASKS

if TYPE_CHECKING:
    from fullgnn.graph.graph import Graph

FRACTIONS = ("train_fraction", "val_fraction")
USED: dict[str, tuple[str, ...]] = {
    "random": FRACTIONS,
    "stratified": FRACTIONS,
    "per_class": ("train_per_class", "num_val"),
    "group": (*FRACTIONS, "groups"),
    "kfold": ("val_fraction", "num_folds", "fold"),
}
"""By method, the keys that it reads beside the seed."""
METHODS = tuple(USED)
MILLION = 10**6


@dataclass(frozen=True)
class SplitKeys:
    """The keys of a split. None: not given, so the default of ``DEFAULTS`` holds."""

    train_fraction: float | None = None
    val_fraction: float | None = None
    train_per_class: int | None = None
    num_val: int | None = None
    num_folds: int | None = None
    fold: int | None = None
    groups: Any = None  # (num_nodes,) integers or texts, the group of each node

    def given(self) -> dict[str, Any]:
        """The keys that are given, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def of(self, name: str) -> Any:
        """The value of a key, or its default."""
        value = getattr(self, name)
        return DEFAULTS[name] if value is None else value


DEFAULTS = {
    "train_fraction": 0.6,
    "val_fraction": 0.2,
    "train_per_class": 20,
    "num_val": 500,
    "num_folds": 5,
    "fold": 0,
}


def check_method(method: Any, keys: SplitKeys, prefix: str = "") -> None:
    """Refuse a ``method`` that does not exist, and keys that are out of range for every graph or would do nothing.

    Args:
        prefix: of the keys in errors, as ``dataset.``.

    Raises:
        ConfigError: one line.
    """
    if method not in METHODS:
        raise ConfigError(f"{prefix}split={method} is not known: choose one of {', '.join(METHODS)}")
    for name, value in keys.given().items():
        if name not in USED[method]:
            shown = "..." if name == "groups" else value
            raise ConfigError(
                f"{prefix}{name}={shown} would do nothing, since {prefix}split={method} reads"
                f" {', '.join(prefix + key for key in USED[method])} alone: leave it out"
            )
    if method == "group" and keys.groups is None:
        raise ConfigError(f"{prefix}split=group needs the group of each node: give {prefix}groups=...")
    for name in (key for key in USED[method] if key in ("train_fraction", "val_fraction")):
        value = keys.of(name)
        if not (0 <= value <= 1 and (value or name == "val_fraction")):  # also of NaN
            raise ConfigError(f"{prefix}{name}={value} is no share of the nodes: choose a number from 0 to 1")
    if method == "kfold" and not 0 <= keys.of("fold") < keys.of("num_folds") > 1:
        raise ConfigError(
            f"{prefix}fold={keys.of('fold')} and {prefix}num_folds={keys.of('num_folds')} name no fold: choose at least"
            " 2 folds, and a fold from 0 to their number minus 1"
        )


def draw(method: str, labels: np.ndarray, keys: SplitKeys, seed: int) -> tuple[dict[str, Any], dict[str, int]]:
    """The masks of a split of the labelled nodes, as arguments of ``Graph``, and the remark on it.

    Args:
        labels: of a ``Graph``.
        seed: at least 0.

    Raises:
        ConfigError: the keys do not fit these labels.
        DataError: no node is labelled.
    """
    check_method(method, keys)
    if seed < 0:
        raise ConfigError(f"seed={seed} is negative: choose 0 or above")
    nodes = np.flatnonzero(is_labelled(labels))
    if not len(nodes):
        raise DataError("the graph has no labels, whose nodes could be split: pass labels, or masks")
    if method == "random":
        masks = random_split(labels, keys.of("train_fraction"), keys.of("val_fraction"), seed)
    else:
        order = np.random.default_rng([seed, 2]).permutation(nodes)
        split = {"stratified": _stratified, "per_class": _per_class, "group": _by_group, "kfold": _fold}[method]
        masks = masks_of(len(labels), split(labels, order, keys, seed))
    return masks, remarks_of(method, keys, seed, len(nodes))


def remarks_of(method: str, keys: SplitKeys, seed: int, num_nodes: int) -> dict[str, int]:
    """The remark on a split that was drawn; see ``remarks.py``. Fractions are counted in millionths."""
    remarks = {f"{method}_split_nodes": num_nodes, "split_seed": seed}
    for name in USED[method]:
        if name in FRACTIONS:
            remarks[f"split_{name}"] = round(keys.of(name) * MILLION)
        elif name != "groups":
            remarks[f"split_{name}"] = keys.of(name)
    return remarks


def is_remark_of_split(name: str) -> bool:
    """Whether a remark belongs to a split that was drawn."""
    return name.startswith("split_") or name in {f"{method}_split_nodes" for method in METHODS}


def _by_class(labels: np.ndarray, order: np.ndarray, method: str = "") -> tuple[np.ndarray, np.ndarray]:
    """The nodes of ``order`` by class, in their order within each class, and the number of nodes of each class. Labels
    that are no classes make one class of all nodes.

    Args:
        method: that takes classes alone; empty: there is none.

    Raises:
        ConfigError: the labels are no classes, which the ``method`` takes.
    """
    of_nodes = labels[order]
    are_classes = labels.ndim == 1 and (labels.dtype.kind != "f" or bool((of_nodes == np.floor(of_nodes)).all()))
    if not are_classes and method:
        kind = "several labels" if labels.ndim == 2 else "numbers that are no classes"
        raise ConfigError(f"split={method} takes one class a node, and the nodes have {kind}: take split=random")
    if not are_classes:
        return order, np.array([len(order)])
    are_numbers = 0 <= of_nodes.min() and of_nodes.max() < MAX_CLASSES
    classes = of_nodes.astype(np.int64, copy=False) if are_numbers else np.unique(of_nodes, return_inverse=True)[1]
    small = classes.astype(np.int16) if classes.max(initial=0) < 1 << 15 else classes  # which numpy sorts much faster
    return order[np.argsort(small, kind="stable")], np.bincount(classes)


def _allocate(sizes: np.ndarray, total: int) -> np.ndarray:
    """How many of each of several sets, of these ``sizes``, make ``total`` in proportion: each number is the exact
    share rounded up or down, and those with the largest remainders are rounded up (Hamilton's method)."""
    counts, remainder = np.divmod(sizes * total, max(1, int(sizes.sum())))  # below 2^62, since ids are int32
    counts[np.argsort(-remainder, kind="stable")[: total - int(counts.sum())]] += 1
    return counts


def _first_of_each(by_class: np.ndarray, sizes: np.ndarray, begin: np.ndarray, count: np.ndarray) -> np.ndarray:
    """(num_nodes,) bool, of nodes that are sorted by class: ``count`` of each class from its number ``begin`` on."""
    place = np.arange(len(by_class)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return (place >= np.repeat(begin, sizes)) & (place < np.repeat(begin + count, sizes))


def _sizes(num_nodes: int, keys: SplitKeys) -> tuple[int, int]:
    """How many of ``num_nodes`` are for training and for validation, as ``random_split`` has it."""
    train, val = keys.of("train_fraction"), keys.of("val_fraction")
    if not train + val <= 1 + 1e-9:
        raise ConfigError(
            f"train_fraction={train:g} and val_fraction={val:g} are no split: their sum must be at most 1"
        )
    num_train = max(1, round(train * num_nodes))
    return num_train, max(num_train, round((train + val) * num_nodes)) - num_train


def _stratified(labels: np.ndarray, order: np.ndarray, keys: SplitKeys, seed: int) -> list[np.ndarray]:
    """Shares of each class that are exact but for the rounding; the sizes of the parts are those of ``random``."""
    by_class, sizes = _by_class(labels, order, "stratified")
    num_train, num_val = _sizes(len(order), keys)
    train = _allocate(sizes, num_train)
    val = _allocate(sizes - train, num_val)
    in_train = _first_of_each(by_class, sizes, np.zeros_like(train), train)
    in_val = _first_of_each(by_class, sizes, train, val)
    return [by_class[in_train], by_class[in_val], by_class[~(in_train | in_val)]]


def _per_class(labels: np.ndarray, order: np.ndarray, keys: SplitKeys, seed: int) -> list[np.ndarray]:
    """A number of nodes of every class, and of the others, in their order, a number for validation."""
    train_per_class, num_val = keys.of("train_per_class"), keys.of("num_val")
    by_class, sizes = _by_class(labels, order, "per_class")
    smallest = sizes[sizes > 0].min()
    if not 1 <= train_per_class <= smallest:
        raise ConfigError(f"train_per_class={train_per_class}: choose 1 to {smallest}, the smallest class")
    train = by_class[_first_of_each(by_class, sizes, np.zeros_like(sizes), np.full_like(sizes, train_per_class))]
    rest = order[~np.isin(order, train)]
    if not 0 <= num_val <= len(rest):
        raise ConfigError(f"num_val={num_val}: choose 0 to {len(rest)}, the number of nodes outside the training set")
    return [train, rest[:num_val], rest[num_val:]]


def _by_group(labels: np.ndarray, order: np.ndarray, keys: SplitKeys, seed: int) -> list[np.ndarray]:
    """Whole groups in a random order, cut where the number of nodes comes closest to the shares."""
    groups = to_array(keys.groups, "groups")
    if groups.ndim == 2 and groups.shape[1] == 1:
        groups = groups[:, 0]
    if groups.shape != (len(labels),) or groups.dtype.kind not in "biuSU":
        raise ConfigError(
            f"groups has shape {groups.shape} and dtype {groups.dtype}: give {len(labels)} integers or texts, the group"
            " of each node"
        )
    group = np.unique(groups[order], return_inverse=True)[1]
    num_groups = int(group.max()) + 1
    first = np.full(num_groups, len(order))
    np.minimum.at(first, group, np.arange(len(order)))
    shuffled = np.argsort(first)  # groups by their first node in the random order
    ends = np.cumsum(np.bincount(group)[shuffled])
    num_train, num_val = _sizes(len(order), keys)
    wanted = [num_train, num_train + num_val]
    num_parts = 1 + (num_val > 0) + (wanted[1] < len(order))
    if num_groups < num_parts:
        raise ConfigError(
            f"groups has {num_groups} groups of labelled nodes, and the split {num_parts} parts: give more"
        )
    cuts = [int(np.argmin(np.abs(ends - size))) + 1 for size in wanted]
    has_test = wanted[1] < len(order)
    cuts[0] = min(cuts[0], num_groups - (num_parts - 1))  # each part that is asked for has a group
    cuts[1] = min(max(cuts[1], cuts[0] + (num_val > 0)), num_groups - has_test)
    cuts[1] = cuts[1] if num_val else cuts[0]
    place = np.empty(num_groups, np.int64)
    place[shuffled] = np.arange(num_groups)
    part = np.searchsorted(cuts, place[group], side="right")
    return [order[part == number] for number in range(3)]


def _fold(labels: np.ndarray, order: np.ndarray, keys: SplitKeys, seed: int) -> list[np.ndarray]:
    """The nodes of every class in turn to the folds, so that folds differ by one node at most, of all and of a class.

    Labels that are no classes, several of a node or numbers, are not told apart: the folds are then random.
    """
    num_folds, fold = keys.of("num_folds"), keys.of("fold")
    if num_folds > len(order):
        raise ConfigError(f"num_folds={num_folds} is more than the {len(order)} labelled nodes: choose fewer")
    by_class, _ = _by_class(labels, order)
    is_test = np.arange(len(order)) % num_folds == fold
    num_rest, num_val = len(order) - int(is_test.sum()), round(keys.of("val_fraction") * len(order))
    if num_val >= num_rest:
        raise ConfigError(
            f"val_fraction={keys.of('val_fraction'):g} leaves no node for training beside a fold of {num_folds}:"
            " choose a smaller one"
        )
    rest, sizes = _by_class(labels, np.random.default_rng([seed, 3, fold]).permutation(by_class[~is_test]))
    in_val = _first_of_each(rest, sizes, np.zeros_like(sizes), _allocate(sizes, num_val))
    return [rest[~in_val], rest[in_val], by_class[is_test]]


def random_split(labels: np.ndarray, train_fraction: float, val_fraction: float, seed: int) -> dict[str, Any]:
    """Boolean masks of a random split of the labelled nodes; those in neither train nor val are for testing."""
    if not (train_fraction > 0 and val_fraction >= 0 and train_fraction + val_fraction <= 1 + 1e-9):  # also of NaN
        raise ConfigError(
            f"train_fraction={train_fraction:g} and val_fraction={val_fraction:g} are no split: the first"
            " must be above 0, the second not below, their sum at most 1"
        )
    order = np.random.default_rng([seed, 2]).permutation(np.flatnonzero(is_labelled(labels)))
    num_train = max(1, round(train_fraction * len(order)))
    num_seen = max(num_train, round((train_fraction + val_fraction) * len(order)))
    return masks_of(len(labels), np.split(order, [num_train, num_seen]))


def few_label_split(labels: np.ndarray, train_per_class: int, num_val: int, seed: int) -> dict[str, Any]:
    """Boolean masks: ``train_per_class`` random nodes of every class, ``num_val`` others, and the rest for testing.

    Args:
        labels: (num_nodes,) integers. A node whose label is -1 is in no mask, and a class without a node is none.
    """
    order = np.random.default_rng([seed, 2]).permutation(np.flatnonzero(labels >= 0))
    keys = SplitKeys(train_per_class=train_per_class, num_val=num_val)
    return masks_of(len(labels), _per_class(labels, order, keys, seed))


def masks_of(num_nodes: int, parts: list[np.ndarray]) -> dict[str, Any]:
    """The masks of a split, as arguments of ``Graph``, of the nodes of its three parts."""
    masks = {name: np.zeros(num_nodes, dtype=bool) for name in MASKS}
    for mask, nodes in zip(masks.values(), parts, strict=True):
        mask[nodes] = True
    return masks


def with_split(graph: Graph, method: str, keys: SplitKeys, seed: int) -> Graph:
    """``graph`` with its labelled nodes split anew, and a remark on that; see ``Graph.split``."""
    masks, told = draw(method, graph.labels, keys, seed)
    kept = {name: count for name, count in graph.remarks.items() if not is_remark_of_split(name)}
    if len(kept) == len(graph.remarks):  # the split that it has was not drawn here
        old = graph.train_mask | graph.val_mask | graph.test_mask
        kept["replaced_split_nodes"] = int(np.count_nonzero(old))
    return replace(graph, remarks={**kept, **told}, **masks)
