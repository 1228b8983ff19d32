"""The tables and figures of Miao et al. 2023 (Hetu).

orders.py       tables 2 and 3, figures 5 and 8: blocks and graphs, and what orders do to products and the cache
epochs.py       tables 4 and 5, figures 9 and 10: the time of an epoch
convergence.py  figure 7: the same curves as a plain GCN
"""

from functools import partial

from fullgnn.bench.papers.graphs import cases
from fullgnn.bench.papers.hetu import convergence, epochs, orders
from fullgnn.bench.papers.result import OURS_AND_PAPER, bars
from fullgnn.bench.papers.target import Target
from fullgnn.bench.papers.trainings import EPOCH, SPMM, measuring

__all__ = ["CASES"]

_structure = partial(Target, cases=partial(cases, features=False))
_timed = partial(Target, cases=epochs.thin_cases, around=measuring)
_OF, _LAYOUTS = ("graph", "of"), ("graph", "layout")
_BLOCKS = partial(bars, "", "blocks", columns=("block rows", "blocks per rank"), heights=OURS_AND_PAPER)
_GAINS = [partial(epochs.by_layout, of) for of in (SPMM, EPOCH)]

CASES = {
    "table2": Target(("scheme",), columns=orders.BLOCK_COLUMNS, panels=[_BLOCKS], finish=orders.schemes),
    "table3": Target(_OF, orders.statistics, orders.STATISTICS, finish=orders.draw_densities),
    "table4": _timed(_LAYOUTS, epochs.libraries, finish=epochs.finish_libraries, keys=epochs.HetuTable4Keys),
    "table5": Target(_OF, epochs.thresholds, finish=epochs.draw_thresholds),
    "fig5": _structure(("what", "block"), orders.orders_of_blocks, finish=orders.say_facts, keys=orders.Figure5Keys),
    "fig7": Target(_OF, finish=convergence.convergence),
    "fig8": _structure(_OF, orders.orders, finish=orders.draw_orders, keys=orders.OrdersKeys),
    "fig9": _timed(("graph", "scheme", "of"), finish=epochs.orders_by_scheme, keys=orders.OrdersKeys),
    "fig10": Target((*_LAYOUTS, "of"), epochs.block_sparse, (epochs.OFF, epochs.ON), _GAINS, epochs.say_links),
}
"""What the targets of this paper count or measure."""
