"""The targets of Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching" (SoCC 2020).

Each target is a row of ``CASES``: a function that fills the table.

    counts.py        what a cache has and what a partition copies, counted on the structure of a graph alone, exactly
    epochs.py        epochs by the way in which features are loaded: measured here, and simulated on the paper's GPU
    convergence.py   accuracy by epoch where every rank shuffles training nodes of its own
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from fullgnn.bench.papers.graphs import Case, cases
from fullgnn.bench.papers.pagraph import convergence, counts, epochs
from fullgnn.bench.papers.pagraph.config import Config, check
from fullgnn.bench.papers.result import Result
from fullgnn.bench.papers.target import Target, family

__all__ = ["CASES", "Config", "run"]


def _trained(cfg: Config, features: bool) -> list[Case]:
    """The graphs, of whose nodes as many train as in the paper."""
    return cases(cfg, features, cfg.data)


_counted = partial(Target, features=False)
_PARTS = ("graph", "parts")
CASES: dict[str, Callable[[Any], Result]] = {
    "graphs": _counted(("graph",), counts.graphs),
    "hits": _counted(("graph", "cache"), counts.hits),
    "accesses": _counted(("graph",), counts.accesses),
    "saved": _counted(_PARTS, counts.saved),
    "parts": _counted(_PARTS, counts.parts),
    "partition_time": _counted(_PARTS, counts.partition_time),
    "epochs": epochs.ways,
    "steps": epochs.steps,
    "shares": Target(("graph", "model", "cache"), epochs.shares, epochs.RULES, cases=_trained),
    "ablation": epochs.ablation,
    "convergence": Target(("graph", "draws", "features, shuffled"), convergence.run, cases=_trained),
}
"""What the targets of this paper count or measure, by their key ``case``."""

run = family(CASES, check)
