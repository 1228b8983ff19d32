"""The modelled machine: a batch of the whole graph on GPUs like the paper's, by step.

    sample, gather               take the time that this machine needs for the edges that are drawn, and for the rows
                                 that are fetched, at the rates of ``draw_s`` and ``gather_s``
    transfer, decode, compute    take what the planner's model of the machine says of bytes, products and operations

What is counted in a batch of the shrunk graph is multiplied by how many times as large a batch is at full size. The
steps come one after the other.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullgnn.bench.papers.graphs import Case
from fullgnn.bench.papers.modelled import Batch, draw_s, layer_widths, modelled, row_s, waiting_s
from fullgnn.bench.papers.sparsification.config import CLUSTER, Config, Model, batch_size
from fullgnn.bench.papers.sparsification.sizes import ID_BYTES, draws_of

UPDATE_PASSES = 9
"""How many arrays as large as the parameters a step goes through, whatever its batch: Adam reads four, zeroing the
gradients takes two and adding to them three, as ``costs.trace.Operations`` counts them."""

SECTOR = 32
"""Bytes that a GPU writes at least."""

_MOST_ROWS = 1 << 16
"""Rows that are gathered at once, where the rate of that is measured."""


@dataclass(frozen=True)
class Setting:
    """What is trained."""

    case: Case
    model: str
    ranks: int = 1

    def labels(self, cfg: Config) -> tuple[str, str]:
        """The cells that name a row of a table: the graph and the model."""
        return self.case.title, cfg.models[self.model].title


def clusters_here(cfg: Config, case: Case) -> int:
    """Into how many clusters the shrunk graph is cut."""
    nodes = case.graph.num_nodes
    wanted = min(nodes, max(cfg.least_cluster_nodes, cfg.cluster_nodes * case.scale))
    return max(cfg.group_size, round(cfg.group_size * nodes / wanted))


def grows(cfg: Config, one: Setting) -> float:
    """How many times as large a batch is at full size."""
    if cfg.models[one.model].sampler != CLUSTER:
        return cfg.batch_size / batch_size(cfg, one.case)
    nodes = one.case.graph.num_nodes * cfg.group_size / clusters_here(cfg, one.case)
    return min(cfg.cluster_nodes, one.case.full.num_nodes) / nodes


def num_batches(cfg: Config, one: Setting) -> float:
    """Batches of an epoch of one rank at full size."""
    if cfg.models[one.model].sampler == CLUSTER:
        return max(1.0, one.case.full.num_nodes / cfg.cluster_nodes / one.ranks)
    return -(-cfg.kinds[one.case.dataset].train_nodes // (cfg.batch_size * one.ranks))


def simulated(cfg: Config, one: Setting, details: dict[str, Any], code_bytes: int | None = None) -> Batch:
    """A batch of the whole graph on the modelled machine.

    Args:
        details: what the benchmark has counted and measured of a batch here.
        code_bytes: of a row, where rows are compressed.
    """
    hardware, up, model = modelled(cfg.hardware), grows(cfg, one), cfg.models[one.model]
    counts, full_row = details["counts"], 4 * one.case.full.num_features
    row, inputs, edges = code_bytes or full_row, counts["input_rows"] * up, counts["sampled_edges"] * up
    decode = 0.0
    if code_bytes is not None:
        decode = hardware.op_s + inputs * (code_bytes + full_row + SECTOR * code_bytes) / hardware.copy_bytes_per_s
    drawing = up * details["steps_ms"]["sample"] / 1e3
    if model.sampler != CLUSTER:
        drawing = edges * draw_s(one.case, cfg.fanouts, cfg.batch_size, cfg.seed)
    return Batch(
        sample=drawing,
        gather=inputs * gather_s(cfg, one.case.full.num_nodes, row),
        transfer=hardware.link("exchange", 2).time_s(inputs * row + edges * ID_BYTES),
        decode=decode,
        compute=compute_s(cfg, one, details),
        waiting=waiting_s(hardware, one.ranks, details),
    )


def compute_s(cfg: Config, one: Setting, details: dict[str, Any]) -> float:
    """Seconds of the products, the reads of neighbours and the other operations of a batch of the whole graph."""
    hardware, up, model = modelled(cfg.hardware), grows(cfg, one), cfg.models[one.model]
    layers, operations = details["layers"], details["operations"]
    widths, of_weights = layer_widths(one.case, len(layers))
    num_matrices = details["parameter_bytes"] / 4 / sum(of_weights)  # of each layer
    edges = [layer["edges"] for layer in layers]
    if not any(edges) and model.sampler != CLUSTER:  # a layer that reads edges one by one does not count them
        edges = drawn_by_layer(cfg, one.case)
    fixed = min(operations["bytes"], UPDATE_PASSES * details["parameter_bytes"])
    passes = fixed + up * (operations["bytes"] - fixed)
    seconds = operations["count"] * hardware.op_s + passes / hardware.copy_bytes_per_s
    for index, (layer, num_edges) in enumerate(zip(layers, edges)):
        first = model.transforms_first
        num_rows, width = (layer["sources"], widths[index + 1]) if first else (layer["targets"], widths[index])
        has_gradient = index > 0  # the features have none
        seconds += up * 2 * num_rows * of_weights[index] * num_matrices * (2 + has_gradient) / hardware.gemm_flops_per_s
        edge_bytes = 4 * num_edges * width * (1 + (first or has_gradient))
        seconds += up * edge_bytes / hardware.gather_rate(4 * layer["sources"] * width * up)
    return seconds


def gather_s(cfg: Config, num_nodes: int, row_bytes: int) -> float:
    """Seconds in which this machine gathers a random row of so many bytes, in batches, in the order of the nodes.

    The table has ``num_nodes`` rows, or as many as ``cfg.gather_megabytes`` hold.
    """
    num_rows = max(8, min(num_nodes, int(cfg.gather_megabytes * 1e6) // row_bytes))
    table = np.ones((num_rows, row_bytes), np.uint8)
    return row_s(table, min(num_rows // 4, _MOST_ROWS), (num_rows, row_bytes))


def drawn_by_layer(cfg: Config, case: Case) -> list[float]:
    """The mean edges that each layer reads of a batch of the first epoch, the first layer's first."""
    batches = itertools.islice(draws_of(cfg, case).batches(1), cfg.batches)
    return np.mean([[hop.num_edges for hop in hops] for hops in batches], axis=0)[::-1].tolist()


def overrides(cfg: Config, one: Setting, k: int | None, gathered: bool) -> list[str]:
    """The keys of a run of ``one``, for the benchmark.

    Args:
        k: of the codec; None: the features are as they are.
        gathered: whether full features are gathered, as for a GPU, and not read where they lie.
    """
    model: Model = cfg.models[one.model]
    keys = list(model.keys)
    if model.sampler == CLUSTER:
        clusters = clusters_here(cfg, one.case)
        keys += ["sampler=cluster", f"sampler.num_clusters={clusters}", f"sampler.group_size={cfg.group_size}"]
        keys += [f"loader.batch_size={one.ranks}"]
    if k is not None:
        keys += ["codec=topk", f"codec.k={k}"]
    elif gathered:
        keys += ["cache=degree", "cache.megabytes=0"]
    return keys
