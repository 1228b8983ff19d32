"""The targets of feature sparsification about bytes, on tiny graphs, against counts by loops."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.bench.papers.config import load_target, run
from fullgnn.bench.papers.result import Result
from fullgnn.bench.papers.sparsification import processes
from fullgnn.bench.papers.sparsification.fresh import FreshCall, call_fresh
from fullgnn.bench.papers.sparsification.processes import compressed
from fullgnn.bench.papers.sparsification.sizes import SparsificationKeys, sparse_cases
from fullgnn.codecs import Features
from fullgnn.codecs.topk import TopK
from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.sampling.batches import epoch_order
from fullgnn.sampling.neighbors import NeighborSampler

MAG = "mag240m-like"
TINY = ["device=cpu", "nproc=1", "threads=1", "data_root=null", "scale=0.00002", f"datasets=[{MAG}]"]


def target(name: str, *own: str) -> SparsificationKeys:
    return load_target(f"sp_{name}", *TINY, *own)


def result(name: str, *own: str) -> Result:
    return run(f"sp_{name}", target(name, *own))


def counted(cfg: SparsificationKeys, epoch: int) -> tuple[Counter, int, int]:
    """How often the batches of an epoch read each node, the edges that they draw, and how many they are."""
    (case,) = sparse_cases(cfg, features=False)
    graph, reads, edges = case.graph, Counter[int](), 0
    sampler = NeighborSampler(graph.indptr.astype(np.int64), graph.indices, [15, 10, 5], seed=0)
    order = epoch_order(np.flatnonzero(graph.train_mask), 0, epoch)
    batches = [np.sort(order[first : first + 8]) for first in range(0, len(order), 8)]
    for batch in batches:
        hops = sampler.sample(batch, epoch)
        reads.update(hops[-1].sources.tolist())
        edges += sum(len(hop.indices) for hop in hops)
    return reads, edges, len(batches)


def test_table1_has_the_papers_sizes_and_ratios() -> None:
    cfg = target("table1")
    (row,) = run("sp_table1", cfg).rows
    (case,) = sparse_cases(cfg, features=False)
    assert (case.graph.num_nodes, int(case.graph.train_mask.sum())) == (4883, 22)
    assert row.cells["nodes"].ours == pytest.approx(4883 / 0.00002) and row.cells["nodes"].paper == 244160499
    assert row.cells["edges"].ours == pytest.approx(case.graph.num_edges / 2 / 0.00002)
    assert row.cells["edges"].ours == pytest.approx(row.cells["edges"].paper, rel=1e-4)
    assert (row.cells["ratio"].ours, row.cells["ratio"].paper) == (64, 64)
    assert row.cells["features in all"].ours == pytest.approx(244160499 * 768 * 4 / 1e9)
    (reddit,) = result("table1", "datasets=[reddit-like]", "scale=0.02").rows
    assert reddit.cells["ratio"].ours == pytest.approx(2408 / 48) and reddit.cells["ratio"].paper == 50.2
    assert reddit.cells["edges"].ours == pytest.approx(114848857, rel=1e-4) and reddit.cells["edges"].paper == 114848857
    (papers,) = result("table1", "datasets=[papers100m-undirected-like]").rows
    assert papers.cells["ratio"].ours == 16 == papers.cells["ratio"].paper
    assert papers.cells["edges"].ours == pytest.approx(3231371744, rel=1e-3)


def test_fig2_counts_bytes_of_features_and_structure() -> None:
    (row,) = result("fig2").rows
    features = 244160499 * 768 * 4
    assert row.cells["of the data"].ours == pytest.approx(100 * features / (features + 8 * 1728364232))
    assert row.cells["of the data"].ours == pytest.approx(98.2, abs=0.05) == row.cells["of the data"].paper
    assert row.cells["both directions"].ours == pytest.approx(100 * features / (features + 16 * 1728364232))
    reads, edges, _ = counted(target("fig2"), 1)
    loaded = reads.total() * 3072
    assert row.cells["of loaded bytes"].ours == pytest.approx(100 * loaded / (loaded + 8 * edges))
    assert row.cells["of loaded bytes"].paper == 99.3
    codes = reads.total() * 48
    assert row.cells["compressed, of loaded bytes"].ours == pytest.approx(100 * codes / (codes + 8 * edges))


def test_a_cache_holds_more_codes_than_rows() -> None:
    (row,) = result("cache", "cache_shares=[0.5]", "caches=[degree]").rows
    cfg = target("cache")
    (case,) = sparse_cases(cfg, features=False)
    reads, _, _ = counted(cfg, 2)
    readers = Counter(case.graph.indices.tolist())
    by_degree = sorted(range(4883), key=lambda node: (-readers[node], node))
    for way, kept, row_bytes in (("full", 24, 3072), ("sparse", 1562, 48)):  # 0.005 * 4883 * 3072 bytes in all
        hits = sum(reads[node] for node in by_degree[:kept])
        assert row.cells[f"rows, {way}"].ours == pytest.approx(100 * kept / 4883)
        assert row.cells[f"hits, {way}"].ours == pytest.approx(100 * hits / reads.total())
        fetched = (reads.total() - hits) * row_bytes / 0.00002 / 1e9
        assert row.cells[f"fetched, {way}"].ours == pytest.approx(fetched)
    assert row.cells["hits, full"].paper == 10 and row.cells["hits, sparse"].paper is None


def test_an_exact_cache_fetches_the_rows_that_change() -> None:
    keys = ["cache_shares=[0.5]", "caches=[exact,presample]"]
    exact, presample = (row.cells for row in result("cache", *keys).rows)
    assert exact["hits, sparse"].ours >= presample["hits, sparse"].ours  # type: ignore[operator]
    reads, before = (counted(target("cache"), epoch)[0] for epoch in (2, 1))
    kept, first = (
        {node for node, _ in sorted(one.items(), key=lambda x: (-x[1], x[0]))[:24]} for one in (reads, before)
    )
    missed = reads.total() - sum(reads[node] for node in kept) + len(kept - first)
    assert exact["fetched, full"].ours == pytest.approx(missed * 3072 / 0.00002 / 1e9)


def test_codes_of_a_file_are_those_of_its_features(tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((1000, 300), np.float32)
    np.save(tmp_path / "features.npy", features)
    assert compressed(tmp_path / "features.npy", tmp_path / "codes.npy", 8) > 0
    codec = TopK(8)
    codec.learn(Features(features, "float32"))
    assert np.array_equal(np.load(tmp_path / "codes.npy"), codec.encode(features))


def test_compressing_is_timed_and_estimated_at_full_size() -> None:
    (row,) = result("compress", "file_megabytes=8").rows
    cells = {name: cell.ours for name, cell in row.cells.items()}
    assert cells["file"] == pytest.approx(0.008, rel=1e-3) and cells["compressed"] == pytest.approx(
        0.008 / 64, rel=1e-3
    )
    assert cells["rate"] == pytest.approx(cells["file"] / cells["time"])  # type: ignore[operator]
    assert cells["full size"] == pytest.approx(244160499 * 3072 / 1e9 / cells["rate"])  # type: ignore[operator]
    assert row.cells["full size"].origin == "simulated" and row.cells["full size"].paper == "under 300"
    assert 0 < cells["peak memory"] < 1  # type: ignore[operator]


def written(num_bytes: int) -> int:
    return len(np.ones(num_bytes, np.uint8))


def test_a_process_of_its_own_tells_its_memory_and_has_a_limit() -> None:
    found = call_fresh(written, 200_000_000)
    assert found.value == 200_000_000 and 170e6 < found.own_bytes < 300e6
    with pytest.raises(UnsupportedError, match="written: .*MemoryError"):
        call_fresh(written, 2_000_000_000, limit_bytes=1_000_000_000)


def test_memory_is_added_up_and_measured() -> None:
    rows = {row.labels[1]: row.cells for row in result("memory", "batches=1").rows}
    arcs, gib = 2 * 1728364232, 1 << 30
    features, codes, structure = 244160499 * 3072 / gib, 244160499 * 48 / gib, (16 * arcs + 8 * 244160499) / gib
    assert rows["features"]["full"].ours == pytest.approx(features)
    assert rows["structure, theirs"]["sparse"].ours == pytest.approx(structure)
    assert rows["in all"]["sparse"].ours == pytest.approx(codes + structure) and rows["in all"]["sparse"].paper == 80
    own = rows["in all, of the sub-graph"]["full"]
    assert own.ours == pytest.approx(0.53 * features + structure) and (own.paper, own.origin) == (460, "derived")
    assert rows["structure, theirs"]["sparse over full"].paper is None and rows["structure, theirs"]["full"].paper == 60
    here = rows["a process here"]["full"]
    assert here.origin == "measured" and here.ours > 4883 * 3072 / gib  # type: ignore[operator]


def test_trainings_read_what_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads and hits are those that are counted without training."""

    def call_here(function: Callable[..., Any], *args: Any, threads: int) -> FreshCall:
        return FreshCall(function(*args), 0, 10**6)  # processes of their own take seconds to start

    monkeypatch.setattr(processes, "call_fresh", call_here)
    keys = "cache_shares=[1]", "caches=[degree,exact]"
    rows = {row.labels[1]: row.cells for row in result("prepared", *keys).rows}
    reads, _, _ = counted(target("prepared"), 2)
    sizes = {"full": 3072, "sparse": 48}
    for way, row_bytes in sizes.items():
        of_file = 1e9 * rows["full-batch"][f"read, {way}"].ours  # type: ignore[operator]
        assert 4883 * row_bytes < of_file < 4883 * row_bytes + 1000
        assert rows["sampled"][f"read, {way}"].ours == pytest.approx(sum(reads.values()) * row_bytes / 1e9)
        assert f"hits, {way}" not in rows["sampled"]
    scale = sparse_cases(target("prepared"))[0].scale
    for row in result("cache", *keys).rows:
        own = rows[f"sampled, cache={row.labels[2]} of 1 %"]
        for way in sizes:
            assert own[f"hits, {way}"].ours == pytest.approx(row.cells[f"hits, {way}"].ours)
            assert own[f"read, {way}"].ours == pytest.approx(row.cells[f"fetched, {way}"].ours * scale)  # type: ignore[operator]
            assert own[f"peak memory, {way}"].ours == 1e-3


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("case=fig99", "case=fig99 is not known: choose one of graphs, shares, compress, epochs"),
        ("ratios=[3]", "ratios has 3: give 1, or powers of two from 4 to 512, which are 512 / k"),
        ("ratios=[2]", "ratios has 2: give 1, or powers of two"),
        ("cache_shares=[101]", "cache_shares=101 is out of range: give 0 to 100"),
        ("caches=[]", r"caches=\[\] leaves nothing to do: give at least one"),
        ("caches=[lru]", "caches=lru is not known: choose one of degree, presample, exact"),
        ("chosen_models=[gcn]", "chosen_models=gcn is not known"),
        ("subgraph_share=0", "subgraph_share=0 is out of range: give more than 0 and at most 1"),
        ("ranks=[0]", "ranks=0 is out of range: it must be at least 1"),
    ],
)
def test_keys_out_of_range_are_one_line(key: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        result("table1", key)
