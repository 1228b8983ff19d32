"""Figures 5 and 8 on tiny graphs: their counts are compared with independent counts, their claims and the paper's
numbers are checked."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from fullgnn.bench.gpu.hits import METRIC
from fullgnn.bench.papers.config import load_target, run
from fullgnn.bench.papers.hetu import orders as hetu
from fullgnn.bench.papers.products import l2_hit_rates, product
from fullgnn.bench.papers.result import Result, TableRow
from fullgnn.errors import UnsupportedError
from fullgnn.partition import Partition
from fullgnn.reorder.cache_model import hit_rate

pytest.importorskip("pymetis")
pytestmark = pytest.mark.sample(3, "figures")  # each target takes seconds, and all work alike

TINY = ["device=cpu", "threads=1", "rounds=1", "data_root=null"]


@pytest.fixture(scope="module")
def blocks() -> Result:
    return run("fig5", load_target("fig5", *TINY))


@pytest.fixture(scope="module")
def orders() -> Result:
    cfg = load_target("fig8", *TINY, "datasets=[reddit-like,archaea-like]", "scale=0.05", "kernels=[torch]")
    return run("fig8", cfg)


def cells(result: Result, *labels: str) -> TableRow:
    (row,) = (row for row in result.rows if row.labels == labels)
    return row


def test_a_matrix_is_cut_into_its_blocks() -> None:
    dense = np.arange(1, 50).reshape(7, 7)
    blocks = hetu.blocks_of(sparse.csr_array(dense), Partition(np.array([0, 3, 7])))
    expected = [dense[:3, :3], dense[:3, 3:], dense[3:, :3], dense[3:, 3:]]
    assert all(np.array_equal(block.toarray(), part) for block, part in zip(blocks, expected, strict=True))


def test_a_block_is_multiplied() -> None:
    block = sparse.random_array((30, 20), density=0.2, format="csr", rng=0)
    block.data[:] = 1
    x = torch.randn(20, 16)
    for kernel in ("torch", "auto"):
        made = product(kernel, block, x)()
        torch.testing.assert_close(made.double(), torch.from_numpy(block.toarray()) @ x.double(), atol=1e-5, rtol=0)


def test_fig5_shows_what_the_orders_do_to_the_blocks(blocks: Result) -> None:
    nnz = blocks.details["nnz"]
    (case,) = blocks.cases
    total, half = case.size.nnz, (case.graph.num_nodes + 1) // 2
    assert all(sum(counts) == total for counts in nnz.values())
    rows = np.repeat(np.arange(case.graph.num_nodes), np.diff(case.graph.indptr))
    below, right = rows >= case.graph.num_nodes // 2, case.graph.indices >= case.graph.num_nodes // 2
    diagonal = case.graph.num_nodes // 2, half
    counted = [np.count_nonzero((below == i) & (right == j)) + (i == j) * diagonal[i] for i in (0, 1) for j in (0, 1)]
    assert nnz[hetu.ORIGINAL] == counted
    assert nnz[hetu.BLOCKWISE] == counted
    assert max(nnz[hetu.WHOLE]) / np.mean(nnz[hetu.WHOLE]) >= 1.5
    by_count = list(blocks.details["facts"].values())[:2]
    assert by_count == [True, True]
    shares = [row.cells[hetu.WHOLE].ours for row in blocks.rows if row.labels[0] == hetu.SHARE][:4]
    assert shares == pytest.approx([100 * count / total for count in nnz[hetu.WHOLE]])


def test_fig5_has_the_papers_blocks_beside_ours(blocks: Result) -> None:
    whole = cells(blocks, hetu.SHARE, hetu.BALANCE).cells[hetu.WHOLE]
    assert whole.paper == pytest.approx(65.0 / ((42.3 + 3.8 + 3.8 + 65.0) / 4))
    slowest = cells(blocks, "SpMM, kernel=torch", hetu.SLOWEST).cells
    assert [cell.paper for cell in slowest.values()] == [265, 309, 171]
    assert slowest[hetu.BLOCKWISE].paper_ratio == 265 / 171
    times = blocks.details["times_ms"]["SpMM, kernel=torch"]
    assert slowest[hetu.WHOLE].ours == max(times[hetu.WHOLE])
    assert slowest[hetu.WHOLE].ratio == max(times[hetu.ORIGINAL]) / max(times[hetu.WHOLE])
    assert {row.labels[0] for row in blocks.rows} == {hetu.SHARE, "SpMM, kernel=torch", "SpMM, kernel=blocked"}


def test_fig5_without_metis_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(UnsupportedError, match="^reorder=metis is not available here, rcm took its place"):
        run("fig5", load_target("fig5", *TINY, "scale=0.01"))


@pytest.mark.sample(0)
@pytest.mark.parametrize("graph", ["Reddit", "Archaea"])
def test_fig8_finds_metis_and_rcm_above_the_other_orders(orders: Result, graph: str) -> None:
    rate = {order: cell.ours for order, cell in cells(orders, graph, hetu.MODEL).cells.items()}
    assert min(rate["metis"], rate["rcm"]) > max(rate["none"], rate["degree"], rate["slashburn"])
    assert rate["best"] == max(rate.values())
    assert all(cell.origin == "simulated" for cell in cells(orders, graph, hetu.MODEL).cells.values())


@pytest.mark.sample(0)
def test_fig8_measures_no_cache_without_a_gpu(orders: Result) -> None:
    profiled = cells(orders, "Reddit", hetu.PROFILER).cells
    assert {cell.ours for cell in profiled.values()} == {"not measured", None}
    assert profiled["none"].paper == 57


def fake_ncu(folder: Path, patch: pytest.MonkeyPatch, *script: str) -> None:
    (folder / "ncu").write_text("\n".join(["#!/bin/sh", *script]) + "\n")
    (folder / "ncu").chmod(0o755)
    patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_profilers_rates_are_those_of_each_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = '"ID","Kernel Name","Metric Name","Metric Value"'
    table = [(1, "mark", 0), (2, "csr", 57.5), (3, "mark", 0), (4, "csr", 70), (5, "sums", 80)]
    lines = [head, *(f'"{number}","{kernel}","{METRIC}","{value}"' for number, kernel, value in table)]
    fake_ncu(tmp_path, monkeypatch, "cat <<END", *lines, "END", """echo 'cases: [["a", 128], ["b", 128]]' >&2""")
    matrices = dict.fromkeys("abc", sparse.csr_array(np.eye(3)))
    rates = l2_hit_rates(matrices, 128, torch.device("cuda"))
    assert rates == {"a": 57.5, "b": 75, "c": "not measured"}


def test_a_profiler_that_may_not_count_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ncu(tmp_path, monkeypatch, "echo '==ERROR== ERR_NVGPUCTRPERM'")
    rates = l2_hit_rates({"a": sparse.csr_array(np.eye(3))}, 128, torch.device("cuda"))
    assert rates == {"a": "not measured: ==ERROR== ERR_NVGPUCTRPERM"}


@pytest.mark.sample(0)
def test_fig8_models_the_product_with_the_self_loops(orders: Result) -> None:
    case = orders.cases[0]
    pattern = case.graph.adjacency(bool) + sparse.eye_array(case.graph.num_nodes, dtype=bool, format="csr")
    assert pattern.nnz == case.size.nnz
    expected = hit_rate(pattern.indptr, pattern.indices, case.graph.num_nodes, case.modelled_cache_rows)
    assert cells(orders, "Reddit", hetu.MODEL).cells["none"].ours == 100 * expected


@pytest.mark.sample(0)
def test_fig8_has_the_papers_rates_and_speedups_beside_ours(orders: Result) -> None:
    reddit = cells(orders, "Reddit", hetu.MODEL).cells
    assert [reddit[order].paper for order in ("none", "rcm", "metis", "degree")] == [57, 70, 80, None]
    times = cells(orders, "Archaea", "SpMM, kernel=torch").cells
    assert times["best"].paper_ratio == 2.4
    measured = {order: times[order].ours for order in ("none", "degree", "slashburn", "rcm", "metis")}
    assert times["best"].ours == min(measured.values())
    assert times["rcm"].ratio == measured["none"] / measured["rcm"]
    assert {cell.origin for cell in times.values()} == {"measured"}


def test_fig8_names_an_order_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    cfg = load_target("fig8", *TINY, "datasets=[reddit-like]", "scale=0.02", "kernels=[torch]", "orders=[none,metis]")
    result = run("fig8", cfg)
    assert cells(result, "Reddit", hetu.MODEL).cells["metis"].ours.startswith("reorder=metis is not available")
    assert cells(result, "Reddit", "SpMM, kernel=torch").cells["metis"].ratio is None
