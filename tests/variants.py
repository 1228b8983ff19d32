"""Configurations that give the same result: a pairwise covering set of the options, and the presets."""

import random
from functools import partial
from itertools import combinations, product
from typing import Any

from tests.cases import layout_overrides

OPTIONS: dict[str, tuple[Any, ...]] = {
    "optimizations.spmm_order": ("width", "transform", "propagate"),
    "optimizations.cache_aggregation": ("true", "false"),
    "optimizations.skip_input_gradient": ("true", "false"),
    "optimizations.fold_normalization": ("true", "false"),
    "optimizations.loss_rows_only": ("true", "false"),
    "scheme.stage_order": ("diagonal", "broadcast"),
    "scheme.exchange": ("auto", "broadcast", "needed_rows"),
    "scheme.split_rows": ("true", "false"),
    "scheme.shared_memory": ("true", "false"),
    "partition": ("contiguous", "random", "nnz", "metis"),
    "reorder": ("none", "rcm", "metis"),
    "kernel": ("blocked", "torch"),
    "normalization": ("sym", "row", "none"),
    "layout": ((1, 1), (3, 1), (4, 2), (6, 3)),  # ranks and replication
}


def covering_rows(seed: int) -> list[list[Any]]:
    """Rows of values, one for each option, among which any two values of two options occur together.

    Greedy: a row takes the options in a random order, and of each the value that forms most pairs that are new.
    """
    rng, values = random.Random(seed), list(OPTIONS.values())
    left = {
        (i, first, j, second)
        for (i, firsts), (j, seconds) in combinations(enumerate(values), 2)
        for first, second in product(firsts, seconds)
    }

    def num_new(row: dict[int, Any], option: int, value: Any) -> int:
        pairs = (((i, other), (option, value)) for i, other in row.items())
        return sum((*min(pair), *max(pair)) in left for pair in pairs)

    rows = list[list[Any]]()
    while left:
        row = dict[int, Any]()
        for option in rng.sample(range(len(values)), len(values)):
            choices = rng.sample(values[option], len(values[option]))
            row[option] = max(choices, key=partial(num_new, row, option))
        covered = {(i, row[i], j, row[j]) for i, j in combinations(range(len(values)), 2)}
        if covered & left:
            rows.append([row[option] for option in range(len(values))])
            left -= covered
    return rows


PAIRWISE = covering_rows(seed=10)  # no other of 300 seeds has fewer rows
"""Each row is a configuration and a layout, each column an option."""
ALL_OFF = [
    "transform",
    *["false"] * 4,
    "broadcast",
    "broadcast",
    "false",
    "false",
    "contiguous",
    "none",
    "torch",
    "sym",
]
"""Every optimization off, in the plainest order; without a layout."""

PRESETS = ("cagnet-1d", "cagnet-1.5d", "hetu", "hetu-reorder", "full")


def pairwise_overrides(row: list[Any]) -> list[str]:
    """A row of ``PAIRWISE`` as overrides without its layout, and without input dropout, which would disable options."""
    return [*(f"{key}={value}" for key, value in zip(OPTIONS, row[:-1])), "model.input_dropout=0"]


def preset_overrides(preset: str, replication: int) -> list[str]:
    """A preset on any layout: the layout sets the scheme, the preset sets the options of the scheme."""
    return [f"experiment={preset}", *layout_overrides(replication)]
