"""The targets of feature sparsification about time: their model of a GPU by hand, and every case on a tiny graph."""

from functools import cache
from typing import Any

import pytest

from fullgnn.bench.papers import batches
from fullgnn.bench.papers.batches import BatchSeconds, SampledJob
from fullgnn.bench.papers.config import load_target, published, run
from fullgnn.bench.papers.result import Result, number
from fullgnn.bench.papers.sparsification import epochs
from fullgnn.bench.papers.sparsification.sizes import SparsificationKeys, sparse_cases

MAG = "mag240m-like"
TINY = [
    "device=cpu",
    "nproc=1",
    "threads=1",
    "data_root=null",
    "scale=0.00002",
    f"datasets=[{MAG}]",
    "batches=1",
    "rounds=4",
    "gather_megabytes=8",
    "least_cluster_nodes=500",
]
PARAMETERS = 4 * 2 * (768 * 256 + 256 * 153)
COUNTED = {  # of a batch: 3 targets read 7 nodes, which read 19
    "steps_ms": {"sample": 0.5},
    "counts": {"input_rows": 19.0, "sampled_edges": 20.0},
    "operations": {"count": 10, "bytes": 1000 + 9 * PARAMETERS},
    "layers": [{"sources": 19, "targets": 7, "edges": 14}, {"sources": 7, "targets": 3, "edges": 6}],
    "parameter_bytes": PARAMETERS,
}
COPY, FLOPS = 538e9, 11.4e12  # conf/hardware/titanrtx8.yaml


def target(name: str, *own: str) -> SparsificationKeys:
    return load_target(f"sp_{name}", *TINY, *own)


def result(name: str, *own: str) -> Result:
    return run(f"sp_{name}", target(name, *own))


@cache
def setting(model: str = "sage") -> tuple[SparsificationKeys, SampledJob]:
    cfg = target("table3_time")
    return cfg, SampledJob(sparse_cases(cfg)[0], model)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "draw_s", lambda *about: 3e-8)
    monkeypatch.setattr(epochs, "gather_s", lambda cfg, num_nodes, row_bytes: 2e-10 * row_bytes)


@pytest.mark.usefixtures("rates")
def test_a_simulated_batch_is_what_its_counts_say() -> None:
    cfg, one = setting()
    up = 1024 / 8
    full, sparse = (epochs.simulated(cfg, one, COUNTED, k) for k in (None, 8))
    assert epochs.grows(cfg, one) == up and epochs.num_batches(cfg, one) == 1087
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
    several = epochs.simulated(cfg, SampledJob(one.case, "sage", 4), COUNTED)
    assert several.waiting == pytest.approx(18e-6 + PARAMETERS / 12e9)


@pytest.mark.usefixtures("rates")
def test_attention_transforms_the_rows_before_it_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg, one = setting("gat")
    monkeypatch.setattr(epochs, "drawn_by_layer", lambda cfg, case: [14, 6])
    layers = [layer | {"edges": 0} for layer in COUNTED["layers"]]  # type: ignore[union-attr]
    operations = {"count": 10, "bytes": 1000 + 9 * PARAMETERS // 2}
    own: dict[str, Any] = COUNTED | {"layers": layers, "operations": operations, "parameter_bytes": PARAMETERS // 2}
    flops = 2 * 19 * 768 * 256 * 2 + 2 * 7 * 256 * 153 * 3
    rate, up = batches.modelled("titanrtx8").gather_rate, 128
    reads = 4 * 14 * 256 * 2 / rate(4 * 19 * 256 * up) + 4 * 6 * 153 * 2 / rate(4 * 7 * 153 * up)
    expected = 10 * 5e-6 + 4.5 * PARAMETERS / COPY + up * (1000 / COPY + flops / FLOPS + reads)
    assert epochs.simulated(cfg, one, own).compute == pytest.approx(expected)


def test_groups_of_clusters_have_the_nodes_of_the_key() -> None:
    cfg, one = setting("cluster")
    assert epochs.clusters_here(cfg, one.case) == 98  # ten of 98 clusters have about 500 of 4883 nodes
    assert epochs.grows(cfg, one) == pytest.approx(100000 / (4883 * 10 / 98))
    assert epochs.num_batches(cfg, one) == pytest.approx(244160499 / 100000)


def test_edges_by_layer_are_those_of_the_batches() -> None:
    cfg, one = setting()
    first, second, last = epochs.drawn_by_layer(cfg, one.case)
    assert 0 < last <= 8 * 15 and last < second < first


def test_steps_that_come_in_turn() -> None:
    batch = BatchSeconds(sample=1, gather=2, transfer=3, decode=4, compute=5, waiting=6)
    assert (batch.loading, batch.in_turn) == (9, 21)


def test_table3_has_epochs_of_every_model_beside_the_papers() -> None:
    rows = result("table3_time").rows
    names = ("GraphSAGE", "GAT", "Cluster-GCN")
    assert [row.labels for row in rows] == [("MAG240M", name) for name in names for _ in range(2)]
    for here, simulated in zip(rows[::2], rows[1::2]):
        assert {cell.origin for cell in here.cells.values()} == {"measured"}
        assert {cell.origin for cell in simulated.cells.values()} == {"simulated"}
        assert all(number(cell.ours) for cell in [*here.cells.values(), *simulated.cells.values()])
        assert simulated.cells["sparse"].ratio > 1  # type: ignore[operator]
    papers = [(row.cells["full"].paper, row.cells["sparse"].paper) for row in rows[1::2]]
    assert papers == [(564.2, 120.9), (582.8, 164.2), ("out of memory",) * 2]
    assert rows[1].cells["sparse"].paper_ratio == pytest.approx(564.2 / 120.9)
    paper = load_target("sp_table3_time").paper
    assert published(paper, "seconds", graph="reddit-like", model="gat", way="sparse") == 4.6
    assert published(paper, "seconds", graph="papers100m-undirected-like", model="cluster", way="full") == 152.8


def test_table4_has_epochs_by_true_ratio() -> None:
    true, here, simulated = (row.cells for row in result("table4_time").rows)
    assert [cell.ours for cell in true.values()] == [1, 8, 16, 32, 64, 128]
    assert [cell.paper for cell in simulated.values()] == [564, 204, 150, 130, 120, 114]
    assert {cell.origin for cell in here.values()} == {"measured"}
    times = [number(cell.ours) or 0 for cell in simulated.values()]
    assert times[0] > times[1] > times[2] > 0


def test_fig7_and_fig3_have_the_steps_of_an_iteration() -> None:
    found = result("fig7")
    assert [row.labels[2] for row in found.rows] == ["full", "full", "sparse", "sparse"]
    here, full, _, sparse = (row.cells for row in found.rows)
    assert here["transfer"].ours == "none" and here["features"].ours > 0 and full["decode"].ours == 0  # type: ignore[operator]
    assert full["features"].ours == pytest.approx(64 * sparse["features"].ours)  # type: ignore[operator]
    assert full["features"].ours == pytest.approx(128 * here["features"].ours)  # type: ignore[operator]
    spent = [sum(number(cells[step].ours) or 0 for step in ("gather", "transfer")) for cells in (full, sparse)]
    saved = sparse["gather and transfer saved"]
    assert saved.ours == pytest.approx(100 * (1 - spent[1] / spent[0])) and saved.paper == 90
    assert (full["features"].paper, sparse["features"].paper, full["structure"].paper) == (1280, 20, 3.8)
    (_, row) = result("fig3").rows  # the same benchmark
    steps = [number(full[step].ours) or 0 for step in ("sample", "gather", "transfer", "decode", "compute")]
    assert row.cells["full"].ours == pytest.approx(100 * sum(steps[1:4]) / sum(steps)) and row.cells["full"].paper == 96
    assert row.cells["sparse"].ours < row.cells["full"].ours  # type: ignore[operator]


def test_fig8_has_ranks_that_run_and_ranks_that_are_simulated() -> None:
    rows = {row.labels[2:]: row.cells for row in result("fig8").rows}
    assert list(rows) == [("p=1", "this one")] + [
        (f"p={p}", host) for host in ("one a rank", "shared") for p in (1, 2, 4)
    ]
    own, shared = rows["p=4", "one a rank"], rows["p=4", "shared"]
    for way in ("full", "sparse"):
        assert 1 < shared[f"{way}, scaling"].ours < own[f"{way}, scaling"].ours <= 4  # type: ignore[operator]
        assert rows["p=1", "shared"][way].ours == rows["p=1", "one a rank"][way].ours
    assert (own["full, scaling"].paper, own["sparse, scaling"].paper, own["sparse over full"].paper) == (
        2.26,
        3.74,
        8.7,
    )
    assert rows["p=1", "this one"]["full"].origin == "measured" and own["full"].origin == "simulated"
