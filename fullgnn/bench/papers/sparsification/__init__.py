"""The targets of Ma, Xu, Li and Zhong, "Accelerating training of large-scale graph neural networks through input
feature sparsification" (2024), and what goes past the paper.

Those of ``CASES`` are about bytes and time.

    sizes.py        the graphs, the share of their features in all bytes, and hits of a cache of the same size, with the
                    codec and without
    epochs.py       epochs and their steps: measured here, and simulated on GPUs like the paper's
    processes.py    training in processes of its own, also from a folder whose features are prepared, and the
                    compressing of a file: memory, bytes that are read, hits of caches, time
    accuracy.py     the targets of accuracy: what codecs cost, accuracy by epoch, and how much the outputs of the layers
                    resemble those of full features
    training.py     graphs on which an accuracy can fall, what codecs keep of their features, one training with them,
                    and what is kept of it for later commands
"""

from functools import partial

from fullgnn.bench.papers.batches import bars_by_origin
from fullgnn.bench.papers.result import OURS_AND_PAPER, bars
from fullgnn.bench.papers.sparsification import epochs, processes, sizes
from fullgnn.bench.papers.target import Target

__all__ = ["CASES"]

_target = partial(Target, keys=sizes.SparsificationKeys, check=sizes.check_ratios, cases=sizes.sparse_cases)
_counted = partial(_target, cases=partial(sizes.sparse_cases, features=False))
_LABELS = ("graph", "model")
_LOADING = partial(bars_by_origin, "{1}", "loading, % of an iteration", heights=OURS_AND_PAPER)
_SHARES = partial(bars, "share of the features", "% of bytes", heights=OURS_AND_PAPER)
_SPEED_UPS = partial(bars_by_origin, "{1}", "speed-up of the codec", columns=[sizes.SPARSE])

CASES = {
    "graphs": _counted(("graph", "codec"), sizes.graphs),
    "shares": _counted(("graph",), sizes.shares, panels=[_SHARES]),
    "compress": _target(("graph", "codec"), finish=processes.compress, cases=lambda cfg: []),
    "epochs": _target(_LABELS, epochs.epochs, panels=[_SPEED_UPS]),
    "ratios": _target((*_LABELS, "what"), epochs.ratios),
    "steps": _target((*_LABELS, "features are"), epochs.steps, epochs.STEPS),
    "loading": _target(_LABELS, epochs.loading, panels=[_LOADING]),
    "throughput": _target((*_LABELS, "ranks", "host"), epochs.throughput),
    "cache": _counted(("graph", "memory of the cache", "cache"), sizes.hits),
    "memory": _target(("graph", "what"), processes.memory),
    "prepared": _target(("graph", "training"), processes.prepared, processes.COLUMNS),
}
"""What the targets of this paper count or measure, by their key ``case``."""
