"""The targets of Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching" (SoCC 2020).

Each target is a row of ``CASES``: a function that fills the table.

    counts.py        what a cache has and what a partition copies, counted on the structure of a graph alone, exactly
    epochs.py        epochs by the way in which features are loaded: measured here, and simulated on the paper's GPU
    convergence.py   accuracy by epoch where every rank shuffles training nodes of its own
"""

from collections.abc import Callable

from fullgnn.config.keys import check_choices
from fullgnn.reproduce.pagraph import convergence, counts, epochs
from fullgnn.reproduce.pagraph.config import Config, check
from fullgnn.reproduce.result import Result

CASES: dict[str, Callable[[Config], Result]] = {
    "graphs": counts.graphs,
    "hits": counts.hits,
    "accesses": counts.accesses,
    "saved": counts.saved,
    "parts": counts.parts,
    "partition_time": counts.partition_time,
    "epochs": epochs.ways,
    "steps": epochs.steps,
    "shares": epochs.shares,
    "ablation": epochs.ablation,
    "convergence": convergence.run,
}
"""What the targets of this paper count or measure, by their key ``case``."""


def run(cfg: Config) -> Result:
    """Run the case of ``cfg``.

    Raises:
        ConfigError: there is no such case, or a number is out of range.
    """
    check_choices("case", [cfg.case], CASES)
    check(cfg)
    return CASES[cfg.case](cfg)
