"""The targets of Ma, Xu, Li and Zhong, "Accelerating training of large-scale graph neural networks through input
feature sparsification" (2024), and what goes past the paper.

Each target is a row of a table: a function that fills the page. Those of ``CASES`` are about bytes and time.

    config.py           the keys of the targets of bytes and time
    sizes.py            the graphs, the share of their features in all bytes, and hits of a cache of the same size, with
                        the codec and without
    compress.py         how long the codec takes to compress features, in how much memory
    memory.py           memory of the host, with the codec and without
    prepared.py         training from a folder whose features are prepared: memory, bytes that are read, hits of caches
    machine.py          the modelled machine: a batch of the whole graph on GPUs like the paper's
    epochs.py           epochs and their steps: measured here, and simulated on that machine
    fresh.py            processes of their own, which tell their peak memory
    apart.py            what trainings in such processes share: the graph in a folder, and overrides
    accuracy_config.py  the keys of the targets of accuracy
    accuracy_cases.py   the targets of accuracy
    data.py             graphs on which an accuracy can fall: words, projected to dense features
    training.py         one training, with features as a codec keeps them, and what is kept of it for later commands
    losses.py           accuracy that codecs cost, in pairs of runs with the same split and the same first weights
    similarity.py       how much the outputs of the layers resemble those of full features
    curves.py           accuracy by epoch
"""

from collections.abc import Callable

from fullgnn.config.keys import check_choices
from fullgnn.reproduce.result import Result
from fullgnn.reproduce.sparsification import compress, epochs, memory, prepared, sizes
from fullgnn.reproduce.sparsification.config import Config, check

CASES: dict[str, Callable[[Config], Result]] = {
    "graphs": sizes.graphs,
    "shares": sizes.shares,
    "compress": compress.run,
    "epochs": epochs.epochs,
    "ratios": epochs.ratios,
    "steps": epochs.steps,
    "loading": epochs.loading,
    "throughput": epochs.throughput,
    "cache": sizes.hits,
    "memory": memory.run,
    "prepared": prepared.run,
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
