"""What a rank would hold on 1, 2, 4 and 8 ranks, with block rows of equal size in the order of the dataset.

One pass over the entries counts them for 8 block rows. Those of fewer ranks are unions of these block rows, so that
nothing is counted twice; what a training epoch holds and receives is what the planner (``fullgnn/costs``) says of them.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fullgnn.config import Config
from fullgnn.costs.hardware import Hardware, load_hardware
from fullgnn.costs.predict import predict
from fullgnn.costs.statistics import counted_job, why_unplannable
from fullgnn.errors import FullGNNError, message_of
from fullgnn.graph import Graph
from fullgnn.partition import Partition
from fullgnn.partition.facts import BlockCounts, GraphFacts, NodeFacts, edge_cut
from fullgnn.partition.partition import UsedMethods
from fullgnn.partition.prepared import LazyArrays, Part, PreparedGraph
from fullgnn.report.inspection.findings import RankLoad
from fullgnn.schemes.options import SchemeOptions, replications
from fullgnn.schemes.product_layout import assign_stages, rank_sums, stage_nnz
from fullgnn.tasks import lacks_examples, learns_labels, takes_links

WORLD_SIZES = (1, 2, 4, 8)
_READS = ("reads", "reads_train")  # of a part, see ``SHARED`` in ``prepare/prepared.py``


def layouts_of(graph: Graph, cfg: Config) -> tuple[tuple[RankLoad, ...], str]:
    """What the rank with most would hold under each scheme, and why a training is not planned; empty if it is.

    Args:
        cfg: of the run, whose partition and order are not looked at.
    """
    counted = _Counted(graph)
    unplanned, hardware = _why_unplanned(graph, cfg), _hardware(cfg)
    layouts = []
    for world_size in WORLD_SIZES:
        for replication in replications(world_size):
            scheme = dict(cfg.scheme) | {"replication": replication}
            if scheme.get("fetch", "auto") == "auto" and _device(cfg) == "cpu":
                scheme["fetch"] = "stages"
            run, prepared = replace(cfg, scheme=scheme), counted.prepared(world_size // replication)
            layout, problem = _layout(run, world_size, prepared, None if unplanned else hardware)
            layouts.append(layout)
            unplanned = unplanned or problem
    return tuple(layouts), unplanned


def run_of(cfg: Config) -> str:
    """The run that is planned, in words."""
    return f"model={cfg.model['name']} task={cfg.task['name']} on {'GPUs' if _device(cfg) == 'cuda' else 'CPUs'}"


def _layout(cfg: Config, world_size: int, prepared: PreparedGraph, hardware: Hardware | None) -> tuple[RankLoad, str]:
    """One ``RankLoad``, and why it has no memory and bytes although there is ``hardware``."""
    facts, replication = prepared.facts, cfg.scheme["replication"]
    by_stage = stage_nnz(facts.block_nnz(cfg.self_loops), SchemeOptions.of(cfg.scheme).stage_order)
    several = facts.num_parts > 1
    layout = RankLoad(
        scheme="1d" if replication == 1 else "1.5d",
        world_size=world_size,
        replication=replication,
        rows=int(facts.partition.sizes.max()),
        nnz=int(rank_sums(by_stage, assign_stages(by_stage, replication)).max()),
        edge_cut=edge_cut(facts, cfg.self_loops) if several else None,
        halo_rows=max(_num_halo_rows(prepared, part) for part in range(facts.num_parts)) if several else None,
        received_bytes=None,
        tensor_bytes=None,
    )
    if hardware is None:
        return layout, ""
    try:
        predicted = predict(counted_job(cfg, world_size, prepared), hardware)
    except FullGNNError as error:
        return layout, message_of(error)
    received = sum(np.array(counts) for counts in predicted.comm_bytes_per_rank.values())
    return replace(layout, received_bytes=int(np.max(received)), tensor_bytes=predicted.peak_tensor_bytes), ""


def _num_halo_rows(prepared: PreparedGraph, number: int) -> int:
    reads, own = prepared.part(number).arrays["reads"], prepared.facts.partition.slice(number)
    first, last = np.searchsorted(reads, (own.start, own.stop))
    return len(reads) - int(last - first)


def _why_unplanned(graph: Graph, cfg: Config) -> str:
    if takes_links(cfg.task):
        return f"task={cfg.task['name']} holds pairs out of the graph: python -m fullgnn.plan plans its runs"
    lacks = lacks_examples(graph) if learns_labels(cfg.task) else []
    if lacks:
        return f"the graph has no {' and no '.join(lacks)}"
    reason = why_unplannable(cfg)
    return f"model={cfg.model['name']} {reason}" if reason else ""


def _device(cfg: Config) -> str:
    if cfg.runtime.device != "auto":
        return cfg.runtime.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _hardware(cfg: Config) -> Hardware:
    """A profile with the run's device. Its rates are not those of this machine, and no time is shown."""
    profile = load_hardware("h200x8", cfg.runtime)
    links = profile.links | {"shared": profile.links["exchange"]}
    return replace(profile, links=links, ranks_per_node=max(WORLD_SIZES), device=_device(cfg))


class _Counted:
    """A graph in 8 block rows of equal size, counted as ``prepare/arrange.py`` counts them."""

    def __init__(self, graph: Graph):
        from fullgnn.graph._csr_cpu import count_rows  # imported here, since it imports numba
        from fullgnn.report.inspection._passes_cpu import reads_of_parts

        self.graph, self.nodes = graph, NodeFacts.of(graph)
        self.partition = Partition.equal(graph.num_nodes, max(WORLD_SIZES))
        bounds, masks = self.partition.bounds, (graph.train_mask, graph.val_mask, graph.test_mask)
        self.masks = np.stack(masks)
        counts = []
        self.seen = {name: np.empty((self.partition.num_parts, graph.num_nodes), bool) for name in _READS}
        for part in range(self.partition.num_parts):
            rows = self.partition.slice(part)
            indptr = graph.indptr[rows.start : rows.stop + 1]
            indices, train = graph.indices[indptr[0] : indptr[-1]], graph.train_mask[rows]
            nnz, loops, reads = count_rows(indptr - indptr[0], indices, rows.start, train, bounds)
            counts.append((nnz[0], nnz[1], loops[0], loops[1], np.count_nonzero(self.masks[:, rows], axis=1)))
            self.seen["reads"][part], self.seen["reads_train"][part] = reads
        self.counts = BlockCounts(*(np.stack(by_part) for by_part in zip(*counts)))
        if not graph.is_symmetric:
            self.seen["columns_reads"] = reads_of_parts(graph.indptr, graph.indices, bounds)

    def prepared(self, num_parts: int) -> PreparedGraph:
        """The graph in ``num_parts`` block rows, each of which is a union of those that were counted.

        Its parts have what the planner asks for, and neither entries nor features.
        """
        graph, step = self.graph, self.partition.num_parts // num_parts
        partition, starts = Partition(self.partition.bounds[::step]), np.arange(0, self.partition.num_parts, step)

        def joined(counts: np.ndarray) -> np.ndarray:
            for axis, length in enumerate(counts.shape):
                if length == self.partition.num_parts:  # and not that of the three parts of the split
                    counts = np.add.reduceat(counts, starts, axis=axis)
            return counts

        counts = BlockCounts(**{name: joined(array) for name, array in vars(self.counts).items()})
        facts = GraphFacts(
            nodes=self.nodes,
            num_nodes=graph.num_nodes,
            num_edges=graph.num_edges,
            num_classes=graph.num_classes,
            symmetric=graph.is_symmetric,
            weighted=graph.weight is not None,
            partition=partition,
            counts=counts,
            methods=UsedMethods("contiguous", "none", num_parts),
            load_time_s=0.0,
            prepare_time_s=0.0,
        )

        def part(number: int) -> Part:
            union = slice(number * step, (number + 1) * step)
            make: dict[str, Callable[[], Any]] = {"masks": lambda: self.masks[:, partition.slice(number)]}
            for name, seen in self.seen.items():
                make[name] = partial(_any_read, seen[union])
            return Part(LazyArrays(make))

        return PreparedGraph(facts, part)


def _any_read(seen: np.ndarray) -> np.ndarray:
    """(num_read,) int32, the ascending columns in which any of (num_parts, num_nodes) bool is True."""
    return np.flatnonzero(seen.any(axis=0)).astype(np.int32)
