"""Figure 9: its rows, the origin of each time (measured or simulated), and the places of the paper's numbers."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from fullgnn.bench.papers.config import JobShape, load_target, run
from fullgnn.bench.papers.graphs import case
from fullgnn.bench.papers.hetu import epochs
from fullgnn.bench.papers.hetu.orders import OrdersKeys
from fullgnn.bench.papers.result import Result
from fullgnn.bench.papers.trainings import JobTimes, fastest, load_links, prepare_job
from fullgnn.errors import ConfigError
from fullgnn.partition.kway import MetisError
from fullgnn.reorder import rcm

pytestmark = pytest.mark.sample(3, "fig9")  # each target takes seconds, and all work alike
TINY = ["datasets=[reddit-like]", "scale=0.01", "sizes.reddit-like.density=20", "links=h200x8", "orders=[rcm]"]
TINY += ["device=cpu"]
WHOLE_RCM = ("reorder=rcm", "reorder.scope=whole")
ONE_D, REPLICATED = "{scheme:1d,p:2,r:1}", "{scheme:1.5d,p:4,r:2}"


@pytest.fixture(scope="module")
def cfg(tmp_path_factory: pytest.TempPathFactory) -> OrdersKeys:
    root = tmp_path_factory.mktemp("data")
    return load_target("fig9", *TINY, f"layouts=[{ONE_D},{REPLICATED}]", f"data_root={root}")


@pytest.fixture(scope="module")
def result(cfg: OrdersKeys) -> Result:
    return run("fig9", cfg)


def test_there_is_a_row_for_each_layout_and_quantity(result: Result) -> None:
    assert [row.labels for row in result.rows] == [
        ("Reddit", layout, of) for layout in ("1D p=2", "1.5D p=4 r=2") for of in ("SpMM", "epoch")
    ]
    assert result.columns == ("none", "RCM whole", "RCM blockwise")
    assert len(result.panels) == 2


def test_products_are_measured_and_epochs_of_ranks_without_a_device_simulated(result: Result) -> None:
    for row in result.rows:
        for cell in row.cells.values():
            assert cell.origin == {"SpMM": "measured", "epoch": "simulated"}[row.labels[2]]
            assert isinstance(cell.ours, float) and cell.ours > 0
            base = row.cells["none"].ours
            assert isinstance(base, float)
            assert cell.ratio == base / cell.ours


def test_an_epoch_is_of_the_slowest_rank_and_has_its_waiting_in_it(result: Result) -> None:
    for row in result.rows:
        for column, cell in row.cells.items():
            job = result.details["times_ms"][row.labels[0]][row.labels[1]][column]
            assert len(job["epoch_ms"]) == int(row.labels[1].split("p=")[1][0])
            assert cell.ours == max(job["spmm_ms" if row.labels[2] == "SpMM" else "epoch_ms"])
            for spmm, epoch, waiting in zip(job["spmm_ms"], job["epoch_ms"], job["comm_ms"]):
                assert epoch > spmm + waiting > spmm > 0


def test_a_rank_is_as_fast_as_in_its_fastest_round() -> None:
    rounds = [
        JobTimes("simulated", [2.0, 3.0], [9.0, 5.0], [1.0, 1.0]),
        JobTimes("simulated", [4.0, 1.0], [8.0, 7.0], [1.0, 2.0]),
    ]
    assert fastest(rounds) == JobTimes("simulated", [2.0, 1.0], [8.0, 5.0], [1.0, 1.0])


def test_the_papers_speedups_stand_beside_the_blockwise_order(result: Result) -> None:
    cells = {(*row.labels[1:], column): cell for row in result.rows for column, cell in row.cells.items()}
    ratios = {labels: cell.paper_ratio for labels, cell in cells.items() if cell.paper_ratio is not None}
    wanted = {("1.5D p=4 r=2", "SpMM"): 2.41, ("1D p=2", "epoch"): 1.87}
    assert ratios == {(*labels, "RCM blockwise"): ratio for labels, ratio in wanted.items()}


def test_all_of_the_papers_numbers_have_a_place() -> None:
    cfg = load_target("fig9")
    assert len(cfg.paper) == 7
    for entry in cfg.paper:
        assert entry["dataset"] in cfg.sizes and entry["order"] in cfg.orders and entry["of"] in ("SpMM", "epoch")
        assert any((entry["scheme"], entry["p"]) == (layout.scheme, layout.p) for layout in cfg.layouts)


def test_an_order_of_the_whole_graph_is_applied_before_the_cut(cfg: OrdersKeys) -> None:
    made = case(cfg, "reddit-like")
    graphs = [prepare_job(cfg, made, JobShape("1d", p, 1), WHOLE_RCM) for p in (2, 4)]
    halves, quarters = (np.concatenate([part.node_id for part in graph.parts()]) for graph in graphs)
    assert np.array_equal(halves, quarters)
    assert np.array_equal(halves, rcm(made.graph.adjacency(np.float32), cfg.seed))


def test_without_metis_its_columns_say_so(cfg: OrdersKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise MetisError("pymetis is not installed")

    monkeypatch.setattr(import_module("fullgnn.reorder.metis"), "kway", fail)
    wanted = replace(cfg, orders=["metis"], layouts=[JobShape("1d", 2, 1)])
    times = epochs.time_case(wanted, case(cfg, "reddit-like"))["1D p=2"]
    assert isinstance(times["none"], JobTimes)
    reason = "reorder=metis is not available here, rcm took its place: pip install pymetis"
    assert times["METIS whole"] == times["METIS blockwise"] == reason


def test_one_gpu_has_no_links_to_measure(cfg: OrdersKeys) -> None:
    alone = load_target("fig9")
    alone.device, alone.nproc, alone.links = "cuda", 1, "auto"
    with pytest.raises(ConfigError, match="^links=auto: one GPU has none to measure"):
        load_links(alone, alone.layouts)
