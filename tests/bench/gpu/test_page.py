"""The page that summarises a record, complete or partial."""

import json

from fullgnn.bench.gpu.page import make_page
from fullgnn.bench.gpu.record import NOT_MEASURED, Record


def product(kernel, median_ms, **more):
    entry = {"kernel": kernel, "width": 41, "median_ms": median_ms, "p20_ms": 1.0, "p80_ms": 3.0}
    entry |= {"error": 1e-7, "correct": True, "gathered_gb_s": 4000.0, "x_fits_l2": True}
    return entry | {"share_of_gather_rate": 0.8} | more


def epoch(preset, median_ms, dropout, **more):
    entry = {"preset": preset, "dropout": dropout, "median_ms": median_ms, "peak_bytes": None, "loss_error": 1e-6}
    return entry | {"setup_s": 1.0, "settings": {"kernel": "csr"}} | more


def check(passed=True, **more):
    return {"subject": "pytest", "what": "all tests", "case": "3 passed", "passed": passed, "said": ""} | more


def swept(median_ms, **changed):
    entry = {
        "section": "csr",
        "kernel": "csr",
        "graph": "reddit-like",
        "width": 128,
        "median_ms": median_ms,
        "correct": True,
    }
    return entry | {"changed": changed}


TREE = {
    "run": {"part": "products", "gpu": "H200", "minutes": 8.0, "versions": {"torch": "2.13"}},
    "checks": [check(), check(False, subject="test_sparse.test_product", what="test", case="", said="an empty row")],
    "rates": {"copy_gb_s": 4000.0, "gather": [
        {"row_bytes": 64, "resident": True, "gathered_gb_s": 5000.0, "index_select_gb_s": 2000.0}]},
    "graphs": {"reddit-like": {
        "num_nodes": 100, "nnz": 1000, "scale": 1.0, "order": "metis", "tile_density": [0.1, 0.2, 0.3, 0.2, 0.1, 0.1],
        "spmm": [product("torch", 8.0), product("csr", 2.0), product("tile32", 1.0, correct=False, error=0.5)],
        "spmm_shuffled": [product("torch", 16.0)],
        "setup": {"csr": {"setup_s": 0.5, "bytes": 1_000_000}},
        "epoch": [epoch("naive", 60.0, 0.0), epoch("full", 6.0, 0.0), epoch("full", 8.0, 0.5)],
        "launches": [{
            "preset": "full", "dropout": 0.0, "epochs": 5, "busy_ms": 5.5, "idle_ms": 0.5,
            "kernels": [{"kernel": "sum_rows", "launches": 4.0, "total_ms": 3.0}],
            "gaps": [{"after": "sum_rows", "before": "_mask", "gaps": 2.0, "total_ms": 0.4}]}]}},
    "sweep": [swept(2.0), swept(1.5, elements=8192)],
    "hits": {"launches": [{
        "kernel": "csr", "launched": "sum_rows", "width": 128,
        "hit_rate_percent": 61.5, "l1_hit_rate_percent": 12.5, "dram_bytes_per_second": 4.1e12,
        "l2_bytes_per_second": 5e12}]},
    "plan": {"reddit-like": [{"world_size": 1, "predicted_epoch": "10.7 ms"},
                             {"world_size": 8, "predicted_epoch": "2 ms"}]},
    "reproduce": {"fig8": "# Figure 8\n\n| a |"},
    "items": [
        {"job": "rates", "item": "copy", "state": "failed", "reason": "no"},
        {"job": "checks 1", "item": "csr bf16", "state": "missing", "reason": "none"},
        {"job": "checks 2", "item": "csr bf16", "state": "missing", "reason": "none"},
        {"job": "reddit-like", "item": "csr, width 8", "state": "left out", "reason": "0 s are left"},
        {"job": "reddit-like", "item": "csr, width 16", "state": "left out", "reason": "0 s are left"},
    ],
}  # fmt: skip


def row(page, *cells):
    """The cells of the first line of ``page`` that begins with ``cells``."""
    for line in page.splitlines():
        found = [cell.strip() for cell in line.strip("|").split("|")]
        if found[: len(cells)] == list(cells):
            return found
    raise AssertionError(f"no line {cells} in\n{page}")


def test_speed_ups_are_over_torch_on_the_same_graph():
    page = make_page(TREE)
    assert row(page, "csr", "41")[2:] == ["2", "1", "3", "4.00", "1.0e-07", "4000", "80 % (L2)"]
    assert row(page, "torch, shuffled graph", "41")[5] == "0.50"
    assert row(page, "tile32", "41")[6] == "0.5 WRONG"
    assert row(page, "full", "0.0")[2:4] == ["6", "10.00"] and row(page, "full", "0.5")[2:4] == ["8", "-"]
    assert "- missing: none (1: csr bf16)" in page
    assert "- reddit-like: no time was left (2: csr, width 8; csr, width 16)" in page
    assert "- rates: failed: no (1: copy)" in page


def test_checks_are_counted_and_failures_named():
    page = make_page(TREE)
    assert "1 of 2 passed" in page and row(page, "pytest") == ["pytest", "all tests", "yes", "3 passed"]
    assert row(page, "test_sparse.test_product") == ["test_sparse.test_product", "test", "no", ""]
    assert "- FAILED: test_sparse.test_product, test: an empty row" in page
    unknown = make_page({"checks": [check(False)]})
    assert "0 of 1 passed" in unknown and "- FAILED: pytest, all tests, 3 passed" in unknown


def test_the_sweep_the_launches_the_counts_and_the_plan():
    page = make_page(TREE)
    assert row(page, "csr", "csr", "reddit-like", "128", "elements 8192")[5:] == ["1.5", "0.750"]
    assert row(page, "sum_rows", "4") == ["sum_rows", "4", "3"] and "5.5 ms at work and 0.5 ms idle" in page
    assert row(page, "sum_rows", "_mask") == ["sum_rows", "_mask", "2", "0.4"]
    assert row(page, "csr", "sum_rows")[2:] == ["128", "61.5", "12.5", "4100", "5000", "-"]
    assert row(page, "reddit-like", "1") == ["reddit-like", "1", "10.7 ms", "6"]
    assert row(page, "reddit-like", "8")[3] == "-" and "> # Figure 8" in page
    assert "Not read: ncu is not on the PATH" in make_page({"hits": {"reason": "ncu is not on the PATH"}})


def test_half_a_record_makes_a_page():
    for key in TREE:
        page = make_page({other: value for other, value in TREE.items() if other != key})
        assert page.startswith("# GPU benchmark")
    assert make_page({})
    for key in TREE["graphs"]["reddit-like"]:
        graph = {other: value for other, value in TREE["graphs"]["reddit-like"].items() if other != key}
        assert make_page({"graphs": {"reddit-like": graph}})


def test_times_of_an_interpreter_are_not_written(tmp_path):
    record = Record(tmp_path, "products", measured=False)
    record.tree |= json.loads(json.dumps(TREE))
    record.write()
    tree = json.loads((tmp_path / "products.json").read_text())
    one = tree["graphs"]["reddit-like"]["spmm"][0]
    assert one["median_ms"] == one["gathered_gb_s"] == one["share_of_gather_rate"] == NOT_MEASURED
    assert one["error"] == 1e-7 and tree["rates"]["copy_gb_s"] == NOT_MEASURED
    page = (tmp_path / "products.md").read_text()
    assert NOT_MEASURED in page and "4000" not in page and "4100" not in page
    assert tree["hits"]["launches"][0]["dram_bytes_per_second"] == NOT_MEASURED
    assert tree["sweep"][0]["median_ms"] == tree["graphs"]["reddit-like"]["launches"][0]["idle_ms"] == NOT_MEASURED
    assert not list(tmp_path.glob("*.tmp"))


def test_a_record_grows_leaf_by_leaf(tmp_path):
    record = Record(tmp_path, "epochs", measured=True)
    record.put(["graphs", "a", "scale"], 0.5)
    record.add(["graphs", "a", "spmm"], product("torch", 1.0))
    record.add(["graphs", "a", "spmm"], product("csr", float("nan")))
    record.write()
    graph = json.loads((tmp_path / "epochs.json").read_text())["graphs"]["a"]
    assert graph["scale"] == 0.5 and [one["median_ms"] for one in graph["spmm"]] == [1.0, None]
