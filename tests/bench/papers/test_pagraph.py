"""The targets of PaGraph on tiny graphs, against counts by loops."""

from collections import Counter

import numpy as np
import pytest

from fullgnn.bench.papers.config import load_target, run
from fullgnn.bench.papers.graphs import cases
from fullgnn.bench.papers.pagraph.counts import PagraphDraws, _of_part
from fullgnn.bench.papers.result import Result, number
from fullgnn.sampling.batches import epoch_order
from fullgnn.sampling.pagraph import cross_partition_free

TINY = ["device=cpu", "nproc=1", "threads=1", "data_root=null", "scale=0.0002", "datasets=[wiki-talk-like]"]
TINY += ["batch_size=200000"]


def result(target: str, *own: str) -> Result:
    return run(target, load_target(target, *TINY, *own))


def counted(draws: PagraphDraws, epochs: range) -> Counter:
    """How often batches read each node."""
    reads: Counter = Counter()
    for epoch in epochs:
        order = epoch_order(draws.train, 0, epoch)
        for first in range(0, len(order), draws.batch_size):
            batch = np.sort(order[first : first + draws.batch_size])
            reads.update(draws.sampler.sample(batch, epoch)[-1].sources.tolist())
    return reads


def test_fig13_counts_hits_by_rule() -> None:
    hits = result("pagraph_fig13", "shares=[0,20,100]")
    cfg = load_target("pagraph_fig13", *TINY)
    draws = PagraphDraws.of(cfg, cases(cfg, features=False)[0])
    assert (draws.graph.num_nodes, draws.batch_size, len(draws.train)) == (478, 40, 311)
    reads = counted(draws, range(1, 4))
    readers = Counter(draws.graph.indices.tolist())
    by_degree = sorted(range(478), key=lambda node: (-readers[node], node))
    none, some, every = (row.cells for row in hits.rows)
    assert all(cell.ours == 0 for cell in none.values())
    assert all(cell.ours == pytest.approx(100) for cell in every.values())
    degree = sum(reads[node] for node in by_degree[: 478 // 5])
    assert some["degree"].ours == pytest.approx(100 * degree / reads.total())
    optimal = sum(count for _, count in reads.most_common(478 // 5))
    assert some["optimal"].ours == pytest.approx(100 * optimal / reads.total())
    values = {name: number(cell.ours) for name, cell in some.items()}
    assert values["random"] < values["presample"] <= values["optimal"] > values["AliGraph"]  # type: ignore[operator]
    ties = result("pagraph_fig13", "shares=[20]", "symmetrize=true").rows[0].cells
    assert ties["AliGraph"].ours == "ties"


def test_fig17_counts_copies_and_reads_nothing_outside() -> None:
    rows = result("pagraph_fig17", "parts=[1,3]").rows
    assert [row.labels for row in rows] == [("wiki-talk", "K=1"), ("wiki-talk", "K=3")]
    whole, three = (row.cells for row in rows)
    assert whole["copies"].ours == 0 < three["copies"].ours < 100 * 2 / 3  # type: ignore[operator]
    assert whole["reads outside"].ours == three["reads outside"].ours == 0
    assert three["largest part"].ours == pytest.approx(104 * 3 / 311)
    cfg = load_target("pagraph_fig17", *TINY)
    structure = PagraphDraws.of(cfg, cases(cfg, features=False)[0])
    split = cross_partition_free(structure.indptr, structure.graph.indices, structure.train, 3, 2)
    missing = split.member.copy()
    missing[np.flatnonzero(structure.num_readers())[0]] = 0  # a node that parts read and no longer hold would be seen
    harmed = type(split)(split.train, split.part, split.num_nodes, missing)
    counts = [_of_part(cfg, structure, harmed, part) for part in range(3)]
    assert sum(int(reads.sum() - reads[harmed.nodes(part)].sum()) for part, reads in enumerate(counts)) > 0


def test_table5_times_the_partition() -> None:
    (row,) = result("pagraph_table5").rows
    assert row.cells["time"].unit == "s" and 0 < row.cells["time"].ours < 60  # type: ignore[operator]
    assert row.cells["training nodes a second"].ours == pytest.approx(311 / row.cells["time"].ours)  # type: ignore[operator]


@pytest.mark.parametrize("target", ["fig13", "table5"])
def test_the_graphs_are_those_of_the_paper(target: str) -> None:
    names = ["reddit", "wiki-talk", "livejournal", "lj-link", "lj-large", "enwiki", "amazon0601"]
    assert load_target(f"pagraph_{target}").chosen == [f"{name}-like" for name in names]


def test_table2_counts_the_graphs() -> None:
    (row,) = result("pagraph_table2").rows
    cfg = load_target("pagraph_table2", *TINY)
    (case,) = cases(cfg, features=False)
    assert row.cells["nodes"].ours == pytest.approx(478 / 0.0002) and row.cells["nodes"].paper == 2390000
    assert row.cells["arcs"].ours == pytest.approx(case.graph.num_edges / 0.0002)
    assert row.cells["arcs of a node"].ours == pytest.approx(case.graph.num_edges / 478)
    assert (row.cells["features"].ours, row.cells["classes"].ours) == (600, 60)


def test_fig5_counts_how_often_rows_are_read() -> None:
    (row,) = result("pagraph_fig5", "epochs=2").rows
    cfg = load_target("pagraph_fig5", *TINY)
    draws = PagraphDraws.of(cfg, cases(cfg, features=False)[0])
    first, second = (counted(draws, range(epoch, epoch + 1)) for epoch in (1, 2))
    again = [100 * sum(count > 1 for count in reads.values()) / 478 for reads in (first, second)]
    assert row.cells["read again"].ours == pytest.approx(np.mean(again)) and row.cells["read again"].paper == 32.4
    assert row.cells["most often"].ours == (max(first.values()) + max(second.values())) / 2
    assert row.cells["reads"].ours == pytest.approx((first.total() + second.total()) / 2 / 478)


def test_table4_counts_what_parts_need_not_fetch() -> None:
    keys = ["parts=[1,2]", "datasets=[lj-link-like]", "scale=0.0001", "device_gigabytes=3"]
    alone, two = result("pagraph_table4", *keys, "batch_size=6000").rows
    cfg = load_target("pagraph_table4", *TINY, *keys, "batch_size=6000")
    structure = PagraphDraws.of(cfg, cases(cfg, features=False)[0])
    share = (2e9 - 54_000 * 2400) / (5_200_000 * 2400)
    assert alone.cells["rows on the device"].ours == pytest.approx(100 * share)
    readers = Counter(structure.graph.indices.tolist())
    kept = sorted(range(520), key=lambda node: (-readers[node], node))[: int(share * 520)]
    reads = counted(structure, range(1, 4))
    assert alone.cells["saved"].ours == pytest.approx(100 * sum(reads[node] for node in kept) / reads.total())
    assert alone.cells["all reads"].ours == pytest.approx(reads.total() / 3 * 2400 / 1e9)
    assert 0 < two.cells["all reads"].ours < alone.cells["all reads"].ours  # type: ignore[operator]
