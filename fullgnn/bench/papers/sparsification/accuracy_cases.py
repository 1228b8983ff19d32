"""The targets of accuracy: each is a row of ``CASES``."""

from functools import partial

from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.sparsification import accuracies, data, similarity
from fullgnn.bench.papers.sparsification.accuracy_config import Config, check
from fullgnn.bench.papers.sparsification.training import kept_ways
from fullgnn.bench.papers.target import Target, family

__all__ = ["CASES", "Config", "run"]


def cases(cfg: Config, features: bool = True) -> list[Case]:
    """The graphs, of which all codecs have taken their keys, before hours of training."""
    chosen = data.cases(cfg)
    for case in chosen:
        kept_ways(cfg, case)
    return chosen


_target = partial(Target, cases=cases)
CASES = {
    "losses": _target(("graph", "model", "features"), accuracies.losses, accuracies.COLUMNS),
    "similarity": _target(("graph", "model", "features", "weights"), similarity.run),
    "curves": _target(("graph", "model", "features"), accuracies.curves),
}
"""What these targets measure, by their key ``case``."""

run = family(CASES, check)
