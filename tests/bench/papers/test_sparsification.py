"""The targets of feature sparsification about bytes and time, on tiny graphs: against counts by loops, and their model
of a GPU by hand."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.bench.papers import batches
from fullgnn.bench.papers.config import load_target, published, run
from fullgnn.bench.papers.result import Result, number
from fullgnn.bench.papers.sparsification import epochs, processes
from fullgnn.bench.papers.sparsification.epochs import BatchCounts, SampledJob
from fullgnn.bench.papers.sparsification.processes import FreshCall, call_fresh, compressed
from fullgnn.bench.papers.sparsification.sizes import SparsificationKeys, sparse_cases
from fullgnn.codecs import Features
from fullgnn.codecs.topk import TopK
from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.sampling.batches import epoch_order
from fullgnn.sampling.neighbors import NeighborSampler

pytestmark = pytest.mark.sample(3)  # its tests take seconds, or compile kernels

TINY = ["device=cpu", "nproc=1", "threads=1", "data_root=null", "scale=0.00002", "datasets=[mag240m-like]"]
TINY += ["batches=1", "rounds=4", "gather_megabytes=8", "least_cluster_nodes=500"]
NODES, FEATURES, GB, GIB = 244160499, 244160499 * 768 * 4, 1e9, 1 << 30  # of MAG240M, in float32


def target(name: str, *own: str) -> SparsificationKeys:
    return load_target(f"sp_{name}", *TINY, *own)


def result(name: str, *own: str) -> Result:
    return run(f"sp_{name}", target(name, *own))


def ours(cells: dict[str, Any], *columns: str) -> Any:
    """Our values in these columns; of one column, the value itself."""
    values = [cells[column].ours for column in columns]
    return values[0] if len(values) == 1 else values


def papers(cells: dict[str, Any], *columns: str) -> list[Any]:
    return [cells[column].paper for column in columns or cells]


@cache
def counted(epoch: int) -> tuple[Counter, int]:
    """How often the batches of an epoch read each node, and the edges that they draw."""
    (case,) = sparse_cases(target("table1"), features=False)
    graph, reads, edges = case.graph, Counter[int](), 0
    sampler = NeighborSampler(graph.indptr.astype(np.int64), graph.indices, [15, 10, 5], seed=0)
    order = epoch_order(np.flatnonzero(graph.train_mask), 0, epoch)
    for first in range(0, len(order), 8):
        hops = sampler.sample(np.sort(order[first : first + 8]), epoch)
        reads.update(hops[-1].sources.tolist())
        edges += sum(len(hop.indices) for hop in hops)
    return reads, edges


def test_table1_has_the_papers_sizes_and_ratios() -> None:
    cfg = target("table1")
    (row,) = run("sp_table1", cfg).rows
    (case,) = sparse_cases(cfg, features=False)
    assert (case.graph.num_nodes, int(case.graph.train_mask.sum())) == (4883, 22)
    nodes, edges, ratio, memory = ours(row.cells, "nodes", "edges", "ratio", "features in all")
    assert nodes == pytest.approx(4883 / 0.00002) and memory == pytest.approx(FEATURES / GB)
    assert edges == pytest.approx(case.graph.num_edges / 2 / 0.00002) and edges == pytest.approx(1728364232, rel=1e-4)
    assert papers(row.cells, "nodes", "edges", "ratio") == [NODES, 1728364232, 64] and ratio == 64
    for own, edges, rel, width, code, paper in (
        (["datasets=[reddit-like]", "scale=0.02"], 114848857, 1e-4, 602, 48, 50.2),
        (["datasets=[papers100m-undirected-like]"], 3231371744, 1e-3, 128, 32, 16),
    ):
        (row,) = result("table1", *own).rows
        assert ours(row.cells, "ratio") == pytest.approx(4 * width / code) and papers(row.cells, "ratio") == [paper]
        assert ours(row.cells, "edges") == pytest.approx(edges, rel=rel) and papers(row.cells, "edges") == [edges]


def test_fig2_counts_bytes_of_features_and_structure() -> None:
    (row,) = result("fig2").rows
    (reads, edges), arcs = counted(1), 2 * 1728364232
    pairs = {
        "of the data": (FEATURES, 8 * arcs / 2),
        "both directions": (FEATURES, 8 * arcs),
        "of loaded bytes": (reads.total() * 3072, 8 * edges),
        "compressed, of loaded bytes": (reads.total() * 48, 8 * edges),
    }
    shares = [100 * features / (features + structure) for features, structure in pairs.values()]
    assert ours(row.cells, *pairs) == pytest.approx(shares)
    assert papers(row.cells, "of the data", "of loaded bytes") == [98.2, 99.3]
    assert ours(row.cells, "of the data") == pytest.approx(98.2, abs=0.05)


def test_a_cache_holds_more_codes_than_rows() -> None:
    (row,) = result("cache", "cache_shares=[0.5]", "caches=[degree]").rows
    (case,), (reads, _) = sparse_cases(target("cache"), features=False), counted(2)
    readers = Counter(case.graph.indices.tolist())
    by_degree = sorted(range(4883), key=lambda node: (-readers[node], node))
    for way, kept, row_bytes in (("full", 24, 3072), ("sparse", 1562, 48)):  # 0.005 * 4883 * 3072 bytes in all
        hits = sum(reads[node] for node in by_degree[:kept])
        fetched = (reads.total() - hits) * row_bytes / 0.00002 / GB
        expected = [100 * kept / 4883, 100 * hits / reads.total(), fetched]
        assert ours(row.cells, f"rows, {way}", f"hits, {way}", f"fetched, {way}") == pytest.approx(expected)
    assert papers(row.cells, "hits, full", "hits, sparse") == [10, None]


def test_an_exact_cache_fetches_the_rows_that_change() -> None:
    keys = ["cache_shares=[0.5]", "caches=[exact,presample]"]
    exact, presample = (row.cells for row in result("cache", *keys).rows)
    assert ours(exact, "hits, sparse") >= ours(presample, "hits, sparse")
    (reads, _), (before, _) = counted(2), counted(1)
    kept, first = (
        {node for node, _ in sorted(counts.items(), key=lambda x: (-x[1], x[0]))[:24]} for counts in (reads, before)
    )
    missed = reads.total() - sum(reads[node] for node in kept) + len(kept - first)
    assert ours(exact, "fetched, full") == pytest.approx(missed * 3072 / 0.00002 / GB)


def test_codes_of_a_file_are_those_of_its_features(tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((1000, 300), np.float32)
    np.save(tmp_path / "features.npy", features)
    assert compressed(tmp_path / "features.npy", tmp_path / "codes.npy", 8) > 0
    codec = TopK(8)
    codec.learn(Features(features, "float32"))
    assert np.array_equal(np.load(tmp_path / "codes.npy"), codec.encode(features))


def test_compressing_is_timed_and_estimated_at_full_size() -> None:
    made = result("compress", "file_megabytes=8")
    (row,) = made.rows
    assert made.columns == ["file", "time", "rate", "peak memory", "compressed", "full size"]
    file, seconds, rate, memory, codes, full = ours(row.cells, *made.columns)
    assert file == pytest.approx(0.008, rel=1e-3) and codes == pytest.approx(0.008 / 64, rel=1e-3)
    assert rate == pytest.approx(file / seconds) and full == pytest.approx(FEATURES / GB / rate)
    assert row.cells["full size"].origin == "simulated" and row.cells["full size"].paper == "under 300"
    assert 0 < memory < 1


def written(num_bytes: int) -> int:
    return len(np.ones(num_bytes, np.uint8))


def test_a_process_of_its_own_tells_its_memory_and_has_a_limit() -> None:
    call = call_fresh(written, 200_000_000)
    assert call.value == 200_000_000 and 170e6 < call.own_bytes < 300e6
    with pytest.raises(UnsupportedError, match="written: .*MemoryError"):
        call_fresh(written, 2_000_000_000, limit_bytes=1_000_000_000)


@pytest.mark.sample(6)
def test_memory_is_added_up_and_measured() -> None:
    rows = {row.labels[1]: row.cells for row in result("memory").rows}
    features, codes, structure = FEATURES / GIB, NODES * 48 / GIB, (16 * 2 * 1728364232 + 8 * NODES) / GIB
    assert ours(rows["features"], "full") == pytest.approx(features)
    assert ours(rows["structure, theirs"], "sparse") == pytest.approx(structure)
    assert ours(rows["in all"], "sparse") == pytest.approx(codes + structure) and rows["in all"]["sparse"].paper == 80
    own = rows["in all, of the sub-graph"]["full"]
    assert own.ours == pytest.approx(0.53 * features + structure) and (own.paper, own.origin) == (460, "derived")
    assert papers(rows["structure, theirs"], "sparse over full", "full") == [None, 60]
    here = rows["a process here"]["full"]
    assert here.origin == "measured" and here.ours > 4883 * 3072 / GIB  # type: ignore[operator]


@pytest.mark.sample(6)
def test_trainings_read_what_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads and hits are those that are counted without training."""

    def call_here(function: Callable[..., Any], *args: Any, threads: int) -> FreshCall:
        return FreshCall(function(*args), 0, 10**6)  # processes of their own take seconds to start

    monkeypatch.setattr(processes, "call_fresh", call_here)
    keys = "cache_shares=[1]", "caches=[degree,exact]"
    rows = {row.labels[1]: row.cells for row in result("prepared", *keys).rows}
    cached = {f"sampled, cache={row.labels[2]} of 1 %": row.cells for row in result("cache", *keys).rows}
    assert list(rows) == ["full-batch", "sampled", *cached]
    for way, row_bytes in {"full": 3072, "sparse": 48}.items():
        assert 4883 * row_bytes < GB * ours(rows["full-batch"], f"read, {way}") < 4883 * row_bytes + 1000
        reads = counted(2)[0].total() * row_bytes / GB
        assert ours(rows["sampled"], f"read, {way}") == pytest.approx(reads) and f"hits, {way}" not in rows["sampled"]
        for name, cells in cached.items():
            hits, fetched = ours(cells, f"hits, {way}", f"fetched, {way}")
            own = ours(rows[name], f"hits, {way}", f"read, {way}", f"peak memory, {way}")
            assert own == pytest.approx([hits, fetched * 0.00002, 1e-3])


PARAMETERS = 4 * 2 * (768 * 256 + 256 * 153)
COUNTED = {  # of a batch: 3 targets read 7 nodes, which read 19
    "steps_ms": {"sample": 0.5},
    "counts": {"input_rows": 19.0, "sampled_edges": 20.0},
    "operations": {"count": 10, "bytes": 1000 + 9 * PARAMETERS},
    "layers": [{"sources": 19, "targets": 7, "edges": 14}, {"sources": 7, "targets": 3, "edges": 6}],
    "parameter_bytes": PARAMETERS,
}
COPY, FLOPS = 538e9, 11.4e12  # conf/hardware/titanrtx8.yaml


@cache
def sampled_job(model: str = "sage") -> SampledJob:
    cfg = target("table3_time")
    return SampledJob(cfg, sparse_cases(cfg)[0], model)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "draw_s", lambda *about: 3e-8)
    monkeypatch.setattr(epochs, "gather_s", lambda cfg, num_nodes, row_bytes: 2e-10 * row_bytes)


@pytest.mark.usefixtures("rates")
def test_a_simulated_batch_is_what_its_counts_say() -> None:
    job, up = sampled_job(), 1024 / 8
    full, sparse = (epochs.simulated(job, COUNTED, k) for k in (None, 8))
    assert epochs.batch_counts(job) == BatchCounts(None, 1087, up)
    assert full.sample == pytest.approx(20 * up * 3e-8) and full.gather == pytest.approx(19 * up * 3072 * 2e-10)
    assert full.transfer == pytest.approx(14e-6 + (19 * 3072 + 20 * 8) * up / 12e9) and full.decode == 0
    assert sparse.gather == pytest.approx(full.gather / 64) and sparse.sample == full.sample
    assert sparse.transfer == pytest.approx(14e-6 + (19 * 48 + 20 * 8) * up / 12e9)
    assert sparse.decode == pytest.approx(5e-6 + 19 * up * (48 + 3072 + 32 * 48) / COPY)
    flops = 2 * 2 * 7 * 768 * 256 * 2 + 2 * 2 * 3 * 256 * 153 * 3  # two matrices a layer; the features have no gradient
    rate = batches.modelled("titanrtx8").gather_rate
    reads = 4 * 14 * 768 / rate(4 * 19 * 768 * up) + 4 * 6 * 256 * 2 / rate(4 * 7 * 256 * up)
    expected = 10 * 5e-6 + 9 * PARAMETERS / COPY + up * (1000 / COPY + flops / FLOPS + reads)
    assert full.compute == pytest.approx(expected) == sparse.compute and full.waiting == 0
    several = epochs.simulated(replace(job, ranks=4), COUNTED)
    assert several.waiting == pytest.approx(18e-6 + PARAMETERS / 12e9)


@pytest.mark.usefixtures("rates")
def test_attention_transforms_the_rows_before_it_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "drawn_by_layer", lambda cfg, case: [14, 6])
    layers = [layer | {"edges": 0} for layer in COUNTED["layers"]]  # type: ignore[union-attr]
    operations = {"count": 10, "bytes": 1000 + 9 * PARAMETERS // 2}
    own: dict[str, Any] = COUNTED | {"layers": layers, "operations": operations, "parameter_bytes": PARAMETERS // 2}
    flops = 2 * 19 * 768 * 256 * 2 + 2 * 7 * 256 * 153 * 3
    rate, up = batches.modelled("titanrtx8").gather_rate, 128
    reads = 4 * 14 * 256 * 2 / rate(4 * 19 * 256 * up) + 4 * 6 * 153 * 2 / rate(4 * 7 * 153 * up)
    expected = 10 * 5e-6 + 4.5 * PARAMETERS / COPY + up * (1000 / COPY + flops / FLOPS + reads)
    assert epochs.simulated(sampled_job("gat"), own).compute == pytest.approx(expected)


def test_groups_of_clusters_have_the_nodes_of_the_key() -> None:
    counts = epochs.batch_counts(sampled_job("cluster"))  # ten of 98 clusters have about 500 of 4883 nodes
    assert "sampler.num_clusters=98" in counts.keys and counts.here == pytest.approx(98 / 10)
    assert (counts.grows, counts.whole) == pytest.approx((100000 / (4883 * 10 / 98), NODES / 100000))


def test_edges_by_layer_are_those_of_the_batches() -> None:
    job = sampled_job()
    first, second, last = epochs.drawn_by_layer(job.cfg, job.case)
    assert 0 < last <= 8 * 15 and last < second < first


def origins(cells: dict[str, Any]) -> set[str]:
    return {cell.origin for cell in cells.values()}


@pytest.mark.sample(6)
def test_table3_has_epochs_of_every_model_beside_the_papers() -> None:
    rows = result("table3_time").rows
    names = ("GraphSAGE", "GAT", "Cluster-GCN")
    assert [row.labels for row in rows] == [("MAG240M", name) for name in names for _ in range(2)]
    for here, simulated in zip(rows[::2], rows[1::2]):
        assert (origins(here.cells), origins(simulated.cells)) == ({"measured"}, {"simulated"})
        assert all(number(cell.ours) for cell in [*here.cells.values(), *simulated.cells.values()])
        assert simulated.cells["sparse"].ratio > 1  # type: ignore[operator]
    assert [papers(row.cells) for row in rows[1::2]] == [[564.2, 120.9], [582.8, 164.2], ["out of memory"] * 2]
    assert rows[1].cells["sparse"].paper_ratio == pytest.approx(564.2 / 120.9)
    paper = load_target("sp_table3_time").paper
    assert published(paper, "seconds", graph="reddit-like", model="gat", way="sparse") == 4.6
    assert published(paper, "seconds", graph="papers100m-undirected-like", model="cluster", way="full") == 152.8


@pytest.mark.sample(6)
def test_table4_has_epochs_by_true_ratio() -> None:
    true, here, simulated = (row.cells for row in result("table4_time").rows)
    assert ours(true, *true) == [1, 8, 16, 32, 64, 128] and origins(here) == {"measured"}
    assert papers(simulated) == [564, 204, 150, 130, 120, 114]
    times = ours(simulated, *simulated)
    assert times[0] > times[1] > times[2] > 0


def test_fig7_and_fig3_have_the_steps_of_an_iteration() -> None:
    fig7 = result("fig7")
    assert [row.labels[2] for row in fig7.rows] == ["full", "full", "sparse", "sparse"]
    here, full, _, sparse = (row.cells for row in fig7.rows)
    assert ours(here, "transfer") == "none" and ours(here, "features") > 0 and ours(full, "decode") == 0
    features = ours(full, "features")
    assert features == pytest.approx(64 * ours(sparse, "features"))
    assert features == pytest.approx(128 * ours(here, "features"))
    spent = [sum(ours(cells, "gather", "transfer")) for cells in (full, sparse)]
    saved = sparse["gather and transfer saved"]
    assert saved.ours == pytest.approx(100 * (1 - spent[1] / spent[0])) and saved.paper == 90
    assert papers(full, "features", "structure") + papers(sparse, "features") == [1280, 3.8, 20]
    (panel,) = fig7.panels  # of the simulated rows alone
    assert panel.groups == ["full", "sparse"] and panel.title == "MAG240M, GraphSAGE: simulated"  # type: ignore[union-attr]
    (_, row) = result("fig3").rows  # the same benchmark
    steps = ours(full, *epochs.STEPS[:5])
    assert ours(row.cells, "full") == pytest.approx(100 * sum(steps[1:4]) / sum(steps))
    assert ours(row.cells, "sparse") < ours(row.cells, "full") and papers(row.cells, "full") == [96]


def test_fig8_has_ranks_that_run_and_ranks_that_are_simulated() -> None:
    rows = {row.labels[2:]: row.cells for row in result("fig8").rows}
    simulated = [(f"p={p}", host) for host in ("one a rank", "shared") for p in (1, 2, 4)]
    assert list(rows) == [("p=1", "this one"), *simulated]
    own, shared = rows["p=4", "one a rank"], rows["p=4", "shared"]
    for way in ("full", "sparse"):
        assert 1 < ours(shared, f"{way}, scaling") < ours(own, f"{way}, scaling") <= 4
        assert ours(rows["p=1", "shared"], way) == ours(rows["p=1", "one a rank"], way)
    assert papers(own, "full, scaling", "sparse, scaling", "sparse over full") == [2.26, 3.74, 8.7]
    assert origins(rows["p=1", "this one"]) == {"measured"} and origins(own) == {"simulated"}


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
