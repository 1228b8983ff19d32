"""The targets of Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching" (SoCC 2020).

counts.py   the keys; what a cache has and what a partition copies, counted on the structure of a graph alone
epochs.py   epochs by the way in which features are loaded: measured here, and simulated on the paper's GPU; and
            accuracy by epoch where every rank shuffles training nodes of its own
"""

from functools import partial

from fullgnn.bench.papers.graphs import cases
from fullgnn.bench.papers.pagraph import counts, epochs
from fullgnn.bench.papers.pagraph.counts import PagraphKeys, check
from fullgnn.bench.papers.target import Target

__all__ = ["CASES"]

_counted = partial(Target, cases=partial(cases, features=False), keys=PagraphKeys, check=check)
# The graphs with features, of whose nodes as many train as in the paper.
_trained = partial(Target, cases=lambda cfg: cases(cfg, data=cfg.data), keys=PagraphKeys, check=check)
_PARTS, _DRAWS = ("graph", "parts"), ("graph", "model", "draws")
_ACCESSES = {"read again": "%", "most often": "times", "reads": "x the nodes"}
_SAVED = {"rows on the device": "%", "all reads": "GB", "saved": "%"}
_COPIES = {"copies": "%", "largest part": "x the mean", "hits by degree": "%", "reads outside": ""}
_TIMES = {"time": "s", "training nodes a second": "", "copies": "%"}
_REACHED = {"accuracy": "%", "spread": "points", "epochs": "", "time": "s"}

CASES = {
    "graphs": _counted(("graph",), counts.graphs),
    "hits": _counted(("graph", "cache"), counts.hits),
    "accesses": _counted(("graph",), counts.accesses, _ACCESSES),
    "saved": _counted(_PARTS, counts.saved, _SAVED),
    "parts": _counted(_PARTS, counts.parts, _COPIES),
    "partition_time": _counted(_PARTS, counts.partition_time, _TIMES),
    "epochs": _trained(_DRAWS, epochs.ways, epochs.WAYS, finish=epochs.finish_ways),
    "steps": _trained((*_DRAWS, "features"), epochs.steps, epochs.STEPS + epochs.SHARES, finish=epochs.draw_steps),
    "shares": _trained(("graph", "model", "cache"), epochs.shares, epochs.RULES),
    "ablation": _trained(_DRAWS, epochs.ablation, epochs.STAGES, finish=epochs.finish_ablation),
    "convergence": _trained(("graph", "draws", "features, shuffled"), epochs.convergence, _REACHED),
}
"""What the targets of this paper count or measure, by their key ``case``."""
