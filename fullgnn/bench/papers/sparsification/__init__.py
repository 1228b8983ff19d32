"""The targets of Ma, Xu, Li and Zhong, "Accelerating training of large-scale graph neural networks through input
feature sparsification" (2024), and what goes past the paper.

Each target is a row of a table. Those of ``CASES`` are about bytes and time.

    config.py           the keys of the targets of bytes and time
    sizes.py            the graphs, the share of their features in all bytes, and hits of a cache of the same size, with
                        the codec and without
    compress.py         how long the codec takes to compress features, in how much memory
    processes.py        training in processes of its own, also from a folder whose features are prepared: memory, bytes
                        that are read, hits of caches
    machine.py          the modelled machine: a batch of the whole graph on GPUs like the paper's
    epochs.py           epochs and their steps: measured here, and simulated on that machine
    fresh.py            a process of its own, which tells its peak memory
    accuracy_config.py  the keys of the targets of accuracy
    accuracy_cases.py   the targets of accuracy
    data.py             graphs on which an accuracy can fall: words, projected to dense features
    training.py         one training, with features as a codec keeps them, and what is kept of it for later commands
    accuracies.py       accuracy that codecs cost, in pairs of runs with the same split and the same first weights, and
                        accuracy by epoch
    similarity.py       how much the outputs of the layers resemble those of full features
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from fullgnn.bench.papers.modelled import SIMULATED, bars_by_origin
from fullgnn.bench.papers.result import OURS_AND_PAPER, Result, bars
from fullgnn.bench.papers.sparsification import compress, epochs, processes, sizes
from fullgnn.bench.papers.sparsification.config import Config, cases, check
from fullgnn.bench.papers.target import Target, family

__all__ = ["CASES", "Config", "run"]

_target = partial(Target, cases=cases)
_LABELS = ("graph", "model")
_BATCHES = partial(
    bars_by_origin,
    "{0}, {1}",
    "ms of an iteration",
    columns=epochs.STEPS[:5],
    heights=["ours"],
    group=2,
    origins=[SIMULATED],
)
_LOADING = partial(bars_by_origin, "{1}", "loading, % of an iteration", heights=OURS_AND_PAPER)
_SHARES = partial(bars, "share of the features", "% of bytes", heights=OURS_AND_PAPER)
_SPEED_UPS = partial(bars_by_origin, "{1}", "speed-up of the codec", columns=[epochs.SPARSE])

CASES: dict[str, Callable[[Any], Result]] = {
    "graphs": _target(("graph", "codec"), sizes.graphs, features=False),
    "shares": _target(("graph",), sizes.shares, panels=[_SHARES], features=False),
    "compress": compress.run,
    "epochs": _target(_LABELS, epochs.epochs, panels=[_SPEED_UPS]),
    "ratios": _target((*_LABELS, "what"), epochs.ratios),
    "steps": _target((*_LABELS, "features are"), epochs.steps, epochs.STEPS, [_BATCHES]),
    "loading": _target(_LABELS, epochs.loading, panels=[_LOADING]),
    "throughput": _target((*_LABELS, "ranks", "host"), epochs.throughput),
    "cache": _target(("graph", "memory of the cache", "cache"), sizes.hits, features=False),
    "memory": _target(("graph", "what"), processes.memory),
    "prepared": _target(("graph", "training"), processes.prepared, processes.COLUMNS),
}
"""What the targets of this paper count or measure, by their key ``case``."""

run = family(CASES, check)
