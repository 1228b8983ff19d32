"""Encoded and cached features: what a batch reads is what the codec keeps, whatever is cached."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from fullgnn.distributed import world_of_one
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.sampling.caches import cache_by_degree, cache_nothing
from fullgnn.sampling.codecs import BFloat16, Codec, Unencoded
from fullgnn.sampling.features import FeatureStore
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.telemetry.meter import Meter
from tests.cases import dense_graph, minibatch_config
from tests.sampling.test_training import MODELS, case, graph_files, run, same  # noqa: F401  # graph_files is a fixture
from tests.sampling.test_workers import batches_of, content, graph, loader_of, make_workers, same_batches  # noqa: F401
from tests.test_extending import example

CPU = torch.device("cpu")
CACHED = {"nothing": [], "some": [0, 3, 7, 500, 899], "all": range(900)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cached", CACHED)
@pytest.mark.parametrize("codec", [Unencoded(), BFloat16()], ids=["plain", "bfloat16"])
def test_assembled_features_are_those_that_the_codec_keeps(codec: Codec, cached: str, dtype: torch.dtype) -> None:
    features = torch.randn(900, 5, dtype=dtype, generator=torch.Generator().manual_seed(3))
    rows = codec.encode(features.numpy())
    assert rows.itemsize == (2 if isinstance(codec, BFloat16) else features.element_size())
    store = FeatureStore(rows, codec, np.array(CACHED[cached], np.int64), dtype, CPU)
    kept = features.bfloat16().to(dtype) if isinstance(codec, BFloat16) else features
    for inputs in (np.array([0, 2, 3, 10, 899]), np.arange(900, dtype=np.int32), np.array([4]), np.array([], np.int64)):
        fetched = store.fetched(inputs)
        assert fetched.tolist() == [node for node in inputs.tolist() if node not in CACHED[cached]]
        found = store.assemble(inputs, torch.from_numpy(rows[fetched]))
        assert found.dtype == dtype and torch.equal(found, kept[inputs])


def test_words_that_are_there_or_not_stay_exact() -> None:
    features = np.random.default_rng(0).integers(0, 2, (50, 9)).astype(np.float32)
    assert torch.equal(
        BFloat16().decode(torch.from_numpy(BFloat16().encode(features)), torch.float32), torch.tensor(features)
    )


def test_the_nodes_that_most_nodes_read_are_cached() -> None:
    arcs = Graph.from_edge_index(np.array([[0, 0, 0, 1, 1, 2, 4], [1, 2, 3, 0, 2, 0, 0]]), features=np.eye(5))
    # An arc u -> v lets v read u: node 0 is read by three, node 1 by two, nodes 2 and 4 by one.
    assert [cache_by_degree(arcs, 500_000, size).tolist() for size in (0, 0.4, 0.5, 1, 1.5, 2, 99)] == [
        [], [], [0], [0, 1], [0, 1, 2], [0, 1, 2, 4], [0, 1, 2, 3, 4],
    ]  # fmt: skip
    assert cache_nothing(arcs, 4).tolist() == []
    at_random = example("caches").cache_at_random(arcs, 500_000, 1.5)
    assert len(at_random) == 3 and at_random.tolist() == sorted(set(at_random.tolist()))
    with pytest.raises(ConfigError, match="cache.megabytes=-1 is out of range: give 0 or more"):
        cache_by_degree(arcs, 4, -1)


@pytest.mark.parametrize("codec", [Unencoded(), BFloat16()], ids=["plain", "bfloat16"])
@pytest.mark.parametrize("num_rows", [900, 40])
def test_workers_fetch_what_is_not_cached(graph: Graph, codec: Codec, num_rows: int) -> None:  # noqa: F811
    batches = batches_of(graph)
    rows = codec.encode(batches.graph.features)
    stores = {
        name: FeatureStore(rows, codec, np.array(nodes, np.int64), torch.float32, CPU) for name, nodes in CACHED.items()
    }
    wanted = [content(batch) for batch in loader_of(batches, None, stores["nothing"]).epoch(1)]
    for store in stores.values():
        workers = make_workers(batches, num_rows=num_rows, features=store)
        with closing(loader_of(batches, workers, store)) as loader:
            for epoch_of in (loader, loader_of(batches, None, store)):
                assert same_batches([content(batch) for batch in epoch_of.epoch(1)], wanted)


KEYS = {
    "some cached": ["cache=degree", "cache.megabytes=1e-4"],
    "all cached": ["cache=degree"],
    "bfloat16": ["codec=bfloat16"],
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", KEYS)
def test_any_number_of_ranks_gives_the_same_curve(
    ranks,
    tmp_path: Path,
    graph_files: dict[str, Path],  # noqa: F811
    name: str,
) -> None:
    keys = [*MODELS["sage"], *KEYS[name]]
    results = [ranks(size)(run, case(graph_files["directed"], tmp_path / f"p{size}", *keys))[0] for size in (1, 3)]
    same(*results, 1e-9)
    plain = ranks(1)(run, case(graph_files["directed"], tmp_path / "plain", *MODELS["sage"]))[0]
    found, before = (one["record"]["sampling"] for one in (results[0], plain))
    memory = [one["record"]["peak_tensor_bytes"] for one in (results[0], plain)]
    assert before["fetched_bytes"] > 0
    if name == "bfloat16":
        assert results[0]["loss"] != plain["loss"] and found["fetched_bytes"] == before["fetched_bytes"] / 4
        np.testing.assert_allclose(results[0]["loss"], plain["loss"], rtol=0.02)
    else:
        same(results[0], plain, 0)  # to the bit
        fetched = found["fetched_bytes"]
        assert fetched == 0 if name == "all cached" else 0 < fetched < before["fetched_bytes"]
        all_rows = 8 * dense_graph("directed").graph().features.size
        kept = memory[0] - memory[1]
        assert kept == all_rows if name == "all cached" else 0 < kept < all_rows
    assert found["codec"]["name"] in ("none", "bfloat16") and found["cache"]["name"] in ("none", "degree")


def test_slots_are_as_wide_as_encoded_rows() -> None:
    found = {}
    for codec in ("none", "bfloat16"):
        cfg = minibatch_config(f"codec={codec}", "loader.num_workers=1", "runtime.device=cpu")
        with world_of_one(cfg.runtime) as world:
            with closing(set_up_sampled(cfg, world, Meter(CPU)).training.loader) as loader:
                (found[codec],) = (size for _, size in loader._arrivals._workers.memory())
    assert found["bfloat16"] < 0.8 * found["none"]
