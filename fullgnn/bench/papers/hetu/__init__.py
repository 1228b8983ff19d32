"""The tables and figures of Miao et al. 2023 (Hetu).

orders.py       tables 2 and 3, figures 5 and 8: blocks and graphs, and what orders do to products and the cache
epochs.py       tables 4 and 5, figures 9 and 10: the time of an epoch
convergence.py  figure 7: the same curves as a plain GCN
"""

from functools import partial

from fullgnn.bench.papers.graphs import cases
from fullgnn.bench.papers.hetu import convergence, epochs, orders
from fullgnn.bench.papers.result import OURS_AND_PAPER, bars
from fullgnn.bench.papers.target import Target, no_graphs
from fullgnn.bench.papers.trainings import EPOCH, SPMM, measuring

__all__ = ["CASES"]

_structure = partial(cases, features=False)
_BLOCKS = partial(bars, "", "blocks", columns=("block rows", "blocks per rank"), heights=OURS_AND_PAPER)

CASES = {
    "table2": Target(
        ("scheme",), columns=orders.BLOCK_COLUMNS, panels=[_BLOCKS], finish=orders.schemes, cases=no_graphs
    ),
    "table3": Target(("graph", "of"), orders.statistics, orders.STATISTICS, [orders.densities]),
    "table4": Target(
        ("graph", "layout"),
        epochs.libraries,
        finish=epochs.finish_libraries,
        cases=epochs.thin_cases,
        around=measuring,
        keys=epochs.HetuTable4Keys,
    ),
    "table5": Target(("graph", "of"), epochs.thresholds, finish=epochs.draw_thresholds),
    "fig5": Target(
        ("what", "block"), orders.orders_of_blocks, finish=orders.say_facts, cases=_structure, keys=orders.Figure5Keys
    ),
    "fig7": Target(("graph", "of"), finish=convergence.convergence),
    "fig8": Target(("graph", "of"), orders.orders, finish=orders.draw_orders, cases=_structure, keys=orders.OrdersKeys),
    "fig9": Target(
        ("graph", "scheme", "of"), finish=epochs.orders_by_scheme, cases=epochs.thin_cases, keys=orders.OrdersKeys
    ),
    "fig10": Target(
        ("graph", "layout", "of"),
        epochs.block_sparse,
        (epochs.OFF, epochs.ON),
        [epochs.by_layout(SPMM), epochs.by_layout(EPOCH)],
        epochs.say_links,
    ),
}
"""What the targets of this paper count or measure."""
