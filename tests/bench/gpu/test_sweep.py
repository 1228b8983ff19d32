"""The sweep of the kernels' constants: which values it tries, which values win, and how kernels read the winners."""

from dataclasses import asdict, fields

import pytest
import torch

from fullgnn.bench.gpu import sweep
from fullgnn.bench.gpu.products import CSR
from fullgnn.bench.harness import Cases, Measurement, Method
from fullgnn.distributed import world_of_one
from fullgnn.errors import ConfigError
from fullgnn.kernels.support import tuning
from fullgnn.kernels.support.tuning import Tuning, read_tuning, tuning_for
from fullgnn.telemetry.timing import Times
from tests.gpu.blocks import ragged

CPU = torch.device("cpu")
NAMES = [field.name for field in fields(Tuning)]


def row(ms, width=128, section="csr", graph="reddit-like", correct=True, kernel="csr", **changed):
    where = {"section": section, "kernel": kernel, "graph": graph, "width": width}
    return where | {"changed": changed, "median_ms": ms, "correct": correct}


SWEPT = [
    row(10.0), row(8.0, elements=8192), row(9.0, elements_per_warp=512), row(9.9, elements_per_warp=4096),
    row(7.0, elements=8192, elements_per_warp=512), row(1.0, elements=2048, correct=False),
    row(4.0, width=8, graph="proteins-like"), row(4.1, width=8, graph="proteins-like", elements=8192),
    row(3.95, width=8, graph="proteins-like", elements_per_warp=512),
    row(5.0, section="dense"), row(4.0, section="dense", mask_tiles=8),
]  # fmt: skip


def test_every_constant_is_tried_and_the_tables_name_no_other():
    for section in NAMES:
        defaults, changes = asdict(getattr(Tuning(), section).general), sweep.single_changes(section)
        assert len(set(map(str, changes))) == len(changes)
        assert not any(change.items() <= defaults.items() for change in changes)
        assert {name for change in changes for name in change} | set(sweep.VALUES[section]) == set(defaults)
        assert all(value > 0 for change in changes for value in change.values())
    assert set(NAMES) == set(sweep.VALUES) == set(sweep.SECTIONS.values()), "a table lacks a section"
    assert len(set(sweep.WIDTHS)) == len(sweep.WIDTHS) and set(sum(sweep.WIDTHS.values(), ())) >= {128, 64, 47, 41, 8}


def test_winners_gain_and_are_right():
    winners = sweep.winners(SWEPT)
    assert winners["csr"] == {"widths": {128: {"elements": 8192, "elements_per_warp": 512}, 8: {}}}
    assert winners["dense"] == {"widths": {128: {"mask_tiles": 8}}} and "panels" not in winners
    assert sweep.winners([]) == sweep.winners([row("not measured"), row("not measured", elements=8192)]) == {}


def test_gains_are_added_up_one_after_the_other():
    rows = [row for row in SWEPT if row["section"] == "csr" and row["width"] == 128]
    gains = {"elements": 8192, "elements_per_warp": 512}
    assert sweep.descent(rows) == [gains]
    rows.append(row(7.5, elements_per_warp=256))
    assert sweep.descent(rows) == [gains]  # one value of each, of the fastest row
    assert sweep.descent(rows[1:2]) == [] == sweep.descent([row(10.0)])


def test_what_the_sweep_wrote_is_read_back_and_used(tmp_path):
    path = tmp_path / "tuning.yaml"
    path.write_text(sweep.tuning_text(SWEPT, "NVIDIA H200"))
    assert "nvidia-h200.yaml" in path.read_text()
    read = read_tuning(path)
    assert (read.csr.at(128).elements, read.csr.at(128).elements_per_warp) == (8192, 512)
    assert read.csr.at(8).elements == Tuning().csr.general.elements and read.dense.at(128).mask_tiles == 8
    tuning.use(read)
    try:
        assert tuning_for(CPU) is read
    finally:
        tuning.use(None)
    path.write_text(sweep.tuning_text([], None))
    assert read_tuning(path) == Tuning()


class Product:
    """Times that depend on the constants in force: twice as many elements take half the time, as do other warps."""

    def time(self, width, world, seconds):
        csr = tuning_for(CPU).csr.at(width)
        ms = 4096 / csr.elements * (1.0 if csr.elements_per_warp == 1024 else 0.5)
        return Measurement(Method("csr", "kernel", None, details={"correct": True}), [], Times([ms]), [])


def test_the_sweep_gives_the_kernels_its_constants(monkeypatch, triton_on_cpu, every_case):
    """The sweep finds the constants with the lowest times, and restores the defaults."""
    monkeypatch.setattr(sweep, "SECTIONS", {CSR.name: "csr"} | ({sweep.DENSE: "dense"} if every_case else {}))
    trial, seen = sweep.trial, []

    def stand_in(kernel, width, block, device):
        seen.append(tuning_for(CPU))
        return trial(kernel, width, block, device) if kernel == sweep.DENSE else Product()

    monkeypatch.setattr(sweep, "trial", stand_in)
    with world_of_one(CPU) as world:
        parts = list(sweep.sweep(ragged(), ragged(), Cases(600, CPU), world, "toy"))
    assert tuning_for(CPU) == Tuning() and not any(part.missing for part in parts)
    rows = [sweep.row_of(measured.record()) for part in parts for measured in part.measurements]
    csr = [row for row in rows if row["section"] == "csr"]
    assert len(csr) >= 1 + len(sweep.single_changes("csr")) and csr[0]["changed"] == {}
    for constants, row in zip(seen, rows, strict=True):  # the changed ones held, and the others were the defaults
        own = getattr(constants, row["section"]).at(8)
        assert all(getattr(own, name) == value for name, value in row["changed"].items())
        assert row["changed"] or constants == Tuning()
    best = sweep.winners(csr)["csr"]["widths"][8]
    assert best["elements"] == 8192 and best["elements_per_warp"] in (512, 2048)
    assert len({str(row["changed"]) for row in csr}) == len(csr)
    assert all(row["correct"] for row in rows if row["section"] == "dense")
    assert parts[0].measurements[0].ratio == 1.0


def test_a_layer_knows_its_gradient(monkeypatch):
    layer = sweep.DenseLayer(60, 20, 8, CPU)
    run = layer.run
    with world_of_one(CPU) as world:
        assert layer.time(8, world, 0.0).details["correct"]
        monkeypatch.setattr(layer, "run", lambda x: run(x) * 1.001)
        assert not layer.time(8, world, 0.0).details["correct"]


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    path = tmp_path / "tuning.yaml"
    path.write_text("csr: {lanes: 3}")
    with pytest.raises(ConfigError, match="names unknown constants, lanes"):
        read_tuning(path)
