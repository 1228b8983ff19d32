"""Which rows the caches choose, against counts by loops over the batches, and what they are worth."""

from collections import Counter
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.distributed import World, world_of_one
from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.graph import Graph
from fullgnn.graph.datasets import rmat
from fullgnn.sampling.caches import (
    Accesses,
    CacheAll,
    CacheByCount,
    CacheByDegree,
    CacheByPresampling,
    CacheExactly,
    CacheNothing,
)
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.telemetry.meter import Meter
from tests.cases import minibatch_config
from tests.examples import example


def accesses(counts: dict[int, list[int]], row_bytes: int = 500_000) -> Accesses:
    """Five nodes: node 0 is read by three nodes, node 1 by two, nodes 2 and 4 by one (u -> v lets v read u)."""
    arcs = Graph.from_edge_index(np.array([[0, 0, 0, 1, 1, 2, 4], [1, 2, 3, 0, 2, 0, 0]]), features=np.eye(5))
    host = HostGraph(arcs.indptr, arcs.indices, None, np.eye(5), np.zeros(5), np.arange(5))
    return Accesses(host, lambda epoch: np.array(counts[epoch], np.int32), row_bytes)


def test_the_nodes_that_most_nodes_read() -> None:
    rows = [CacheByDegree(size).rows(accesses({}), 1).tolist() for size in (0, 0.4, 0.5, 1, 1.5, 2, 99, np.inf)]
    assert rows == [[], [], [0], [0, 1], [0, 1, 2], [0, 1, 2, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    assert CacheNothing().rows(accesses({}), 1).tolist() == [] and len(CacheAll().rows(accesses({}), 1)) == 5
    assert CacheByDegree(1).rows(accesses({}, row_bytes=0), 1).tolist() == [0, 1, 2, 3, 4]  # features without columns


def test_the_rows_of_a_part_alone_are_kept() -> None:
    """In the part of nodes 0, 1 and 3, nodes 1 and 3 read node 0, node 0 reads node 1, and nobody in it node 3."""
    every = accesses({0: [0, 0, 0, 1, 0], 1: [0, 0, 0, 1, 0]}, row_bytes=500_000)
    own = Accesses(every.graph, every.counts, 500_000, np.array([True, True, False, True, False]))
    assert own.nodes.tolist() == CacheAll().rows(own, 1).tolist() == [0, 1, 3] and every.nodes.tolist() == [*range(5)]
    assert own.num_readers().tolist() == [2, 1, -1, 0, -1] and every.num_readers().tolist() == [3, 2, 1, 0, 1]
    assert [CacheByDegree(size).rows(own, 1).tolist() for size in (0.5, 1, 1.5, 99)] == [
        [0],
        [0, 1],
        [0, 1, 3],
        [0, 1, 3],
    ]
    assert CacheByPresampling(1).rows(own, 1).tolist() == [0, 3] and own.room(99) == 3


def test_the_nodes_that_presampled_epochs_read() -> None:
    known = accesses({-1: [0, 9, 0, 0, 0], 0: [1, 0, 0, 2, 1]})
    assert [CacheByPresampling(size / 2).rows(known, 7).tolist() for size in range(6)] == [
        [], [3], [0, 3], [0, 3, 4], [0, 1, 3, 4], [0, 1, 2, 3, 4],
    ]  # fmt: skip
    assert CacheByPresampling(0.5, epochs=2).rows(known, 1).tolist() == [1]


def test_the_nodes_that_the_next_epochs_read() -> None:
    known = accesses({1: [5, 0, 0, 0, 1], 2: [0, 5, 0, 0, 1], 3: [0, 0, 0, 9, 8], 4: [0, 0, 0, 0, 0]})
    next_epoch, next_two = CacheExactly(1), CacheExactly(0.5, horizon=2)
    assert [next_epoch.rows(known, epoch).tolist() for epoch in (1, 2, 3, 4)] == [[0, 4], [1, 4], [3, 4], []]
    assert [next_two.rows(known, epoch).tolist() for epoch in (1, 2, 3, 4)] == [
        [0],
        [0],
        [3],
        [3],
    ]  # the same after a resume


def test_auto_takes_the_simplest_that_is_about_as_good() -> None:
    ways: dict[str, tuple[list[int], list[int], type]] = {
        "as many nodes read them": ([9, 8, 1, 0, 1], [9, 8, 1, 0, 1], CacheByDegree),
        "as in an epoch before": ([0, 0, 0, 90, 80], [0, 1, 0, 90, 80], CacheByPresampling),
        "as in no other": ([90, 80, 0, 0, 0], [0, 0, 0, 90, 80], CacheExactly),
        "too many changes": ([1, 1, 0, 0, 0], [0, 0, 0, 1, 1], CacheByDegree),
    }
    for even, odd, expected in ways.values():
        counts = {epoch: odd if epoch % 2 else even for epoch in range(10)}
        auto = CacheByCount(1)
        rows, alike = auto.rows(accesses(counts), 1), expected(1)
        assert rows.tolist() == alike.rows(accesses(counts), 1).tolist(), expected
        assert auto.horizon == getattr(alike, "horizon", None)
    for size in (0, 99):
        assert len(CacheByCount(size).rows(accesses({}), 1)) == (5 if size else 0)  # nothing is drawn for it


def test_auto_counts_further_epochs_where_few_rows_are_fetched() -> None:
    """In the first epoch the nodes that most nodes read are as good as any, in the next ones others are read."""
    first, later = [9, 9, 9, 0, 0], [0, 0, 0, 9, 9]
    few = {0: later, 1: first, **dict.fromkeys(range(2, 9), later)}
    many = {epoch: [200 * count for count in counts] for epoch, counts in few.items()}
    for counts, expected in ((few, [3, 4]), (many, [0, 1])):
        assert CacheByCount(1).rows(accesses(counts), 2).tolist() == expected


@pytest.mark.parametrize("cache", [CacheByDegree, CacheByPresampling, CacheExactly, CacheByCount])
def test_sizes_out_of_range_are_one_line(cache: type) -> None:
    for size in (-1, np.nan):
        with pytest.raises(ConfigError, match=f"cache.megabytes={size} is out of range: give 0 or more"):
            cache(size).rows(accesses({0: [0] * 5, 1: [0] * 5}), 1)
    with pytest.raises(ConfigError, match="cache.epochs=0 is out of range: give 1 or more"):
        CacheByPresampling(1, 0)
    with pytest.raises(ConfigError, match="cache.horizon=-3 is out of range: give 1 or more"):
        CacheExactly(1, -3)


def random_rows(graph: Graph, row_bytes: int) -> np.ndarray:
    """A function, which has the rows of a cache and no method ``rows``."""
    return np.arange(3)


def test_a_function_is_no_cache() -> None:
    cfg = minibatch_config("cache=all", f"cache._target_={__name__}.random_rows", "runtime.device=cpu")
    with world_of_one(cfg.runtime) as world, pytest.raises(UnsupportedError, match=r"random_rows has no method rows\("):
        set_up_sampled(cfg, world, Meter(world.device))


def test_the_example_of_the_documentation() -> None:
    at_random = example("caches").CacheAtRandom(1.5).rows(accesses({}), 1)
    assert len(at_random) == 3 and at_random.tolist() == sorted({*at_random.tolist()})


EPOCHS, SHARE = 4, 0.2
GRAPH = ["dataset=rmat", "dataset.num_nodes=400", "dataset.num_edges=4000", "dataset.num_features=3"]
WEIGHTED = [f"dataset._target_={__name__}.weighted_rmat", "sampler.fanouts=[3,2]", "sampler.weighted=true"]
SAMPLERS = {
    "uniform": ["sampler.fanouts=[3,2]"],
    "with replacement": ["sampler.fanouts=[3,2]", "sampler.replace=true"],
    "weighted": WEIGHTED,
    "clusters": ["sampler=cluster", "sampler.num_clusters=16", "sampler.group_size=2", "loader.batch_size=2"],
    "symmetric": ["sampler.fanouts=[2,2]", "dataset.symmetrize=true"],
    "layers": ["sampler=layer", "sampler.sizes=[20,40]"],
    "parts": ["sampler.fanouts=[2,2]", "loader.split=pagraph"],
    "weighted with replacement": [*WEIGHTED, "sampler.replace=true"],
}


@wraps(rmat.load)
def weighted_rmat(**keys: Any) -> Graph:
    """The graph of ``rmat`` with weights, few of which are large."""
    graph = rmat.load(**keys)
    return replace(graph, weight=np.random.default_rng(7).pareto(0.5, graph.num_edges).astype(np.float32) + 0.01)


def hits_of_epochs(world: World, keys: list[str]) -> dict[str, Any]:
    """Hits and reads of each epoch on this rank, as the loader counts them, and the reads of each row by a loop."""
    cfg = minibatch_config(*GRAPH, "loader.batch_size=30", "runtime.device=cpu", "model.hidden_channels=4", *keys)
    meter = Meter(world.device)
    job = set_up_sampled(cfg, world, meter)
    loader, counts = job.loader, []
    for epoch in range(1, EPOCHS + 1):
        meter.take()
        for _ in loader.epoch(epoch):
            pass
        counts.append(meter.take().counts)
    batches = loader.sampler
    reads = [
        Counter(node for number in range(batches.num_batches) for node in batches.sample(epoch, number).inputs.tolist())
        for epoch in range(1, EPOCHS + 1)
    ]
    loader.close()
    return {"counts": counts, "reads": reads}


def test_weighted_draws_read_other_rows(ranks) -> None:
    """So that the tests of caches below are other ones than those of uniform draws."""
    plain = [key for key in WEIGHTED if key != "sampler.weighted=true"]
    reads = [ranks(1)(hits_of_epochs, keys)[0]["reads"] for keys in (WEIGHTED, plain)]
    assert all(weighted != uniform for weighted, uniform in zip(*reads, strict=True))


def oracle(reads: list[Counter], room: int) -> int:
    """The hits of the rows that are read most often in these epochs together."""
    together: Counter = sum(reads, Counter())
    return sum(sorted(together.values(), reverse=True)[:room])


@pytest.mark.sample(8)
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_exact_hits_are_those_of_the_oracle(ranks, sampler: str, size: int) -> None:
    room = int(SHARE * 400)
    for horizon in (1, 2, 4):
        keys = [*SAMPLERS[sampler], "cache=exact", f"cache.megabytes={room * 3 * 4 / 1e6}", f"cache.horizon={horizon}"]
        for outcome in ranks(size)(hits_of_epochs, keys):
            for first in range(0, EPOCHS, horizon):
                hits = sum(counts.get("hits", 0) for counts in outcome["counts"][first : first + horizon])
                assert hits == oracle(outcome["reads"][first : first + horizon], room)
            for counts, reads in zip(outcome["counts"], outcome["reads"], strict=True):
                assert counts["input_rows"] == reads.total()
                assert counts["input_rows"] - counts["hits"] == counts["fetched_bytes"] / 12


@pytest.mark.sample(4)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_auto_fetches_little_more_than_the_best(ranks, sampler: str) -> None:
    size = 2 if sampler == "parts" else 1
    for room in (20, 80, 200, *((0, 1, 399, 400, 10_000) if sampler == "uniform" else ())):
        fetched: dict[str, list[float]] = {}
        for cache in ("degree", "presample", "exact", "auto"):
            keys = [*SAMPLERS[sampler], f"cache={cache}", f"cache.megabytes={room * 3 * 4 / 1e6}"]
            # The first epoch fills an empty cache, whichever it is.
            fetched[cache] = [
                sum(counts["fetched_bytes"] + counts["filled_bytes"] for counts in outcome["counts"][1:])
                for outcome in ranks(size)(hits_of_epochs, keys)
            ]
        for of_rank in zip(*fetched.values(), strict=True):
            assert of_rank[-1] <= 1.03 * min(of_rank), (room, fetched)


def contents(world: World, keys: list[str], epochs: list[int]) -> list[list[int]]:
    cfg = minibatch_config(*GRAPH, "loader.batch_size=30", "runtime.device=cpu", *keys)
    loader = set_up_sampled(cfg, world, Meter(world.device)).loader
    rows = []
    for epoch in epochs:
        next(loader.epoch(epoch, first=2))  # in mid-epoch
        features = loader.features  # type: ignore[attr-defined]
        rows.append(np.flatnonzero(features._slot >= 0).tolist())
    loader.close()
    return rows


@pytest.mark.sample(2)
@pytest.mark.parametrize("cache", ["degree", "presample", "exact", "auto"])
def test_a_run_that_goes_on_has_the_same_content(ranks, cache: str) -> None:
    keys = [f"cache={cache}", "cache.megabytes=0.001", *(["cache.horizon=2"] if cache == "exact" else [])]
    every = ranks(2)(contents, keys, [1, 2, 3, 4])
    for epoch in (2, 3, 4):
        for (alone,), whole in zip(ranks(2)(contents, keys, [epoch]), every, strict=True):
            assert alone == whole[epoch - 1] and alone


@pytest.mark.sample(2)
def test_every_cache_gives_the_same_curve(ranks, tmp_path: Path) -> None:
    from tests.sampling.training import run, same  # its fixture makes graphs

    results = {}
    for cache in ("none", "all", "exact", "presample", "auto"):
        keys = [*GRAPH, f"cache={cache}", *(["cache.megabytes=0.001"] if cache not in ("none", "all") else [])]
        cfg = minibatch_config(
            *keys, "train.epochs=3", "loader.batch_size=50", f"run_dir={tmp_path / cache}", "runtime.threads=1"
        )
        results[cache] = ranks(2)(run, cfg)[0]
        same(results[cache], results["none"], 0)  # to the bit
    rates = {name: result["record"]["sampling"]["hit_rate"] for name, result in results.items()}
    assert rates["none"] == 0 and rates["all"] == 1 and 0 < rates["presample"] <= rates["exact"] < 1
    assert results["all"]["record"]["sampling"]["fetched_bytes"] == 0
