"""The targets of PaGraph that train: their model of a GPU by hand, and every case on a tiny graph."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from fullgnn.bench.papers import batches
from fullgnn.bench.papers.batches import BatchSeconds
from fullgnn.bench.papers.config import load_target, published, run
from fullgnn.bench.papers.graphs import cases
from fullgnn.bench.papers.pagraph import epochs
from fullgnn.bench.papers.pagraph.counts import PagraphJob, PagraphKeys
from fullgnn.bench.papers.pagraph.epochs import BOTH, CACHED, PLAIN, PP, STAGES, reached
from fullgnn.bench.papers.result import Result, number
from fullgnn.bench.papers.trainings import TrainingCurve, epoch_s

TINY = ["device=cpu", "threads=1", "data_root=null", "cache_dir=null", "scale=0.0002", "batch_size=300000"]
TINY += ["batches=2", "rounds=4"]


def target(name: str, *own: str, graph: str = "wiki-talk-like") -> PagraphKeys:
    return load_target(f"pagraph_{name}", *TINY, f"datasets=[{graph}]", *own)


def result(name: str, *own: str, graph: str = "wiki-talk-like") -> Result:
    return run(f"pagraph_{name}", target(name, *own, graph=graph))


@cache
def job() -> PagraphJob:
    cfg = target("fig11")
    (case,) = cases(cfg, data=cfg.data)
    return PagraphJob(cfg, case, "gcn", 1, "neighbor", (2, 2))


def details(**others: Any) -> dict[str, Any]:
    """What is counted of a batch: 3 targets read 7 nodes, which read 19; a layer has one matrix and no bias."""
    layers = [{"sources": 19, "targets": 7, "edges": 14}, {"sources": 7, "targets": 3, "edges": 6}]
    return {
        "steps_ms": {"sample": 0.5},
        "counts": {"fetched_bytes": 19 * 2400.0, "sampled_edges": 20.0},
        "operations": {"count": 10, "bytes": 1000},
        "layers": layers,
        "parameter_bytes": 4 * (600 * 32 + 32 * 60),
    } | others


def test_a_simulated_batch_is_what_its_counts_say(monkeypatch: pytest.MonkeyPatch) -> None:
    own = job()
    monkeypatch.setattr(batches, "draw_s", lambda *about: 3e-8)
    monkeypatch.setattr(epochs, "gather_s", lambda case: 2e-10)
    batch, up = epochs.simulated(own, details()), 5000
    assert own.case.scale == pytest.approx(1 / up)
    assert batch.sample == pytest.approx(20 * up * 3e-8)
    assert batch.gather == pytest.approx(19 * 2400 * up * 2e-10)
    assert batch.transfer == pytest.approx(14e-6 + 19 * 2400 * up / 12e9)  # conf/hardware/titanrtx8.yaml
    flops = 2 * 7 * 600 * 32 * 2 + 2 * 3 * 32 * 60 * 3  # the features have no gradient
    edge_bytes = 4 * 14 * 600 + 4 * 6 * 32 * 2
    reads = edge_bytes * up / batches.modelled("titanrtx8").gather_rate(4 * 19 * 600 * up)
    expected = 10 * 5e-6 + 1000 * up / 538e9 + flops * up / 11.4e12 + reads
    assert batch.compute == pytest.approx(expected) and batch.waiting == 0
    assert batch.in_turn == pytest.approx(batch.sample + batch.gather + batch.transfer + batch.compute)
    hit = epochs.simulated(own, details(counts={"fetched_bytes": 0.0, "sampled_edges": 20.0}))
    assert hit.loading == 0 and hit.compute == batch.compute
    layered = epochs.simulated(replace(own, sampler="layer"), details())
    assert layered.sample == pytest.approx(0.5e-3 * up)
    both = epochs.simulated(replace(own, ranks=2), details())
    assert both.waiting == pytest.approx(18e-6 + 4 * (600 * 32 + 32 * 60) / 12e9)


def test_steps_come_in_turn_or_overlap_and_take_as_long_as_the_longer_ones() -> None:
    batch = BatchSeconds(sample=1, gather=2, transfer=3, decode=4, compute=5, waiting=6)
    assert (batch.loading, batch.in_turn, batch.overlapped, replace(batch, waiting=0).overlapped) == (9, 21, 11, 10)


def test_the_share_that_fits_the_device() -> None:
    own, row = job(), 2400
    papers = replace(own, cfg=replace(own.cfg, batch_size=6000))
    assert papers.cached_share() == 1 and papers.most_inputs() == 54_000
    assert replace(papers, sampler="layer", draws=(2400, 2400)).most_inputs() == 10_800
    small = replace(own, cfg=replace(papers.cfg, device_gigabytes=2.0))
    assert small.cached_share() == pytest.approx((1e9 - 54_000 * row) / (own.case.full.num_nodes * row))
    assert replace(own, cfg=replace(papers.cfg, device_gigabytes=0.5)).cached_share() == 0


def test_rows_of_the_paper_are_found_by_what_they_name() -> None:
    paper = [{"graph": "a", "way": CACHED, "speedup": 3.9}, {"model": "gcn", "loading": 74}]
    assert published(paper, "speedup", graph="a", way=CACHED, model="sage") == 3.9
    assert published(paper, "speedup", graph="a", way=PLAIN) is None
    assert published(paper, "loading", graph="a", model="gcn") == 74
    assert published(paper, "loading", model="sage") is None


@pytest.mark.sample(6)
def test_epochs_and_steps_of_every_way() -> None:
    rows = result("fig11", "device_gigabytes=1000", "paper=[{way: cached, speedup: 3.9}]").rows
    assert [row.labels for row in rows] == [
        ("wiki-talk", name, "2-2") for name in ("GCN", "GCN", "GraphSAGE", "GraphSAGE")
    ]
    for here, simulated in zip(rows[::2], rows[1::2]):
        assert {cell.origin for cell in here.cells.values()} == {"measured"}
        assert {cell.origin for cell in simulated.cells.values()} == {"simulated"}
        assert simulated.cells[CACHED].paper_ratio == 3.9 and here.cells[PLAIN].ratio == 1
        times = {way: number(cell.ours) for way, cell in simulated.cells.items()}
        assert times[PLAIN] > times[CACHED] and times[PP] > times[BOTH]  # type: ignore[operator]
    steps_of = result("fig12", "device_gigabytes=1000")  # the same benchmark, of which one model is shown
    assert "GraphSAGE" not in {row.labels[1] for row in steps_of.rows}
    by_way = {row.labels[3]: row.cells for row in steps_of.rows if row.cells["loading"].origin == "simulated"}
    assert by_way[CACHED]["loading saved"].ours == pytest.approx(100) == by_way[BOTH]["loading saved"].ours
    assert by_way[PLAIN]["compute"].ours == pytest.approx(by_way[CACHED]["compute"].ours)  # of the same batches
    steps = [number(by_way[PLAIN][step].ours) or 0 for step in epochs.STEPS[:4]]
    assert sum(steps) == pytest.approx(number(rows[1].cells[PLAIN].ours))
    assert by_way[PLAIN]["loading"].ours == pytest.approx(100 * sum(steps[1:3]) / sum(steps))


@pytest.mark.sample(6)
def test_losses_with_and_without_a_cache_are_equal_on_any_ranks() -> None:
    ablation = result("fig18", "ranks=[2]", "chosen_models=[gcn]", "scale=0.00002", graph="friendster-like")
    assert [row.labels[2] for row in ablation.rows] == ["2-2, p=2", "2-2, p=2"]
    assert ablation.notes[-1].endswith("are equal to the bit in 2 of 2 pairs.")
    measured, simulated = (row.cells for row in ablation.rows)
    assert {cell.origin for cell in measured.values()} == {"measured"} and set(measured) == set(STAGES)
    plain, cached, _, piped = (number(simulated[stage].ours) or 0 for stage in STAGES)
    assert plain > cached and plain > piped > 0


@pytest.mark.sample(6)
def test_more_ranks_than_run_are_simulated_alone() -> None:
    rows = result("fig20c", "ranks=[4]", graph="enwiki-like").rows
    assert [row.labels[2] for row in rows] == ["layer-wise, p=4"]
    assert all(number(cell.ours) for row in rows for cell in row.cells.values())


@pytest.mark.sample(6)
def test_the_larger_the_cache_the_shorter_the_epoch() -> None:
    rows = result("fig14", "shares=[0,50,100]", graph="livejournal-like").rows
    none, half, every = ({name: number(cell.ours) or 0 for name, cell in row.cells.items()} for row in rows)
    assert none["degree"] == pytest.approx(none["random"]) and every["degree"] == pytest.approx(every["AliGraph"])
    assert none["degree"] > half["random"] > half["degree"] > every["degree"] > 0


@pytest.mark.sample(6)
def test_convergence_counts_epochs_until_the_accuracy() -> None:
    late, early = TrainingCurve([10, 60, 59, 70], [9, 1, 3, 2]), TrainingCurve([61, 10, 10, 10], [9, 1, 1, 1])
    arrivals = [late.reaching(least) for least in (60, 70, 71)]
    assert [arrival and arrival.epoch for arrival in arrivals] == [2, 4, None] and epoch_s(late.seconds) == 2
    assert reached([late, early], 60) == (1.5, (2 * 2 + 1 * 1) / 2)
    assert reached([late, early], 65) == ("1 of 2 runs", "not reached")
    keys = ["seeds=[3]", "epochs=2", "samplers=[neighbor]", "ranks=[1]", "scale=0.02", "batch_size=40000"]
    trained = result("fig21", *keys, graph="reddit-like")
    assert [row.labels[2] for row in trained.rows] == [
        "plain, together",
        "cached + PP, together",
        "cached + PP, locally",
    ]
    assert all(0 < (number(row.cells["accuracy"].ours) or 0) <= 100 for row in trained.rows)
    assert trained.rows[2].cells["time"].paper_ratio == 7.4 and trained.rows[0].cells["time"].paper_ratio is None
