"""The section of the graph: the remarks of a record, and the inspection beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

import fullgnn
from fullgnn.report import page
from fullgnn.report.inspection import Inspection
from fullgnn.report.runs import read_runs
from tests.damage import assert_refused_or_right
from tests.report.damaged_files import damaged_json, finite
from tests.report.folders import page_of, record, write_run
from tests.report.inspection.graphs import random_graph

pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes a second, and the section of the graph has no image."""
    monkeypatch.setattr(page, "write_images", lambda *_: [])


@pytest.fixture(scope="module")
def inspected() -> Inspection:
    return fullgnn.inspect(random_graph(0, name="karate"), "runtime.device=cpu")


def written(folder: Path, inspection: Inspection, **changes: Any) -> Path:
    write_run(folder, record(num_nodes=40, **changes))
    (folder / "inspection.json").write_text(json.dumps(inspection.to_json(), indent=2))
    return folder


def test_a_run_without_anything_to_say_has_no_section(tmp_path: Path) -> None:
    assert "Graph" not in page_of(write_run(tmp_path / "run", record()), out=tmp_path / "page").sections


def test_remarks_are_sentences_that_runs_share(tmp_path: Path) -> None:
    remarks: dict[str, int] = {"self_loops": 1234, "of_another_version": 3}
    same = [write_run(tmp_path / name, record(remarks=remarks), f"model: {{name: {name}}}\n") for name in "ab"]
    text = page_of(*same, out=tmp_path / "page").sections["Graph"].text
    assert text.count("1234 nodes have a stored edge to themselves") == 1 and "of_another_version" not in text
    assert "Not inspected: the graph of a and b." in text
    other = write_run(tmp_path / "c", record(), "model: {name: c}\n")
    text = page_of(*same, other, out=tmp_path / "page").sections["Graph"].text
    assert "a and b: 1234 nodes have" in text


def test_replicates_show_the_sentences_that_all_of_them_have(tmp_path: Path) -> None:
    folders = []
    for seed in range(2):
        drawn = {"random_split_nodes": 40, "split_train_fraction": 600_000, "split_seed": seed}
        remarks = {"self_loops": 7, "isolated_nodes": 1 + seed, **drawn}
        config = f"seed: {seed}\nmodel: {{name: gcn}}\n"
        folders.append(write_run(tmp_path / str(seed), record(remarks=remarks, seed=seed), config))
    text = page_of(*folders, out=tmp_path / "page").sections["Graph"].text
    assert "7 nodes have a stored edge" in text and "isolated" not in text and "no edge at all" not in text
    assert "were split at random" not in text


def test_the_inspection_of_a_run(tmp_path: Path, inspected: Inspection) -> None:
    section = page_of(written(tmp_path / "run", inspected), out=tmp_path / "page").sections["Graph"]
    text = " ".join(section.text.split())
    assert "Not inspected" not in text and "Homophily, the share of neighbours" in text
    for sentence in inspected.odd:
        assert sentence in text
    assert {"Degrees", "Labels", "Ranks"} <= section.tables.keys() and "###" not in text
    assert [row[0] for row in section.tables["Ranks"][1:]] == ["1", "2", "4", "4", "8", "8"]


def test_the_inspection_of_another_graph_is_not_shown(tmp_path: Path, inspected: Inspection) -> None:
    section = page_of(written(tmp_path / "run", inspected, dataset="cora"), out=tmp_path / "page").sections["Graph"]
    assert "inspection.json is of karate, a graph of 40 nodes, and not of the graph of the run" in section.text
    assert not section.tables


def test_an_inspection_is_read_as_it_was_written(inspected: Inspection) -> None:
    for inspection in (inspected, fullgnn.inspect(fullgnn.Graph.from_edge_index([[0], [1]], num_nodes=2))):
        assert Inspection.from_json(json.loads(json.dumps(inspection.to_json()))) == inspection


def check(folder: Path, content: bytes, seed: int) -> None:
    damaged = damaged_json(content, seed)
    (folder / "inspection.json").write_bytes(damaged)
    (run,), _ = read_runs([folder], lambda run: page.sections([run], []))
    assert run.inspection is not None
    told = json.loads(damaged)
    read = json.loads(json.dumps(run.inspection.to_json()))
    assert {key: read[key] for key in told} == finite(told)


def test_a_damaged_inspection_is_named_or_read_right(tmp_path: Path, every_case: bool, inspected: Inspection) -> None:
    folder = written(tmp_path / "run", inspected)
    content = json.dumps(inspected.to_json()).encode()
    assert_refused_or_right(check, [(folder, content, seed) for seed in range(400 if every_case else 30)])
