"""Configurations that give the same result: a pairwise covering set of the options, and the presets."""

from tests.cases import layout_overrides

OPTIONS = {
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
}

# Each row is a configuration, each column an option. Any two values of two options occur together in some row.
PAIRWISE = [
    row.split()
    for row in """
    width     false true  false true  diagonal  broadcast   true  true  random     none  torch   none
    propagate true  false true  false broadcast needed_rows false true  random     metis blocked row
    transform true  true  true  true  diagonal  auto        false false contiguous rcm   blocked sym
    transform false false false false broadcast needed_rows true  true  metis      rcm   torch   sym
    width     false false true  false broadcast auto        false false nnz        none  blocked none
    propagate true  true  false true  diagonal  auto        true  false nnz        metis torch   row
    transform true  false false true  broadcast broadcast   false false metis      metis blocked none
    propagate false true  true  false broadcast broadcast   true  false contiguous rcm   torch   row
    width     true  true  true  false diagonal  needed_rows true  true  metis      none  blocked row
    width     false false false true  diagonal  needed_rows false true  contiguous metis torch   sym
    transform true  true  false false diagonal  broadcast   true  true  nnz        none  torch   sym
    propagate false true  false true  broadcast needed_rows true  false contiguous none  blocked none
    transform false false false false diagonal  auto        true  false random     rcm   torch   sym
    width     false false false true  diagonal  needed_rows false true  nnz        rcm   blocked none
    propagate true  false true  true  broadcast auto        false true  metis      none  torch   sym
    transform true  false true  true  broadcast auto        false true  metis      none  blocked row
    """.strip().splitlines()
]
PAIRWISE_LAYOUTS = [(1, 1), (3, 1), (4, 2), (6, 3)]

PRESETS = ("cagnet-1d", "cagnet-1.5d", "hetu", "hetu-reorder", "full")


def pairwise_overrides(row: list[str]) -> list[str]:
    """A row of ``PAIRWISE`` as overrides, without input dropout, which would disable options."""
    return [*(f"{key}={value}" for key, value in zip(OPTIONS, row)), "model.input_dropout=0"]


def preset_overrides(preset: str, replication: int) -> list[str]:
    """A preset on any layout: the layout sets the scheme, the preset sets the options of the scheme."""
    return [f"experiment={preset}", *layout_overrides(replication)]
