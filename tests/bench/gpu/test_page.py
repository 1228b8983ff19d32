"""The summary of a record, whole or half."""

import json

from fullgnn.bench.gpu.page import make_page
from fullgnn.bench.gpu.record import NOT_MEASURED, Record


def product(kernel, median_ms, **more):
    entry = {"kernel": kernel, "mode": "ieee", "width": 41, "median_ms": median_ms, "p20_ms": 1.0, "p80_ms": 3.0}
    entry |= {"error": 1e-7, "error_frobenius": 1e-8, "correct": True, "gathered_gb_s": 4000.0, "x_fits_l2": True}
    return entry | {"share_of_gather_rate": 0.8} | more


TREE = {
    "run": {"gpu": "H200", "minutes": 8.0},
    "checks": [
        {"kernel": "csr", "mode": "ieee", "width": 41, "block": "ragged", "what": "product", "error": 1e-7,
         "error_frobenius": 1e-8, "tolerance": 1e-5, "passed": True},
        {"kernel": "csr", "mode": "ieee", "width": 8, "block": "thin", "what": "product", "error": 0.5,
         "error_frobenius": 0.5, "tolerance": 1e-5, "passed": False},
    ],
    "rates": {"copy_gb_s": 4000.0, "gather": [
        {"row_bytes": 64, "resident": True, "gathered_gb_s": 5000.0, "index_select_gb_s": 2000.0}]},
    "graphs": {"reddit-like": {
        "num_nodes": 100, "nnz": 1000, "scale": 1.0, "order": "metis", "tile_density": [0.1, 0.2, 0.3, 0.2, 0.1, 0.1],
        "spmm": [product("torch", 8.0), product("csr", 2.0), product("tile32", 1.0, correct=False, error=0.5)],
        "spmm_shuffled": [product("torch", 16.0)],
        "setup": {"csr ieee": {"setup_s": 0.5, "bytes": 1_000_000}},
        "epoch": [
            {"preset": "naive", "median_ms": 60.0, "peak_bytes": 10**9, "loss_error": 0.0, "setup_s": 1.0,
             "settings": {}},
            {"preset": "full", "median_ms": 6.0, "peak_bytes": None, "loss_error": 1e-6, "setup_s": 2.0,
             "settings": {"kernel": "csr"}}]}},
    "hits": {"reason": "ncu is not on the PATH"},
    "items": [
        {"job": "rates", "item": "copy", "state": "failed", "reason": "no"},
        {"job": "checks 1", "item": "csr bf16", "state": "missing", "reason": "none"},
        {"job": "checks 2", "item": "csr bf16", "state": "missing", "reason": "none"},
        {"job": "reddit-like", "item": "csr ieee, width 8", "state": "left out", "reason": "0 s are left"},
        {"job": "reddit-like", "item": "csr ieee, width 16", "state": "left out", "reason": "0 s are left"},
    ],
}  # fmt: skip


def row(page, *cells):
    """The cells of the first line that begins with these."""
    for line in page.splitlines():
        found = [cell.strip() for cell in line.strip("|").split("|")]
        if found[: len(cells)] == list(cells):
            return found
    raise AssertionError(f"no line {cells} in\n{page}")


def test_speed_ups_are_over_torch_on_the_same_graph():
    page = make_page(TREE)
    assert row(page, "csr ieee", "41")[2:] == ["2", "1", "3", "4.00", "1.0e-07", "1.0e-08", "4000", "80 % (L2)"]
    assert row(page, "torch, shuffled graph", "41")[5] == "0.50"
    assert row(page, "tile32 ieee", "41")[6] == "0.5 WRONG"
    assert row(page, "full")[1:3] == ["6", "10.00"]
    assert "1 of 2 passed" in page and "FAILED: csr ieee, width 8, thin" in page
    assert "- missing: none (1: csr bf16)" in page
    assert "- reddit-like: no time was left (2: csr ieee, width 8; csr ieee, width 16)" in page
    assert "- rates: failed: no (1: copy)" in page and "ncu is not on the PATH" in page


def test_half_a_record_makes_a_page():
    for key in TREE:
        page = make_page({other: value for other, value in TREE.items() if other != key})
        assert page.startswith("# GPU benchmark")
    assert make_page({})
    for key in TREE["graphs"]["reddit-like"]:
        graph = {other: value for other, value in TREE["graphs"]["reddit-like"].items() if other != key}
        assert make_page({"graphs": {"reddit-like": graph}})


def test_times_of_an_interpreter_are_not_written(tmp_path):
    record = Record(tmp_path, measured=False)
    record.tree |= json.loads(json.dumps(TREE))
    record.write()
    tree = json.loads((tmp_path / "record.json").read_text())
    one = tree["graphs"]["reddit-like"]["spmm"][0]
    assert one["median_ms"] == one["gathered_gb_s"] == one["share_of_gather_rate"] == NOT_MEASURED
    assert one["error"] == 1e-7 and tree["rates"]["copy_gb_s"] == NOT_MEASURED
    page = (tmp_path / "summary.md").read_text()
    assert NOT_MEASURED in page and "4000" not in page
    assert not list(tmp_path.glob("*.tmp"))


def test_a_record_grows_leaf_by_leaf(tmp_path):
    record = Record(tmp_path, measured=True)
    record.put(["graphs", "a", "scale"], 0.5)
    record.add(["graphs", "a", "spmm"], product("torch", 1.0))
    record.add(["graphs", "a", "spmm"], product("csr", float("nan")))
    record.write()
    graph = json.loads((tmp_path / "record.json").read_text())["graphs"]["a"]
    assert graph["scale"] == 0.5 and [one["median_ms"] for one in graph["spmm"]] == [1.0, None]
