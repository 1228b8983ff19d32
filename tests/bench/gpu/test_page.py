"""The record and the page of a part, complete or partial."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fullgnn.bench.gpu.__main__ import parse
from fullgnn.bench.gpu.page import make_headline, make_page
from fullgnn.bench.gpu.parts import NOT_MEASURED, BenchPart
from fullgnn.bench.harness import Measurement, Method
from fullgnn.bench.record import results
from fullgnn.telemetry.timing import Times


def row(
    name: str, ms: float, case: dict | None = None, processes: int = 1, base: float | None = None, **details: Any
) -> dict:
    method = Method(name, "kernel", None, processes, 1, case or {}, details)
    measured = Measurement(method, [], Times([ms]), [], ratio=None if base is None else ms / base)
    return json.loads(json.dumps(measured.record()))


def entry(title: str, op: str = "", state: str = "done", **result: Any) -> dict:
    own = {"op": op, "problem": None, "measurements": [], "checks": [], "missing": []} if op else {}
    return {"title": title, "command": "python -m fullgnn.bench", "state": state, "result": own | result}


def swept(ms: float, **changed: Any) -> dict:
    case = {"graph": "reddit-like", "width": 128}
    return row("csr", ms, case, base=2.0, section="csr", correct=True, changed=changed)


LAUNCHES = {
    "busy_ms": 5.5,
    "idle_ms": 0.5,
    "kernels": [{"kernel": "sum_rows", "launches": 4.0, "total_ms": 3.0}],
    "gaps": [{"after": "sum_rows", "before": "_mask", "gaps": 2.0, "total_ms": 0.4}],
}
COMMANDS = [
    entry("Checks", "checks", checks=[
        {"subject": "pytest", "what": "all tests", "case": "3 passed", "passed": True, "said": ""},
        {"subject": "test_sparse", "what": "test", "case": "", "passed": False, "said": "an empty row"}]),
    entry("Rates", "rates", measurements=[row("copy", 1.0, gb_per_s=4000.0)], gpu={"name": "NVIDIA H200"}),
    entry("reddit-like: products", "products", problem={"nnz": 1000, "scale": 1.0}, measurements=[
        row("csr", 2.0, {"width": 41}, base=8.0, error=1e-7, gathered_gb_per_s=4100.0, of_gather_rate_per_s=0.8)]),
    entry("reddit-like: sweep", "sweep", measurements=[swept(2.0), swept(1.5, elements=8192)]),
    entry("reddit-like: epochs", "epoch", measurements=[row("full", 6.0, launches=LAUNCHES, peak_mb=64.0)],
          missing=[{"method": "PyG", "reason": "it is not installed", "case": {}},
                   {"method": "hetu", "reason": "left out: 3 s are left", "case": {"dropout": 0.5}},
                   {"method": "naive", "reason": "left out: 0 s are left", "case": {"dropout": 0.5}}]),
    entry("reddit-like: the plan", plan=[{"world_size": 1, "predicted_epoch": "10.7 ms"},
                                         {"world_size": 8, "predicted_epoch": "2 ms"}]),
    entry("Reproduced: fig8", page="# Figure 8\n\n| a |"),
    entry("Reproduced: fig10", state="failed") | {"reason": "status 1: no"},
]  # fmt: skip


def tree(commands: list[dict]) -> dict:
    return {"run": {"part": "products", "minutes": 8.0, "versions": {"torch": "2.13"}}, "commands": commands}


def cells(page: str, *first: str) -> list[str]:
    """The cells of the first line of ``page`` that begins with ``first``."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[: len(first)] == list(first):
            return cells
    raise AssertionError(f"no line {first} in\n{page}")


def test_the_page_has_a_section_for_every_title() -> None:
    page = make_page(tree(COMMANDS))
    assert page.startswith("# GPU benchmark: products\n\n") and "- gpu name: NVIDIA H200" in page
    assert "- torch: 2.13" in page and "1 of 2 passed" in page
    assert cells(page, "pytest", "all tests")[2:] == ["3 passed", "True", "-"]
    assert cells(page, "test_sparse")[3:] == ["False", "an empty row"]
    assert cells(page, "csr", "1 x 1", "41")[3:] == ["2", "2", "2", "1", "0.25", "1.00e-07", "4100", "0.8"]
    assert cells(page, "full")[-1] == "64" and "One epoch of full: 5.5 ms at work and 0.5 ms idle." in page
    assert cells(page, "sum_rows", "_mask") == ["sum_rows", "_mask", "2", "0.4"]
    assert cells(page, "1", "10.7 ms") == ["1", "10.7 ms", "6"] and cells(page, "8", "2 ms")[2] == "-"
    assert "> # Figure 8" in page and "- failed: status 1: no (1: Reproduced: fig10)" in page
    assert "- reddit-like: epochs: it is not installed (1: PyG)" in page
    assert "- reddit-like: epochs: left out (2: hetu, dropout 0.5; naive, dropout 0.5)" in page


def test_the_headline_is_of_the_checks_and_the_first_graph() -> None:
    headline = make_headline(tree([*COMMANDS, entry("archaea-like: products", "products")]))
    assert "## Checks" in headline and "## reddit-like: products" in headline and "## Rates" not in headline


def test_half_a_record_makes_a_page() -> None:
    for count in range(len(COMMANDS)):
        assert make_page(tree(COMMANDS[count:])).startswith("# GPU benchmark")
        assert make_page(tree(COMMANDS[:count])).startswith("# GPU benchmark")


def test_records_of_several_numbers_of_ranks_have_speed_ups() -> None:
    measured = [row("full", 6.0, processes=1)], [row("full", 4.0, processes=2)]
    records = [entry("", "epoch", measurements=rows)["result"] for rows in measured]
    text = results(records)
    assert cells(text, "full", "1 x 1")[-1] == "1" and cells(text, "full", "2 x 1")[-1] == "1.5"
    assert "speed-up" not in results(records[:1])


def test_times_of_an_interpreter_are_not_written(tmp_path: Path) -> None:
    record = BenchPart("products", parse(["--out", str(tmp_path), "--toy"]), tmp_path)
    record.tree["commands"] += json.loads(json.dumps(COMMANDS))
    record.write()
    products = json.loads((tmp_path / "products.json").read_text())["commands"][2]["result"]["measurements"][0]
    assert products["median_ms"] == products["ratio"] == NOT_MEASURED == products["details"]["gathered_gb_per_s"]
    assert products["details"]["error"] == 1e-7 and products["details"]["of_gather_rate_per_s"] == NOT_MEASURED
    page = (tmp_path / "products.md").read_text()
    assert NOT_MEASURED in page and "4000" not in page and "4100" not in page and "5.5" not in page
    assert "8192" not in (tmp_path / "tuning.yaml").read_text() and not list(tmp_path.glob("*.tmp"))


def test_the_winners_of_the_sweep_are_a_file(tmp_path: Path) -> None:
    record = BenchPart("products", parse(["--out", str(tmp_path)]), tmp_path)
    record.tree["commands"] += COMMANDS
    record.write()
    text = (tmp_path / "tuning.yaml").read_text()
    assert "NVIDIA H200" in text and "128: {elements: 8192}" in text


@pytest.mark.sample(3)
def test_what_a_killed_command_has_measured_is_kept(tmp_path: Path) -> None:
    """A command is read while it runs; one that fails, or for which there is no time, stops no other."""
    part, out = BenchPart("epochs", parse(["--out", str(tmp_path)]), tmp_path), tmp_path / "out"
    out.mkdir()
    left = json.dumps(entry("", "epoch", measurements=[row("full", 6.0)], gpu={})["result"])
    program = f"import pathlib, time; pathlib.Path({str(out)!r}, 'record.json').write_text({left!r}); time.sleep(600)"

    def once(title: str, program: str, seconds: float, folder: Path = tmp_path / "none") -> dict:
        part.execute(title, [sys.executable, "-c", program], seconds, folder)
        return part.tree["commands"][-1]

    begun = once("slow", program, 16, out)
    assert begun["state"] == "left out" and begun["reason"] == "its time of 16 s was over"
    assert begun["result"]["measurements"][0]["median_ms"] == 6.0
    assert "full" in (tmp_path / "epochs.md").read_text()
    failed = once("fails", "raise SystemExit('a reason')", 60)
    assert failed["state"] == "failed" and failed["reason"] == "status 1: a reason"
    assert once("short", program, 1)["reason"] == "1 s are left"
