"""Epoch time by run, and the speed-up of runs with other numbers of ranks over the fastest with the fewest."""

from pathlib import Path
from typing import Any

import pytest

from tests.report.folders import numbers, page_of, record, write_run

pytest.importorskip("matplotlib")

CAPTION = "Milliseconds of an epoch by run"


def timed(folder: Path, p: int, median: float, config: str = "scheme: {name: 1d}", **changes: Any) -> Path:
    times = {"median": median, "p20": 0.75 * median, "p80": 1.25 * median}
    told = record(world_size=p, epoch_time_ms=times, **changes)
    return write_run(folder, told, f"seed: 0\nruntime: {{nproc: {p}}}\n{config}\n")


def test_speed_up(undrawn, tmp_path: Path) -> None:
    runs = [timed(tmp_path / f"1d_p{p}", p, ms) for p, ms in ((1, 8.0), (2, 4.0), (4, 2.5))]
    runs.append(timed(tmp_path / "1.5d_p4", 4, 2.0, "scheme: {name: 1.5d, replication: 2}", scheme="1.5d"))
    section = page_of(*runs, out=tmp_path / "page").sections["Epoch time"]
    time, _, speed_up, _ = (image["alt"] for image in section.images)
    assert time == "Milliseconds of an epoch, median, by run: 1d_p1 8.000; 1d_p2 4.000; 1d_p4 2.500; 1.5d_p4 2.000."
    lines = "scheme.name=1d 1.00 with p = 1, 2.00 with p = 2, 3.20 with p = 4"
    other = "scheme.name=1.5d scheme.replication=2 4.00 with p = 4"
    assert speed_up == f"Speed-up of an epoch against the number of ranks: {lines}; {other}."
    assert "Speed-up: the epoch time of 1d_p1, divided by that of the run." in section.text
    cells = numbers(section, CAPTION)
    assert cells["1d_p2"] == ["2", "4.000", "3.000", "5.000", "2.000"] and cells["1.5d_p4"][-1] == "4.000"


def test_without_other_numbers_of_ranks_there_is_no_speed_up(undrawn, tmp_path: Path) -> None:
    runs = [timed(tmp_path / "a", 2, 4.0), timed(tmp_path / "b", 2, 5.0, "scheme: {name: 1.5d}")]
    section = page_of(*runs, out=tmp_path / "page").sections["Epoch time"]
    assert len(section.images) == 2 and "Speed-up" not in section.text
    assert section.tables[CAPTION][0] == ["", "ranks, p", "median", "from", "to"]
    assert "Epoch time" not in page_of(tmp_path / "a").sections


def test_each_dataset_has_its_own_baseline_and_a_dry_run_none(undrawn, tmp_path: Path) -> None:
    runs = [timed(tmp_path / "cora_1", 1, 8.0, dataset="cora"), timed(tmp_path / "cora_2", 2, 4.0, dataset="cora")]
    runs += [timed(tmp_path / "digits_2", 2, 6.0), timed(tmp_path / "digits_4", 4, 4.0)]
    runs += [timed(tmp_path / "dry", 64, 1.0, dry_run_rank=0), timed(tmp_path / "wide", 1, 9.0, "model: {width: 9}")]
    section = page_of(*runs, out=tmp_path / "page").sections["Epoch time"]
    assert list(numbers(section, CAPTION)) == [path.name for path in runs]
    gains = [cells[-1] for cells in numbers(section, CAPTION).values()]
    assert gains == ["1.000", "2.000", "1.000", "1.500", "–", "–"]
    assert "Speed-up of cora_1, cora_2: the epoch time of cora_1" in section.text
