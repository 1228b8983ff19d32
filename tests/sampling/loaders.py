"""Helpers that test_workers.py shares with other test modules."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fullgnn.graph import Graph, Propagation
from fullgnn.graph.labels import LabelFacts
from fullgnn.sampling.blocks import BlockMaker
from fullgnn.sampling.features import FeatureSource
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.loader import Loader, Minibatch
from fullgnn.sampling.neighbors import NeighborSampler
from fullgnn.sampling.sample import BatchSampler
from fullgnn.sampling.samplers import NeighborBatches
from fullgnn.sampling.workers import Workers, slot_type
from fullgnn.schemes import BlockRequest
from fullgnn.tasks import MultiClass
from fullgnn.telemetry.meter import Meter
from tests.sampling.neighbors import random_graph, random_weights
from tests.sampling.training import MODELS, case, graph_files, run, same  # noqa: F401  # graph_files is a fixture

CPU, NUM_NODES, NUM_FEATURES = torch.device("cpu"), 900, 7
NEEDS = BlockRequest((Propagation("row", self_loops=False), Propagation("sym", self_loops=True)))


@pytest.fixture(scope="module")
def graph() -> Graph:
    indptr, indices = random_graph(NUM_NODES, 14)
    rng = np.random.default_rng(8)
    return Graph(
        indptr.astype(np.int32),
        indices,
        rng.standard_normal((NUM_NODES, NUM_FEATURES)).astype(np.float32),
        rng.integers(0, 4, NUM_NODES),
        *(rng.random((3, NUM_NODES)) < np.array([[0.4], [0.0], [0.0]])),
        num_classes=4,
        weight=random_weights(indptr) + 0.1,
    )


def batches_of(graph: Graph, weighted: bool = False) -> BatchSampler:
    host = HostGraph.of(graph, NEEDS, "float32")
    drawing = NeighborSampler(host.indptr, host.indices, [5, 3], host.weight, False, weighted, 3, keep_places=True)
    sampler = NeighborBatches(host, drawing)
    return BatchSampler(host, sampler, MultiClass(LabelFacts(4, num_train=360)), 50, 3)


def make_workers(
    batches: BatchSampler,
    num_workers: int = 2,
    num_slots: int = 2,
    num_rows: int = 900,
    num_bytes: int = 1 << 20,
    features: FeatureSource | None = None,
) -> Workers:
    features = features or plain(batches)
    rows = features.rows
    slot = slot_type(num_rows, rows.shape[1], rows.dtype, num_bytes)
    return Workers(batches.sample, features, slot, num_workers, num_slots, rank=7, timeout_s=1.5)


def plain(batches: BatchSampler) -> FeatureSource:
    return FeatureSource(batches.graph.features, CPU)


def loader_of(batches: BatchSampler, workers: Workers | None, features: FeatureSource | None = None) -> Loader:
    maker = BlockMaker(batches.graph, NEEDS, torch.float32, CPU)
    return Loader(batches, features or plain(batches), maker, Meter(CPU), workers)


def content(batch: Minibatch) -> list[torch.Tensor]:
    """All numbers of a batch, copied."""
    held = [batch.x, batch.targets, torch.tensor(batch.total)]
    for block in batch.blocks:
        held += [block.source_id, block.own_id]
        held += [block.product(kind).spmm(torch.ones(len(block.source_id), 1)) for kind in NEEDS.propagations]
    return [tensor.clone() for tensor in held]


def same_batches(batches: list[list[torch.Tensor]], other: list[list[torch.Tensor]]) -> bool:
    return len(batches) == len(other) and all(
        torch.equal(a, b) for first, second in zip(batches, other) for a, b in zip(first, second, strict=True)
    )


def children() -> set[int]:
    return {int(pid) for pid in Path("/proc/self/task").joinpath(str(os.getpid()), "children").read_text().split()}


def held() -> tuple[int, int, int, int]:
    """What this process holds: children, open files, mappings, and files of shared memory."""
    maps = Path("/proc/self/maps").read_text().count("\n")
    return len(children()), len(os.listdir("/proc/self/fd")), maps, len(os.listdir("/dev/shm"))
