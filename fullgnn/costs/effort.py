"""How much of this machine is measured for a graph: all of it, or the part that a small graph needs.

Measuring the whole machine takes longer than many trainings of a small graph. Such a graph reads small tables only, and
shorter measurements of these give the same rates within the noise of a machine. Passes over edges one by one, and draws
of pairs, are measured only for runs that have them: compiling their kernels takes longer than measuring them.
"""

import torch

from fullgnn.config import Config
from fullgnn.costs.hardware import SMALL, WHOLE
from fullgnn.costs.statistics import GraphStatistics
from fullgnn.graph import Graph
from fullgnn.nn.contract import block_request, trial_model
from fullgnn.prepare.source import loaded_dataset
from fullgnn.tasks import takes_links

MOST_NNZ = 1_000_000
"""Non-zeros of a small graph at most: an epoch takes some 10 ms."""
MOST_TABLE_BYTES = 16 << 20
"""Bytes of the hidden features of a small graph at most, which is the largest table that is measured for one."""

EDGES, DRAWS = "edges", "draws"
"""The words in the name of a part that includes the work on single edges, and on pairs that are drawn."""


def needed_part(cfg: Config, graph: Graph | GraphStatistics) -> str:
    """The part of this machine that the prediction of a run needs: ``WHOLE``, or a name that begins with ``SMALL``."""
    nnz = graph.nnz if isinstance(graph, GraphStatistics) else graph.num_edges
    row_bytes = max(1, cfg.model.get("hidden_channels", 1)) * getattr(torch, cfg.runtime.dtype).itemsize
    if nnz > MOST_NNZ or graph.num_nodes * row_bytes > MOST_TABLE_BYTES:
        return WHOLE
    reads_edges = block_request(trial_model(cfg), cfg.optimizations).edges
    parts = [SMALL, *([EDGES] if reads_edges else []), *([DRAWS] if takes_links(cfg.task) else [])]
    return "-".join(parts)


def needed_part_of_dataset(cfg: Config) -> str:
    """``needed_part`` for the graph of ``cfg.dataset``, which this process loads and keeps."""
    return needed_part(cfg, loaded_dataset(cfg.dataset))
