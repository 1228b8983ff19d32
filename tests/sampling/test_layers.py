"""Layer-wise sampling against sets and dictionaries in loops."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.distributed import World
from fullgnn.errors import ConfigError
from fullgnn.graph import Propagation
from fullgnn.kernels.dropout.philox import philox_4x32
from fullgnn.sampling.blocks import BlockMaker
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.layers import LAYERS, LayerBatches, inclusion, layer
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.schemes import BlockRequest
from fullgnn.tasks.draws import stream_key
from fullgnn.telemetry.meter import Meter
from tests.cases import dense_graph, minibatch_config
from tests.sampling.pagraph import random_graph
from tests.sampling.training import case, run, same

SEED = 5


def host(indptr: np.ndarray, indices: np.ndarray, train: np.ndarray, weight: np.ndarray | None = None) -> HostGraph:
    num_nodes = len(indptr) - 1
    empty = np.zeros((num_nodes, 0), np.float32)
    return HostGraph(indptr.astype(np.int64), indices, weight, empty, np.zeros(num_nodes), train)


def bisected(weights: list[int], size: int) -> list[float]:
    """min(1, c w), with c found by bisection."""
    if len(weights) <= size:
        return [1.0] * len(weights)
    low, high = 0.0, float(size)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(min(1, middle * w) for w in weights) < size else (low, middle)
    return [min(1, high * w) for w in weights]


@pytest.mark.parametrize("size", [1, 2, 5, 30])
def test_probabilities_add_up_to_the_size(size: int) -> None:
    random = np.random.default_rng(0)
    for weights in ([1] * 40, [100, 100, 1, 1, 1, 1, 1], [7], [], random.zipf(1.5, 500).clip(max=10**6).tolist()):
        chances = inclusion(np.array(weights, np.int64), size)
        np.testing.assert_allclose(chances, bisected(weights, size), rtol=1e-9)
        assert sum(chances) == pytest.approx(min(size, len(weights)))


def uniform(node: int, hop: int, epoch: int) -> float:
    words = philox_4x32(np.array([[node, 0, hop, epoch]]), np.array(stream_key(SEED, LAYERS)))[0]
    return ((int(words[0]) << 21) ^ (int(words[1]) >> 11)) / 2**53


def expected(graph: HostGraph, own: set[int], every: set[int], sizes: list[int], epoch: int) -> list[dict[str, Any]]:
    """The sources of each hop, and its edges as (target, source) -> factor; a graph may have an arc once only."""
    hops = []
    for hop, size in enumerate(sizes):
        read = {node: graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist() for node in every}
        candidates = sorted({source for nodes in read.values() for source in nodes})
        arcs = [sum(nodes.count(source) for nodes in read.values()) for source in candidates]
        chances = dict(zip(candidates, bisected(arcs, size)))
        kept = {source for source in candidates if uniform(source, hop, epoch) < chances[source]}
        edges = {(node, source): 1 / chances[source] for node in own for source in read[node] if source in kept}
        own = own | {source for _, source in edges}
        every = every | kept
        hops.append({"sources": sorted(own), "edges": edges})
    return hops


@pytest.mark.parametrize("sizes", [[4], [3, 5], [50, 2, 9]])
@pytest.mark.parametrize("parts", [1, 3])
def test_hops_are_those_of_the_definition(sizes: list[int], parts: int) -> None:
    for seed, degree in ((0, 1.5), (1, 5.0)):
        indptr, indices = random_graph(100, degree, seed)
        graph = host(indptr, indices, np.arange(0, 100, 2))
        sampler = LayerBatches(graph, sizes, SEED)
        for epoch, batch in ((1, graph.train[::3]), (2, graph.train), (3, graph.train[:1]), (4, graph.train[:0])):
            for rank in range(parts):
                own = sampler.part(batch, rank, parts)
                hops = sampler.sample(own, epoch, batch)
                wanted = expected(graph, {*own.tolist()}, {*batch.tolist()}, sizes, epoch)
                targets = own
                for hop, definition in zip(hops, wanted, strict=True):
                    assert hop.sources.tolist() == definition["sources"]
                    assert hop.sources[hop.target_index].tolist() == targets.tolist()
                    rows = np.repeat(targets, np.diff(hop.indptr))
                    pairs = zip(rows.tolist(), hop.sources[hop.indices].tolist(), strict=True)
                    assert dict(zip(pairs, hop.factors.tolist())) == pytest.approx(definition["edges"], rel=1e-9)
                    targets = hop.sources


def test_a_product_has_the_expected_value_of_the_whole_one() -> None:
    """The mean over many epochs, in units of its standard error; weights are those of the edges."""
    indptr, indices = random_graph(60, 6.0, 3)
    weight = np.random.default_rng(1).random(len(indices)) + 0.5
    graph = host(indptr, indices, np.arange(20), weight)
    dense = np.zeros((60, 60))
    for node in range(60):
        dense[node, indices[indptr[node] : indptr[node + 1]]] = weight[indptr[node] : indptr[node + 1]]
    plain = Propagation("none", False)
    maker = BlockMaker(graph, BlockRequest(propagations=(plain,)), torch.float64, torch.device("cpu"))
    x = torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    products = []
    for epoch in range(600):
        (hop,) = LayerBatches(graph, [12], SEED).sample(graph.train, epoch)
        (block,) = maker.blocks([hop], graph.train)
        products.append(block.product(plain).spmm(x[torch.from_numpy(hop.sources).long()]).numpy())
    mean, error = np.mean(products, 0), np.std(products, 0) / np.sqrt(len(products)) + 1e-12
    assert np.abs((mean - (dense @ x.numpy())[:20]) / error).max() < 5
    assert np.std(products) > 0.1


SIZES = ["sampler=layer", "sampler.sizes=[6,9]"]
MODELS = {
    "sage": ["model=sage"],
    "gcn": ["model=gcn", "optimizer=sgd", "optimizer.lr=0.3"],
    "gat": ["model=gat", "model.heads=2"],
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", ["directed", "weighted"])
@pytest.mark.parametrize("model", MODELS)
def test_any_number_of_ranks_gives_the_same_curve(
    ranks,
    tmp_path: Path,
    graph_files: dict[str, Path],
    kind: str,
    model: str,
) -> None:
    ways = {"1": (1, []), "2": (2, []), "3": (3, ["loader.num_workers=1", "cache=exact", "cache.megabytes=1e-4"])}
    results = [
        ranks(size)(run, case(graph_files[kind], tmp_path / name, *MODELS[model], *SIZES, *more))[0]
        for name, (size, more) in ways.items()
    ]
    for other in results[1:]:
        same(results[0], other, 1e-9)


@pytest.mark.parametrize("kind", ["directed", "weighted"])
def test_layers_that_hold_all_neighbours_are_all_neighbours(
    tmp_path: Path,
    ranks,
    graph_files: dict[str, Path],
    kind: str,
) -> None:
    every = ["sampler=layer", "sampler.sizes=[1000,1000]"], ["sampler.fanouts=[-1,-1]"]
    by_layer, by_fanout = (
        ranks(1)(run, case(graph_files[kind], tmp_path / str(turn), "model=gcn", *keys))[0]
        for turn, keys in enumerate(every)
    )
    same(by_layer, by_fanout, 1e-12)


def reads_of(world: World, keys: list[str]) -> int:
    job = set_up_sampled(minibatch_config("runtime.device=cpu", *keys), world, Meter(world.device))
    sampler = job.loader.sampler
    return sum(int(sampler.counts(epoch).sum()) for epoch in (1, 2))


def test_it_is_divided_as_pagraph_does(ranks) -> None:
    """Every rank reads what its part holds, which is checked in each batch."""
    keys = ["dataset=rmat", "dataset.num_nodes=400", "dataset.num_edges=2000", "loader.batch_size=60", *SIZES]
    assert min(ranks(3)(reads_of, [*keys, "loader.split=pagraph"])) > 0


def test_sizes_out_of_range_are_one_line() -> None:
    graph = dense_graph("directed").graph()
    arrays = host(graph.indptr, graph.indices, np.flatnonzero(graph.train_mask))
    with pytest.raises(
        ConfigError, match=r"sampler.sizes has 1 numbers, .* 2 times: give one for each, as in .*=\[7,2400\]"
    ):
        layer(arrays, 2, 0, [7])
    with pytest.raises(ConfigError, match=r"sampler.sizes=\[5, 0\] is out of range: each must be at least 1"):
        layer(arrays, 2, 0, [5, 0])
    assert layer(arrays, 0, 0, []).sample(arrays.train, 1) == []
